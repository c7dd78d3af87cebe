"""The HTML page of runs and encoders."""

from flexpredict.reports.page import write_report

__all__ = ["write_report"]
