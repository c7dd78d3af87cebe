"""Every command line in the documents and recipes can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexpredict.commands.table import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("src/flexpredict/recipes/*.yaml"),
]


def command_lines(text: str) -> Iterator[str]:
    """Lines of code that begin with the name of the program, and such quotes in sentences."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        found = re.match(r"(?:[#$>] )?(flexpredict [a-z].*)", line.strip())
        if found:
            yield found[1].split("  #")[0]
    yield from re.findall(r"`(flexpredict [a-z][^`]*)`", text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_command_lines_can_be_typed(document: Path) -> None:
    for line in command_lines(document.read_text(encoding="utf-8")):
        words = shlex.split(line)[1:]
        name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
        if name is None:
            assert words[0] in ("evaluate", "help", "COMMAND"), line
            continue
        words = words[len(name.split()) :]
        if words and not {"--help", "…", "..."} & {*words}:
            assert COMMANDS[name].arguments(words), line


def test_there_are_such_lines() -> None:
    assert len(list(command_lines((ROOT / "README.md").read_text(encoding="utf-8")))) > 10
