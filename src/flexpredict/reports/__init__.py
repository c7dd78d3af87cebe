"""The HTML page of a run."""

from flexpredict.reports.page import write_report

__all__ = ["write_report"]
