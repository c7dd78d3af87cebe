"""A study as a chapter to read: question, command, tables, figure and finding, and an index of all chapters."""

import re
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from flexpredict.files import write_text_atomically

_FINDING = "## Finding"
_UNWRITTEN = "To be written."
_INDEX = re.compile(r"(<!-- chapters -->\n).*?(<!-- end of chapters -->)", re.DOTALL)


def write_chapter(folder: Path, title: str, tables: str, notes: str, environment: dict[str, Any]) -> None:
    """README.md beside the figure and the CSV files. What someone wrote under "Finding" is kept.

    environment: of a run, see `RunFolder.save_environment`.
    """
    path = folder / "README.md"
    finding = _finding(path.read_text(encoding="utf-8")) if path.is_file() else _UNWRITTEN
    text = f"""# {title}

```console
{_command()}
```

{notes} {_made(environment)}

{tables}
![{title}](figure.png)

[table.csv](table.csv) has the numbers of the tables, [seeds.csv](seeds.csv) those of each seed, and
[results.json](results.json) the recipe.

{_FINDING}

{finding}
"""
    write_text_atomically(path, text)
    _update_index(folder.parent / "README.md")


def _command() -> str:
    return shlex.join(["flexpredict", *sys.argv[1:]])


def _made(environment: dict[str, Any]) -> str:
    today = datetime.now(timezone.utc).date().isoformat()
    threads = environment["threads"]
    return (
        f"Made on {today} on {environment['device']}, {environment['cores']} cores, {threads} "
        f"thread{'s' * (threads > 1)} a run, torch {environment['versions']['torch']}."
    )


def _finding(chapter: str) -> str:
    """What stands below its heading."""
    return chapter.partition(f"{_FINDING}\n")[2].strip() or _UNWRITTEN


def _update_index(index: Path) -> None:
    """The list of chapters between two marks; a file without them is left alone."""
    text = index.read_text(encoding="utf-8") if index.is_file() else ""
    if not _INDEX.search(text):
        return
    lines = ["| chapter | question | finding |", "|---|---|---|"]
    for chapter in sorted(index.parent.glob("*/README.md")):
        said = chapter.read_text(encoding="utf-8")
        title = said.partition("\n")[0].removeprefix("# ")
        first = " ".join(_finding(said).partition("\n\n")[0].split())
        name = chapter.parent.name
        lines.append(f"| [{name}]({name}/README.md) | {title} | {first} |")
    listed = "\n".join(lines)
    write_text_atomically(index, _INDEX.sub(lambda marks: f"{marks[1]}{listed}\n{marks[2]}", text))
