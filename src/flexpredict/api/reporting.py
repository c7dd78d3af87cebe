"""`report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.settings.run import Names
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


def report(run: Names, *, out: str | Path | None = None) -> ReportResult:
    """Write one HTML page of one or more runs: curves, answers, warnings, results and recipes, in a single file.

    Several runs are overlaid and compared. A run writes its own page when it ends, and at checkpoints.

    Args:
        run: run folders.
        out: the page to write (default: report.html in the run folder, or here for several).
    """
    from flexpredict.reports import write_report

    names = [run] if isinstance(run, str | Path) else list(run)
    return ReportResult(write_report([Path(name) for name in names], None if out is None else Path(out)))
