"""The parts of the demo: for each row of its table and each seed an encoder, and what there is of it on disk."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flexpredict.demo.recipe import ARMS, Protocol, recipe_values
from flexpredict.files import write_text_atomically
from flexpredict.runs.metrics import read_records

PIXELS, UNTRAINED = "raw pixels", "untrained"
ROWS = (PIXELS, UNTRAINED, *ARMS)


@dataclass(frozen=True)
class Task:
    """An encoder to be pre-trained, unless it is none of the arms, and to be measured.

    Args:
        row: of the table.
        seed: of the recipe.
        steps: to train, 0 for none.
        recipe: values of the encoder's recipe.
        measured_images: images whose features are needed to measure it, counting each shift.
        out: folder of the demo.
    """

    row: str
    seed: int
    steps: int
    recipe: dict[str, Any]
    measured_images: int
    out: Path

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"

    @property
    def run_folder(self) -> Path:
        return self.out / f"seed-{self.seed}" / self.row.replace(" ", "-")

    @property
    def begun(self) -> bool:
        return (self.run_folder / "config.yaml").is_file()

    @property
    def done(self) -> bool:
        return self._measured.is_file()

    @property
    def work(self) -> int:
        """In images trained on; to measure one takes about half as long, with all probes."""
        return self.steps * self._batch_size + self.measured_images // 2

    def work_done(self) -> int:
        if self.done:
            return self.work
        logged = read_records(self.run_folder / "metrics.jsonl")
        return int(logged[-1]["step"]) * self._batch_size if logged else 0

    def warnings(self) -> list[str]:
        """Of the training."""
        return [str(record["text"]) for record in read_records(self.run_folder / "warnings.jsonl")]

    def save(self, numbers: dict[str, float]) -> None:
        self._measured.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self._measured, json.dumps(numbers, indent=2) + "\n")

    def numbers(self) -> dict[str, float]:
        """What was measured; the task must be done."""
        numbers: dict[str, float] = json.loads(self._measured.read_text(encoding="utf-8"))
        return numbers

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "out": str(self.out)})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        values = json.loads(text)
        return cls(**{**values, "out": Path(values["out"])})

    @property
    def _batch_size(self) -> int:
        return int(self.recipe["batch_size"])

    @property
    def _measured(self) -> Path:
        return self.run_folder.with_suffix(".json")


def plan_tasks(out: Path, steps: int, seeds: Sequence[int], protocol: Protocol) -> list[Task]:
    """The long ones first, seed by seed, so that two processes end at about the same time."""

    def task(row: str, seed: int) -> Task:
        arm = row if row in ARMS else next(iter(ARMS))
        recipe = recipe_values(arm, steps, seed, protocol)
        return Task(row, seed, steps if row in ARMS else 0, recipe, protocol.images, out)

    return [
        *(task(arm, seed) for seed in seeds for arm in ARMS),
        *(task(row, seeds[0]) for row in (UNTRAINED, PIXELS)),
    ]
