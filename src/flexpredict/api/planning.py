"""`plan`."""

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flexpredict.errors import UserError
from flexpredict.progress import duration
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.recipe import Precision, Recipe
from flexpredict.settings.run import PlanSettings, split_values
from flexpredict.showing import SimpleResult, facts_table, numbers_table
from flexpredict.training.recipe_parser import make_recipe

if TYPE_CHECKING:
    from flexpredict.costs.estimate import Estimate
    from flexpredict.data.sources.opening import ImageSource, ImageStream

_GIGABYTE = 1e9


@dataclass(frozen=True)
class Hardware:
    """What the run costs on some hardware."""

    devices: int  # how many work together
    precision: Precision  # the recipe's, or what pretrain chooses there
    images_per_second: float  # of all of them
    seconds: float  # of the whole run
    largest_batch: int | None = None  # images at a time that fit into the memory of one; None where that is not known


@dataclass(frozen=True)
class PlanResult(SimpleResult):
    """What a run costs.

    Args:
        estimate: parameters, operations and memory.
        hardware: time and largest batch, by the name of the hardware.
        utilization: assumed share of the peak speed of accelerators.
        memory: gigabytes that the largest batch was to fit into, if given.
    """

    estimate: "Estimate"
    hardware: dict[str, Hardware]
    utilization: float
    memory: float | None = None

    def table(self) -> Table:
        """The facts that matter most."""
        return facts_table(self._facts())

    def tables(self) -> list[tuple[str, Table | None]]:
        parts = {
            name: {
                "parameters, M": f"{part.parameters / 1e6:,.2f}",
                "forward, GFLOP": f"{part.forward / 1e9:,.2f}",
                "with backward, GFLOP": f"{part.operations / 1e9:,.2f}",
            }
            for name, part in self.estimate.parts.items()
        }
        memory = dataclasses.asdict(self.estimate.memory())
        sizes = {"GB": {name: f"{size / _GIGABYTE:,.2f}" for name, size in memory.items()}}
        tables: list[tuple[str, Table | None]] = [("", self.table()), ("For each image:", numbers_table(parts))]
        tables.append((f"Memory of a device with {self.estimate.images_at_a_time} images:", numbers_table(sizes)))
        if self.hardware:
            rows = {name: self._cells(one) for name, one in self.hardware.items()}
            title = f"Time, with accelerators at {self.utilization:.0%} of their peak, without reading images:"
            tables.append((title, numbers_table(rows)))
        return tables

    def to_dict(self) -> dict[str, Any]:
        estimate, recipe = self.estimate, self.estimate.plan.recipe
        fits = None if self.memory is None else estimate.largest_batch(self.memory)
        return {
            "model": recipe.model,
            "method": recipe.method,
            "image_size": recipe.image_size,
            "patch_size": recipe.patch_size,
            "precision": recipe.precision,
            "images": estimate.plan.samples,
            "epochs": recipe.epochs,
            "steps": estimate.plan.steps,
            "batch_size": recipe.batch_size,
            "devices": estimate.ranks,
            "context_patches": estimate.context,
            "predictions": estimate.predicted,
            "operations_per_image": estimate.operations,
            "parts": {name: dataclasses.asdict(part) for name, part in estimate.parts.items()},
            "images_at_a_time": estimate.images_at_a_time,
            "bytes": dataclasses.asdict(estimate.memory()),
            "memory": self.memory,
            "largest_batch": fits,
            "utilization": self.utilization,
            "hardware": {name: dataclasses.asdict(one) for name, one in self.hardware.items()},
        }

    def _facts(self) -> dict[str, str]:
        known = self.to_dict()
        total = known["images"] * known["epochs"] * known["operations_per_image"]
        facts = {
            "encoder": f"{known['model']}, {known['image_size']}, patches of {known['patch_size']}",
            "length": f"{known['epochs']:g} epochs of {known['images']:,} images: {known['steps']:,} steps",
            "batch": f"{known['batch_size']} on {known['devices']} device(s), {known['precision']}",
            "masks": f"{known['context_patches']:.1f} patches of context, {known['predictions']:.1f} predictions",
            "operations": f"{known['operations_per_image'] / 1e9:,.1f} GFLOP an image, {total:.2g} FLOP in all",
            "memory": f"{known['bytes']['peak'] / _GIGABYTE:,.1f} GB a device",
        }
        if self.memory is not None:
            facts[f"fits {self.memory:g} GB"] = f"{known['largest_batch']:,} images at a time"
        return facts

    def _cells(self, one: Hardware) -> dict[str, str]:
        return {
            "devices": str(one.devices),
            "images/s": f"{one.images_per_second:,.0f}"
            if one.images_per_second >= 10
            else f"{one.images_per_second:.2g}",
            "time": duration(one.seconds),
            "largest batch a device": "" if one.largest_batch is None else f"{one.largest_batch:,}",
        }


@takes_some_fields_of(PlanSettings)
def plan(given: dict[str, Any]) -> PlanResult:
    """Estimate what a run costs before it starts: parameters, operations, memory and time.

    Operations and memory follow from the sizes of the networks and from the recipe's own masks. The time on this
    machine follows from a few measured steps, that on accelerators from their peak speed.
    """
    if isinstance(given.get("data"), int):
        given["data"] = str(given["data"])
    values, others = split_values(PlanSettings, given)
    asked = PlanSettings(**others)
    recipe = make_recipe(values, asked.config)
    check_ranges(recipe)
    check_ranges(asked)
    if recipe.minutes is not None:
        raise UserError(f"minutes={recipe.minutes:g} is for pretrain, which measures the run itself. Give epochs=….")
    from flexpredict.costs.accelerators import accelerator_named

    accelerators = {name: accelerator_named(name) for name in asked.on}
    import torch

    from flexpredict.costs.estimate import estimate
    from flexpredict.costs.speed import measure_speed
    from flexpredict.training.plan import make_plan
    from flexpredict.training.precision import is_cuda
    from flexpredict.training.starting_weights import adopted, initial_weights

    ranks, images = _ranks(recipe), _images(recipe)
    device = torch.device("cuda" if is_cuda(recipe.accelerator) else "cpu")
    if recipe.init_from is not None:
        recipe = adopted(recipe, initial_weights(recipe), images)
    estimated = estimate(make_plan(recipe, images, device, ranks), ranks)
    settled = estimated.plan.recipe
    hardware = {}
    if asked.measure:
        seconds = estimated.seconds_here(measure_speed(settled, device))
        hardware["this machine"] = Hardware(1, settled.precision, estimated.images / seconds, seconds)
    precision = recipe.precision or "bf16-mixed"
    for name, accelerator in accelerators.items():
        seconds = estimated.seconds_on(accelerator, asked.utilization, precision)
        fits = estimated.largest_batch(accelerator.memory, precision)
        hardware[name] = Hardware(ranks, precision, estimated.images / seconds, seconds, fits)
    return PlanResult(estimated, hardware, asked.utilization, asked.memory)


def _images(recipe: Recipe) -> "ImageSource | ImageStream":
    """The images that are named, or as many blank ones as a number says."""
    if recipe.data is None:
        raise UserError("How many images are there? Give their number, data=1281167, or name them.")
    import torch

    from flexpredict.data.sources.opening import ArraySource, open_images

    data = recipe.data
    if isinstance(data, str) and data.replace("_", "").isdecimal() and not os.path.exists(data):  # noqa: PTH110
        count = int(data)
        if count < 1:
            raise UserError(f"data={data} must be at least one image.")
        return ArraySource("images", torch.zeros(1, 224, 224, 3, dtype=torch.uint8).expand(count, -1, -1, -1))
    return open_images(data)


def _ranks(recipe: Recipe) -> int:
    devices = str(recipe.devices)
    if devices != "auto" and not (devices.isdecimal() and int(devices)):
        raise UserError(f"devices={devices} does not work: give a number, or auto.")
    return recipe.num_nodes * (1 if devices == "auto" else int(devices))
