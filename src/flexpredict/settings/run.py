"""Settings of the functions that use a recipe: `pretrain` and `plan` (for `ablate`, see ablation.py)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from flexpredict.settings.ranges import ranged
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.typed_values import typed_values

# In Python, paths and a number of images are accepted as well; a command line and config.yaml give text.
if TYPE_CHECKING:
    Names: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
    NamesOrCount: TypeAlias = Names | int
else:
    Names = NamesOrCount = str | list[str]


def as_list(names: Names) -> list[str]:
    """One name or several, as text."""
    return [fspath(name) for name in ([names] if isinstance(names, str | PathLike) else names)]


@dataclass(kw_only=True)
class RecipeFile:
    """The file that a recipe is read from.

    Args:
        config: a recipe file, or a built-in recipe: laptop, vit_b16, vit_l16, vit_h14, vit_h16; other settings
            override it.
    """

    config: str | Path | None = None


@dataclass(kw_only=True)
class RunSettings(Recipe, RecipeFile):
    """A recipe, and the folder of its run.

    Args:
        out: the run folder to create.
        resume: continue the interrupted run in `out` with its own recipe; the images may have moved. More `epochs`
            make it longer: from then on, its schedules are those of the longer run.
        overwrite: replace the run in `out`, which is moved to OUT.1.
        dry_run: show the plan, how long it would take, how much memory, and some masks, and start nothing.
    """

    data: Names | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    out: str | Path = field(default="runs/pretrain", kw_only=False)
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False


@dataclass(kw_only=True)
class PlanSettings(Recipe, RecipeFile):
    """A recipe, and the hardware to estimate its cost for.

    Args:
        data: the number of images; or images, as for pretrain.
        on: accelerators to estimate for: rtx3090, rtx4090, l4, l40s, a100-40gb, a100-80gb, h100, h200, b200, mi300x.
        utilization: assumed share of an accelerator's peak speed; well-tuned training of ViTs reaches 0.3 to 0.5.
        memory: memory of a device in gigabytes, to find how many images fit at a time.
        measure: measure a few steps on this machine.
    """

    data: NamesOrCount | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    on: list[str] = field(default_factory=lambda: ["rtx4090", "a100-80gb", "h100"])
    utilization: float = ranged(0.4, above=0, most=1)
    memory: float | None = ranged(None, above=0)
    measure: bool = True


def split_values(source: Callable[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Typed values, split into those of the recipe and all others. source: the dataclass that declares both."""
    values, names = typed_values(source, given), {one.name for one in fields(Recipe)}
    recipe = {name: value for name, value in values.items() if name in names}
    return recipe, {name: value for name, value in values.items() if name not in names}
