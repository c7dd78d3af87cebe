"""`report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.showing import SimpleResult


@dataclass(frozen=True)
class ReportResult(SimpleResult):
    """The page that was written."""

    page: Path

    @property
    def files(self) -> list[Path]:
        return [self.page]

    def to_dict(self) -> dict[str, Any]:
        return {"page": str(self.page)}


def report(run: str | Path) -> ReportResult:
    """Write the HTML page of a run: curves, warnings, recipe and environment in one file.

    A run writes it when it ends; for a run that goes on, this shows how far it has come.

    Args:
        run: a run folder.
    """
    from flexpredict.reports import write_report

    return ReportResult(write_report(Path(run)))
