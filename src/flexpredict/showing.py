"""Shows the result of a command on a terminal: its tables, warnings, and the files it wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


class CommandResult(Protocol):
    """The interface of the result of every command."""

    @property
    def files(self) -> Sequence[Path]:
        """Files that were written."""

    @property
    def warnings(self) -> Sequence[str]: ...

    def tables(self) -> Sequence[tuple[str, Table | None]]:
        """Tables with their titles, in the order in which they are shown; a title may have no table."""

    def table(self) -> Table:
        """Everything in one table."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""


class SimpleResult:
    """Defaults for results: no tables, warnings or files are shown, and `table` lists the fields."""

    @property
    def files(self) -> Sequence[Path]:
        return ()

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    def tables(self) -> Sequence[tuple[str, Table | None]]:
        return ()

    def table(self) -> Table:
        return facts_table({name: str(value) for name, value in self.to_dict().items()})

    def to_dict(self) -> dict[str, Any]:
        """The fields of a dataclass; paths and other objects as text."""
        plain = (str, bool, int, float, type(None))
        return {name: value if isinstance(value, plain) else str(value) for name, value in vars(self).items()}


def show(result: CommandResult, console: Console | None = None) -> None:
    """Print a result; only the first of several processes does."""
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    if getattr(rank_zero_only, "rank", 0):
        return
    console = console or Console(soft_wrap=True)
    for title, table in result.tables():
        # As part of the table, a title would be wrapped to the table's width.
        if title:
            say(console, title)
        if table is not None:
            console.print(table)
    for warning in result.warnings:
        say(console, f"Warning: {warning}")
    if result.files:
        say(console, f"Written: {', '.join(map(str, result.files))}")


def say(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colors."""
    console.print(text, highlight=False, markup=False)


def numbers_table(rows: Mapping[str, Mapping[str, str]]) -> Table:
    """A table with one line for each entry; all entries have the same columns."""
    table = Table()
    table.add_column("", overflow="fold")
    for column in next(iter(rows.values())):
        table.add_column(Text(column), justify="right", overflow="fold")
    for name, cells in rows.items():
        table.add_row(Text(name), *cells.values())
    return table


def facts_table(facts: Mapping[str, str]) -> Table:
    """A line for each fact: its name and its value."""
    table = Table.grid(Column(no_wrap=True, style="bold"), Column(overflow="fold"), padding=(0, 2))
    for name, value in facts.items():
        table.add_row(name, Text(value))
    return table
