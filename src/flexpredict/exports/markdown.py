"""Tables and blocks of code in Markdown."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns named "value" are aligned to the right."""
    rules = ["---:" if name == "value" else "---" for name in header]
    return "\n".join([_row(header), f"|{'|'.join(rules)}|", *map(_row, rows)])


def code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _row(cells: Sequence[str]) -> str:
    escaped = [" ".join(cell.replace("|", "\\|").split()) for cell in cells]
    return f"| {' | '.join(escaped)} |"
