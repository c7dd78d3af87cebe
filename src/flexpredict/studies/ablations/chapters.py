"""Pages of results: a chapter for each study, an index of the chapters, and generated blocks in other pages."""

import re
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from flexpredict.files import write_text_atomically

_FINDING = "## Finding"
_UNWRITTEN = "To be written."


def write_chapter(
    folder: Path, title: str, body: str, environment: dict[str, Any], command: str = "", notes: str = ""
) -> None:
    """Write README.md in the folder and its line in the index. Keeps the text under "Finding".

    environment: of a run, see `RunFolder.record_start`; command: default, the command line of this process.
    """
    path = folder / "README.md"
    finding = _finding(path.read_text(encoding="utf-8")) if path.is_file() else _UNWRITTEN
    command = command or shlex.join(["flexpredict", *sys.argv[1:]])
    text = f"# {title}\n\n```console\n{command}\n```\n\n{notes} {_made(environment)}\n\n{body}\n"
    write_text_atomically(path, f"{text}\n{_FINDING}\n\n{finding}\n")
    write_index(folder.parent)


_LINK = re.compile(r"\[([^]]*)]\([^)]*\)")  # relative to its chapter, so it would be broken on another page


def write_index(folder: Path) -> None:
    """Write a line for each chapter into the folder's README.md: its question and first paragraph of its finding."""
    lines = [["chapter", "question", "finding"]]
    for chapter in sorted(folder.glob("*/README.md")):
        said, name = chapter.read_text(encoding="utf-8"), chapter.parent.name
        first = _LINK.sub(r"\1", " ".join(_finding(said).partition("\n\n")[0].split()))
        lines.append([f"[{name}]({name}/README.md)", said.partition("\n")[0].removeprefix("# "), first])
    write_block(folder / "README.md", "chapters", as_markdown(lines, numbers=False))


def write_block(page: Path, name: str, text: str) -> bool:
    """Put a text between <!-- NAME --> and <!-- end of NAME --> of a page. Returns whether it has these marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    before = page.read_text(encoding="utf-8") if page.is_file() else ""
    if not marks.search(before):
        return False
    write_text_atomically(page, marks.sub(lambda found: f"{found[1]}{text}{found[2]}", before))
    return True


def as_markdown(lines: list[list[str]], numbers: bool = True) -> str:
    """A Markdown table; the first line has the headings. numbers: right-align all columns but the first."""
    rule = ["---", *("---:" if numbers else "---" for _ in lines[0][1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:])) + "\n"


def _made(environment: dict[str, Any]) -> str:
    today, threads = datetime.now(timezone.utc).date().isoformat(), environment["threads"]
    return (
        f"Made on {today} on {environment['device']}, {environment['cores']} cores, {threads} "
        f"thread{'s' * (threads > 1)} a run, torch {environment['versions']['torch']}."
    )


def _finding(chapter: str) -> str:
    """The text below the heading "Finding"."""
    return chapter.partition(f"{_FINDING}\n")[2].strip() or _UNWRITTEN
