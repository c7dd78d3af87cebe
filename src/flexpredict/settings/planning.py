"""What `plan` takes: a recipe, and what it is to run on."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flexpredict.settings.ranges import ranged
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.run import Names

if TYPE_CHECKING:
    NamesOrCount = Names | int
else:
    NamesOrCount = Names  # a number on a command line is text


@dataclass(kw_only=True)
class PlanSettings(Recipe):
    """A recipe, and what it is to run on.

    Args:
        data: the number of images; or images, as for pretrain.
        config: a recipe file, or a recipe that comes along: laptop, vit_b16, vit_l16, vit_h14, vit_h16; settings that
            are given beside it override it.
        on: accelerators to reckon for: rtx3090, rtx4090, l4, l40s, a100-40gb, a100-80gb, h100, h200, b200, mi300x.
        utilization: share of an accelerator's peak speed that is assumed; well-tuned training of ViTs reaches 0.3 to
            0.5.
        memory: gigabytes of a device, to say which batch fits into it.
        measure: measure some steps on this machine.
    """

    data: NamesOrCount | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    config: str | Path | None = None
    on: list[str] = field(default_factory=lambda: ["rtx4090", "a100-80gb", "h100"])
    utilization: float = ranged(0.4, above=0, most=1)
    memory: float | None = ranged(None, above=0)
    measure: bool = True
