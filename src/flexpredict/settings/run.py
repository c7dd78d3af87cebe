"""What `pretrain` takes: a recipe, and the folder of its run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from flexpredict.settings.recipe import Recipe

if TYPE_CHECKING:
    Names: TypeAlias = str | Path | Sequence[str | Path]
else:
    Names = str | list[str]  # as a command line gives them


@dataclass(kw_only=True)
class RunSettings(Recipe):
    """A recipe, and the folder of its run.

    Args:
        out: the run folder to make.
        config: a recipe file, or a recipe that comes along: laptop, vit_b16, vit_l16, vit_h14, vit_h16; settings that
            are given beside it override it.
        resume: continue the run in `out`, with the recipe that it has; the images may have moved. More `epochs` make
            it longer: from there on, its schedules are those of the longer run.
        overwrite: replace the run in `out`, which is moved to OUT.1.
        dry_run: show the plan, how long it would take, how much memory, and some masks, and start nothing.
    """

    # Paths are welcome here; a recipe holds names, as config.yaml does.
    data: Names | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    out: str | Path = field(default="runs/pretrain", kw_only=False)
    config: str | Path | None = None
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False
