"""Shows on a terminal what a command found: its tables, warnings, and the files it wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text


class CommandResult(Protocol):
    """What every command returns from Python."""

    def table(self) -> Table:
        """Everything in one table."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""

    def tables(self) -> Sequence[tuple[str, Table]]:
        """Tables with their titles, in the order in which they are shown."""
        return [("", self.table())]

    @property
    def lines(self) -> Sequence[str]:
        """Sentences to be shown below the tables."""
        return ()

    @property
    def files(self) -> Sequence[Path]:
        """Files that were written."""
        return ()

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    @property
    def interrupted(self) -> bool:
        """Whether someone stopped it before it was finished."""
        return False


def show(result: CommandResult, console: Console | None = None) -> None:
    """Print a result; of several processes only the first does."""
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    if getattr(rank_zero_only, "rank", 0):
        return
    console = console or Console(soft_wrap=True)
    for title, table in result.tables():
        # The title is not part of the table, where it would be broken into lines as narrow as the table.
        if title:
            say(console, title)
        console.print(table)
    for line in result.lines:
        say(console, line)
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
