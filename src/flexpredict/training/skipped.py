"""The list of images that could not be read: each once, whichever rank met it. Too many stop the run."""

import json
import math
from collections.abc import Iterable
from pathlib import Path

from lightning_fabric import Fabric

from flexpredict.data.decoding import UnreadableImage
from flexpredict.errors import UserError
from flexpredict.runs.metrics import read_records
from flexpredict.training.engine import gather
from flexpredict.training.plan import Plan

_SHOWN = 3


class SkippedImages:
    """The images skipped so far; `skipped.jsonl` has a line for each."""

    def __init__(self, fabric: Fabric, path: Path, plan: Plan | None = None) -> None:
        """plan: its `max_skipped` is the limit; without a plan there is none."""
        self._fabric, self._path, self._plan = fabric, path, plan
        self._known = {record["path"]: record["reason"] for record in read_records(path)}
        self._new: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, skipped: Iterable[UnreadableImage]) -> None:
        """Add images that this rank could not read."""
        self._new.update({image.name: image.reason for image in skipped if image.name not in self._known})

    def settle(self, step: int) -> None:
        """Write down what all ranks skipped since the last call, and stop all of them if it is too much."""
        found = {name: reason for new in gather(self._fabric, self._new) for name, reason in new.items()}
        found = {name: reason for name, reason in found.items() if name not in self._known}
        self._new = {}
        if not found:
            return
        self._known |= found
        if self._fabric.is_global_zero:
            with self._path.open("a", encoding="utf-8") as file:
                for name, reason in found.items():
                    file.write(json.dumps({"step": step, "path": name, "reason": reason}) + "\n")
        if self._plan is not None:
            self._refuse_too_many(step, self._plan)

    def _refuse_too_many(self, step: int, plan: Plan) -> None:
        limit, images = plan.recipe.max_skipped, plan.images
        # For each skipped image, another was tried.
        tried = step * plan.recipe.batch_size + len(self._known)
        if images is not None:
            tried = min(tried, images)
        allowed = limit * tried
        if tried != images:
            # A part of the images may have more broken ones by chance: three standard deviations more.
            allowed += 3 * math.sqrt(max(1.0, allowed))
        if len(self._known) > allowed:
            examples = "; ".join(f"{name}: {reason}" for name, reason in list(self._known.items())[:_SHOWN])
            raise UserError(
                f"{len(self._known)} of the first {tried} images could not be read, more than {limit:.0%} "
                f"(max_skipped). All are listed in {self._path}; for example {examples}. To train on "
                f"the others, continue with resume=True and max_skipped={min(1.0, math.ceil(10 * limit + 1) / 10):g}."
            )
