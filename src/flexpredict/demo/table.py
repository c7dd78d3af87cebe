"""The table of the demo: means over seeds, paired differences, and in words what they show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flexpredict.demo.tasks import PIXELS, ROWS, UNTRAINED
from flexpredict.evaluation.results import mean_and_interval

MEASURES = {
    "class_all_labels": "class, all labels",
    "class_1_percent": "class, 1 % labels",
    "class_knn": "class, k-NN",
    "count": "number of objects",
    "distance": "nearest distance",
    "location_share": "location share",
    "lost_half_patch": "lost, 1/2 patch shift",
    "lost_patch": "lost, 1 patch shift",
}
_FIRST_OF_LOCATION = "location_share"
_EXPLANATION = (
    "In percent. Linear probes on frozen features, except for k-NN, on test scenes. Location share: how much of the "
    "variance of patch features only tells where the patch is. Lost: points of class accuracy that the "
    "probe loses when scenes are shifted. Difference: StoP - sin-cos."
)


@dataclass(frozen=True)
class Difference:
    """Of StoP to sin-cos: the mean over seeds, and half of its 95 % interval, which one seed does not have."""

    mean: float
    half: float | None

    @property
    def more_than_chance(self) -> bool:
        return self.half is not None and abs(self.mean) > self.half

    def __str__(self) -> str:
        if self.half is None:
            return f"{self.mean:+.1f}"
        return f"{self.mean:+.1f} ± {self.half:.1f} {'*' if self.more_than_chance else ' '}"


@dataclass(frozen=True)
class Comparison:
    """What was measured: for each row, the numbers of each seed in the same order."""

    measured: Mapping[str, Sequence[Mapping[str, float]]]

    @property
    def seeds(self) -> int:
        return len(self.measured["StoP"])

    def mean(self, row: str, measure: str) -> float:
        values = [numbers[measure] for numbers in self.measured[row]]
        return sum(values) / len(values)

    def difference(self, measure: str) -> Difference:
        pairs = zip(self.measured["StoP"], self.measured["sin-cos"], strict=True)
        return Difference(*mean_and_interval([stop[measure] - sincos[measure] for stop, sincos in pairs]))

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        differences = {measure: self.difference(measure) for measure in MEASURES}
        return {
            "percent": {row: {measure: round(self.mean(row, measure), 3) for measure in MEASURES} for row in ROWS},
            "stop_minus_sincos": {
                measure: {
                    "mean": round(difference.mean, 3),
                    "half_of_95_percent_interval": None if difference.half is None else round(difference.half, 3),
                    "more_than_chance": difference.more_than_chance,
                }
                for measure, difference in differences.items()
            },
            "by_seed": {row: list(numbers) for row, numbers in self.measured.items()},
        }

    def in_words(self) -> str:
        """Two sentences, and how far they can be trusted."""
        accuracy = {row: self.mean(row, "class_all_labels") for row in ROWS}
        share = {row: self.mean(row, "location_share") for row in ("sin-cos", "StoP")}
        learned = (
            f"Pre-training takes class accuracy with all labels from {accuracy[UNTRAINED]:.1f} % (untrained) to "
            f"{accuracy['sin-cos']:.1f} % with sin-cos positions and {accuracy['StoP']:.1f} % with StoP; raw pixels "
            f"give {accuracy[PIXELS]:.1f} %."
        )
        located = (
            f"Of what patch features tell, {share['StoP']:.0f} % is only the place with StoP and "
            f"{share['sin-cos']:.0f} % with sin-cos"
        )
        if self.seeds == 1:
            return f"{learned}\n{located}.\nOne seed: differences of a few points may be chance (--seeds 3 tells)."
        told = [title for measure, title in MEASURES.items() if self.difference(measure).more_than_chance]
        certain = f"StoP differs from sin-cos by more than chance in: {'; '.join(told) or 'nothing'}"
        return f"{learned}\n{located}; {certain}.\n{self._caution()}"

    def _caution(self) -> str:
        caution = f"± is half the 95 % interval over {self.seeds} paired seeds, * marks what is more than chance."
        if self.seeds == 2:
            caution += (
                " Two seeds make wide intervals: only differences six times as large as what the seeds differ by are "
                "marked, so there may well be others."
            )
        return caution


def print_comparison(console: Console, comparison: Comparison) -> None:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)  # 80 columns are enough
    table.add_column("")
    for heading in (*ROWS, "difference"):
        table.add_column(heading, justify="right")
    for measure, title in MEASURES.items():
        if measure == _FIRST_OF_LOCATION:
            table.add_section()
        means = (f"{comparison.mean(row, measure):.1f}" for row in ROWS)
        table.add_row(title, *means, str(comparison.difference(measure)))
    console.print(table)
    console.print(f"{_EXPLANATION}\n\n{comparison.in_words()}\n", highlight=False)
