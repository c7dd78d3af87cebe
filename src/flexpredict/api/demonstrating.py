"""`demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flexpredict.demo.recipe import MINUTES, SEEDS, STEPS
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import Checked, ranged
from flexpredict.showing import SimpleResult, numbers_table, say


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Checked):
    """Settings of `demo`.

    Args:
        out: folder for the runs, results.json and report.html.
        steps: steps of each run; fewer give a quick look.
        seeds: runs of each arm (by default as many as fit into six minutes, at most 5).
        seed: the first seed; weights, order of data and masks follow from it.
        overwrite: start over; the earlier demo is moved to OUT.1.
    """

    out: str | Path = "demo"
    steps: int = ranged(STEPS, least=1)
    seeds: int | None = ranged(None, least=1)
    seed: int = ranged(0, least=0)
    overwrite: bool = False


@dataclass(frozen=True)
class DemoResult(SimpleResult):
    """The demo's results, as in results.json, and the page of its runs. The demo prints its own table."""

    results: dict[str, Any]
    page: Path

    @property
    def files(self) -> list[Path]:
        return [self.page]

    def table(self) -> Table:
        """Means over the seeds, in percent."""
        measured = self.results["percent"].items()
        return numbers_table(
            {row: {name: f"{value:.1f}" for name, value in cells.items()} for row, cells in measured}
        )

    def to_dict(self) -> dict[str, Any]:
        return self.results


@takes_fields_of(DemoSettings)
def demo(asked: DemoSettings) -> DemoResult:
    """Pre-train with sin-cos and with stochastic positions (StoP) on the built-in scenes, and compare the encoders.

    Also measures an untrained encoder and raw pixels. Offline; about six minutes on two CPU cores. If it is
    interrupted, the same command continues it.
    """
    from flexpredict.demo.running import run_demo
    from flexpredict.reports.writing import write_comparison

    seeds = range(asked.seed, asked.seed + (asked.seeds or SEEDS))
    minutes = None if asked.seeds else MINUTES
    try:
        results = run_demo(
            Path(asked.out), steps=asked.steps, seeds=seeds, minutes=minutes, overwrite=asked.overwrite
        )
    except KeyboardInterrupt:
        say(Console(stderr=True), "\nStopped; finished work is kept. Run the same command again to continue.")
        raise
    return DemoResult(results, write_comparison(Path(asked.out), asked.seed))
