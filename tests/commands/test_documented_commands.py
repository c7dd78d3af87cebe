"""Every command line in the documents and recipes can be typed, and those of the first pages run."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import write_pictures

from flexpredict.cli import main
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


def test_commands_of_the_first_pages_run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a run of a few steps can serve; pre-training itself, downloads and `serve` are tested elsewhere."""
    monkeypatch.chdir(tmp_path)
    for folder in ("FOLDER", "LABELED/cats", "LABELED/dogs"):
        write_pictures(tmp_path / folder, 24)
    for name in ("mine", "sincos", "stop", "healthy", "collapsed"):
        shutil.copytree(finished, Path("runs") / name, symlinks=True)
    shutil.copy(finished / "encoder.safetensors", "weights.safetensors")
    shutil.copy("FOLDER/000.png", "cat.jpg")
    pages = [ROOT / "docs" / f"{name}.md" for name in ("index", "pretraining", "page", "learning")]
    lines = dict.fromkeys(line for page in pages for line in command_lines(page.read_text(encoding="utf-8")))
    tried, run = {"inspect", "pack", "probe", "embed", "similar", "export", "report"}, set()
    for line in lines:
        words = shlex.split(line.replace("--query IMAGE", "--query cat.jpg"), comments=True)[1:]
        needs_network = "timm:" in line and "pretrained=no" not in line
        if words[0] in tried and len(words) > 1 and not needs_network:
            assert main(words) == 0, line
            run.add(words[0])
    assert run == tried
