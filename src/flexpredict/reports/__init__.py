"""The HTML page of runs and encoders."""

from flexpredict.reports.writing import refresh_report, write_comparison, write_report

__all__ = ["refresh_report", "write_comparison", "write_report"]
