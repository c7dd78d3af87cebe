"""`flexpredict report`."""

from pathlib import Path

from flexpredict.commands import command_parser
from flexpredict.report import write_report


def run(arguments: list[str]) -> int:
    parser = command_parser("report", "RUN", "Write the HTML page of a run.")
    parser.add_argument("run", type=Path, help="a run folder")
    print(write_report(parser.parse_args(arguments).run))
    return 0
