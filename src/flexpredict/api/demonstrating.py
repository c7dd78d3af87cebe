"""`demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flexpredict.demo.recipe import SEEDS, STEPS
from flexpredict.errors import UserError
from flexpredict.showing import SimpleResult, numbers_table


@dataclass(frozen=True)
class DemoResult(SimpleResult):
    """What the demo measured, as results.json holds it, and the page of its runs. The demo prints its own table."""

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


def demo(
    *, out: str | Path = "demo", steps: int = STEPS, seeds: int = SEEDS, seed: int = 0, overwrite: bool = False
) -> DemoResult:
    """Pre-train with sin-cos and with stochastic positions (StoP) on the built-in scenes, and compare the encoders.

    An untrained encoder and raw pixels stand beside them. Offline; about six minutes on two CPU cores. If it is
    interrupted, the same command goes on.

    Args:
        out: folder for the runs, results.json and report.html.
        steps: steps of each run; fewer give a quick look.
        seeds: runs of each arm.
        seed: the first seed; weights, order of data and masks follow from it.
        overwrite: start over; the earlier demo is moved to OUT.1.
    """
    if seeds < 1:
        raise UserError(f"seeds={seeds} is too small. Use at least 1.")
    from flexpredict.demo.running import run_demo
    from flexpredict.reports import write_comparison

    try:
        saved = run_demo(Path(out), steps=steps, seeds=range(seed, seed + seeds), overwrite=overwrite)
    except KeyboardInterrupt:
        Console(stderr=True).print("\nStopped; what is done is kept. The same command goes on.", highlight=False)
        raise
    return DemoResult(saved, write_comparison(Path(out), seed))
