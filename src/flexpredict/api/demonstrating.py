"""`demo`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from flexpredict.showing import CommandResult, numbers_table


@dataclass(frozen=True)
class DemoResult(CommandResult):
    """Accuracies of the encoders that the demo compares, and how they were measured."""

    saved: dict[str, Any]

    def tables(self) -> list[tuple[str, Table]]:
        return []  # shown at the end of the demo

    def table(self) -> Table:
        rows = self.saved["accuracy_percent"]
        return numbers_table(
            {arm: {name: f"{value:.1f}" for name, value in row.items()} for arm, row in rows.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        return self.saved


def demo(*, out: str | Path = "demo", steps: int | None = None, seed: int = 0) -> DemoResult:
    """See it work: pre-train with sin-cos and with stochastic positions on the built-in scenes, and compare both.

    An untrained encoder stands beside them. Offline; about six minutes on two CPU cores.

    Args:
        out: folder for the runs and results.json.
        steps: optimizer steps of each run; fewer give a quick look (default: 2100).
        seed: seed of weights, order, crops, masks and noise.
    """
    from flexpredict.demo import run_demo

    return DemoResult(run_demo(Path(out), steps=steps, seed=seed))
