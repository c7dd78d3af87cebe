"""The table of what `evaluate segmentation` measured."""

from rich.table import Table

from flexpredict.evaluation.results import Result
from flexpredict.showing import numbers_table

_MOST_LINES = 30


class SegmentationResult(Result):
    """Shown as one line for each class, the largest first, and the means over all."""

    def table(self) -> Table:
        classes = self.details["classes"]
        heads = list(next(iter(classes.values()))["IoU"])
        largest = sorted(classes, key=lambda name: -classes[name]["pixels"])[:_MOST_LINES]
        rows = {
            name: {"pixels": f"{100 * classes[name]['pixels']:.1f}"}
            | {head: _percent(classes[name]["IoU"][head]) for head in heads}
            for name in sorted(largest, key=list(classes).index)
        }
        if len(largest) < len(classes):
            rows[f"({len(classes) - len(largest)} smaller classes)"] = {"pixels": "", **dict.fromkeys(heads, "")}
        for what in ("mIoU", "pixel accuracy"):
            rows[what] = {"pixels": ""} | {head: f"{self.numbers[f'{head} {what}']:.1f}" for head in heads}
        return numbers_table(rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
