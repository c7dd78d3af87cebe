"""The table of the demo: means over seeds, paired differences, and a summary in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flexpredict.studies.ablations.summary import Estimate

PIXELS, UNTRAINED, SINCOS, STOP = ROWS = ("raw pixels", "untrained", "sin-cos", "StoP")
_ALL_LABELS, _SHARE = "linear, 100 % labels", "location share"
MEASURES = {
    _ALL_LABELS: "class, all labels",
    "linear, 1 % labels": "class, 1 % labels",
    "20-NN": "class, k-NN",
    "count": "number of objects",
    "distance": "nearest distance",
    _SHARE: "location share",
    "lost, 1/2 patch": "lost, 1/2 patch shift",
    "lost, 1 patch": "lost, 1 patch shift",
}
_ACCURACIES = tuple(MEASURES)[:5]
_EXPLANATION = (
    "In percent. Linear probes on frozen features, except for k-NN, on test scenes. Location share: how much of the "
    "variance of patch features is explained by the position of the patch. Lost: points of class accuracy "
    "that the probe loses when scenes are shifted. Difference: StoP - sin-cos."
)


@dataclass(frozen=True)
class Comparison:
    """The measured numbers: for each row, those of each seed in the same order."""

    measured: Mapping[str, Sequence[Mapping[str, float]]]

    @property
    def seeds(self) -> int:
        return len(self.measured[STOP])

    def mean(self, row: str, measure: str) -> float:
        return Estimate.of([numbers[measure] for numbers in self.measured[row]]).mean

    def difference(self, measure: str) -> Estimate:
        """StoP minus sin-cos, paired by seed."""
        pairs = zip(self.measured[STOP], self.measured[SINCOS], strict=True)
        return Estimate.of([stop[measure] - sincos[measure] for stop, sincos in pairs])

    def _pixels_are_best(self, measure: str) -> bool:
        """Whether raw pixels have the best accuracy; False for location share and losses."""
        others = (self.mean(row, measure) for row in ROWS if row != PIXELS)
        return measure in _ACCURACIES and self.mean(PIXELS, measure) > max(others)

    def describe(self) -> dict[str, Any]:
        """The comparison as plain values."""
        differences = {measure: self.difference(measure) for measure in MEASURES}
        return {
            "percent": {row: {measure: round(self.mean(row, measure), 3) for measure in MEASURES} for row in ROWS},
            "stop_minus_sincos": {
                measure: {
                    "mean": round(difference.mean, 3),
                    "half_of_95_percent_interval": None if difference.half is None else round(difference.half, 3),
                    "more_than_chance": bool(difference.sign),
                }
                for measure, difference in differences.items()
            },
            "by_seed": {row: list(numbers) for row, numbers in self.measured.items()},
        }

    def in_words(self) -> str:
        """A short summary, and how certain it is."""
        accuracy = {row: f"{self.mean(row, _ALL_LABELS):.1f} %" for row in ROWS}
        learned = (
            f"Pre-training takes class accuracy with all labels from {accuracy[UNTRAINED]} (untrained) to "
            f"{accuracy[SINCOS]} with sin-cos positions and {accuracy[STOP]} with StoP; raw pixels give "
            f"{accuracy[PIXELS]}."
        )
        ahead = [title for measure, title in MEASURES.items() if self._pixels_are_best(measure)]
        if ahead:
            learned += f" Raw pixels are better than every encoder here in: {'; '.join(ahead)}."
        located = (
            f"Position explains {self.mean(STOP, _SHARE):.0f} % of the variance of patch features with StoP, and "
            f"{self.mean(SINCOS, _SHARE):.0f} % with sin-cos"
        )
        if self.seeds == 1:
            return f"{learned}\n{located}.\nOne seed: differences of a few points may be chance. Use more `seeds`."
        told = [title for measure, title in MEASURES.items() if self.difference(measure).sign]
        certain = f"StoP differs from sin-cos by more than chance in: {'; '.join(told) or 'nothing'}"
        caution = f"± is half the 95 % interval over {self.seeds} paired seeds, * marks what is more than chance."
        if self.seeds == 2:
            caution += (
                " Two seeds give wide intervals: a difference is marked only if it is six times the gap between the "
                "seeds, so others may be real too."
            )
        return f"{learned}\n{located}; {certain}.\n{caution}"


def print_comparison(console: Console, comparison: Comparison) -> None:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)  # 80 columns are enough
    for heading in ("", *ROWS, "difference"):
        table.add_column(heading, justify="right" if heading else "left")
    for measure, title in MEASURES.items():
        if measure == _SHARE:
            table.add_section()
        difference = comparison.difference(measure)
        means = (f"{comparison.mean(row, measure):.1f}" for row in ROWS)
        table.add_row(title, *means, f"{difference.in_words('+')}{' *' if difference.sign else '  '}")
    console.print(table)
    console.print(f"{_EXPLANATION}\n\n{comparison.in_words()}\n", highlight=False)
