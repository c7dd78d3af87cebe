"""`report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.settings.run import Names, as_list
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


def report(run: Names, *, out: str | Path | None = None, images: str | None = None) -> ReportResult:
    """Write one HTML page of runs: curves, what the model sees and predicts, results and recipes, in a single file.

    Several runs are overlaid and compared. A run writes its own page when it ends, and new curves at checkpoints.
    Encoders that are no runs get the same page without curves; these need `images`.

    Args:
        run: run folders; or checkpoints, timm:NAME and hf:NAME.
        out: the page to write (default: report.html in the run folder, or here).
        images: images to look at (default: those that the run was trained on).
    """
    from flexpredict.reports import write_report

    return ReportResult(write_report(as_list(run), None if out is None else Path(out), images))
