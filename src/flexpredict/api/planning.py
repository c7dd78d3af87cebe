"""`plan`."""

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flexpredict.errors import UserError
from flexpredict.progress import duration
from flexpredict.settings.effects import refuse_without_effect
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.recipe import Precision, Recipe
from flexpredict.settings.run import PlanSettings, split_values
from flexpredict.showing import SimpleResult, facts_table, numbers_table
from flexpredict.training.recipe_parser import choose_length, make_recipe

if TYPE_CHECKING:
    from flexpredict.costs.estimate import Estimate
    from flexpredict.data.sources.opening import ImageSource, ImageStream

_GIGABYTE, _MEGABYTE = 1e9, 1e6
_HERE = "this machine"


@dataclass(frozen=True)
class Hardware:
    """Speed and time of the run on some hardware."""

    devices: int  # number of devices that work together
    precision: Precision  # the recipe's, or pretrain's choice there
    images_per_second: float  # of all devices
    seconds: float  # of the whole run
    largest_batch: int | None = None  # images at a time that fit into the memory of one device; None if unknown


@dataclass(frozen=True)
class PlanResult(SimpleResult):
    """The estimated cost of a run.

    Args:
        estimate: parameters, operations and memory, on devices of this machine's kind.
        accelerated: the same on accelerators, in the precision that they would use; None if no accelerator was named.
        hardware: time and largest batch, by the name of the hardware.
        utilization: assumed share of the peak speed of accelerators.
        memory: gigabytes for the largest batch, if given.
    """

    estimate: "Estimate"
    accelerated: "Estimate | None"
    hardware: dict[str, Hardware]
    utilization: float
    memory: float | None = None

    def table(self) -> Table:
        """The facts that matter most."""
        return facts_table(self._facts())

    def tables(self) -> list[tuple[str, Table | None]]:
        parts = {
            name: {
                "parameters, M": _digits(part.parameters / 1e6),
                "forward, GFLOP": _digits(part.forward / 1e9),
                "with backward, GFLOP": _digits(part.operations / 1e9),
            }
            for name, part in self.estimate.parts.items()
        }
        tables: list[tuple[str, Table | None]] = [("", self.table()), ("For each image:", numbers_table(parts))]
        images = _count(self.estimate.images_at_a_time, "image")
        title = f"Memory of a device with {images} at a time, without libraries (on a GPU about 1 GB):"
        tables.append((title, self._memory_table()))
        if self.hardware:
            rows = {name: self._cells(one) for name, one in self.hardware.items()}
            title = "Time, without reading images"
            if self.accelerated is not None:
                title += f"; accelerators at {self.utilization:.0%} of their peak, which small models do not reach"
            tables.append((f"{title}:", numbers_table(rows)))
        return tables

    def to_dict(self) -> dict[str, Any]:
        """All numbers. Memory of a device is in `bytes`; that of an accelerator in `accelerators`."""
        estimate, recipe = self.estimate, self.estimate.plan.recipe
        return {
            "model": recipe.model,
            "method": recipe.method,
            "image_size": recipe.image_size,
            "patch_size": recipe.patch_size,
            "images": estimate.plan.samples,
            "epochs": recipe.epochs,
            "steps": estimate.plan.steps,
            "batch_size": recipe.batch_size,
            "devices": estimate.ranks,
            "shards": estimate.shards,
            "context_patches": estimate.context,
            "predictions": estimate.predicted,
            "operations_per_image": estimate.operations,
            "parts": {name: dataclasses.asdict(part) for name, part in estimate.parts.items()},
            "images_at_a_time": estimate.images_at_a_time,
            "memory": self.memory,
            **self._on_device(estimate),
            "accelerators": None if self.accelerated is None else self._on_device(self.accelerated),
            "utilization": self.utilization,
            "hardware": {name: dataclasses.asdict(one) for name, one in self.hardware.items()},
        }

    def _on_device(self, estimate: "Estimate") -> dict[str, Any]:
        return {
            "precision": estimate.plan.recipe.precision,
            "bytes": dataclasses.asdict(estimate.memory()),
            "largest_batch": None if self.memory is None else estimate.largest_batch(self.memory),
        }

    def _facts(self) -> dict[str, str]:
        known, estimate = self.to_dict(), self.estimate
        total, again = known["images"] * known["epochs"] * known["operations_per_image"], estimate.recomputed
        facts = {
            "encoder": f"{known['model']}, {known['image_size']}, patches of {known['patch_size']}",
            "length": f"{known['epochs']:g} epochs of {known['images']:,} images: {known['steps']:,} steps",
            "batch": f"{known['batch_size']:,} images on {_count(estimate.ranks, 'device')}",
            "masks": f"{known['context_patches']:.1f} patches of context, {known['predictions']:.1f} predictions",
            "operations": f"{known['operations_per_image'] / 1e9:,.1f} GFLOP an image, {total:.2g} FLOP in all",
        }
        if again:
            facts["operations"] += f"; {again / 1e9:,.1f} GFLOP an image done again to save memory"
        peaks = (f"{_size(one.memory().peak)} a device ({name})" for name, one in self._devices().items())
        facts["memory"] = "; ".join(peaks)
        if estimate.shards > 1:
            facts["fsdp"] = (
                f"each of the {estimate.shards} devices of a machine holds its share of weights (also the target "
                "encoder's), gradients and the optimizer's state, and gathers those of the others block by block"
            )
            if estimate.plan.recipe.accumulate > 1:
                facts["fsdp"] += "; gradients are whole until the last part of a batch is done"
        return facts

    def _devices(self) -> dict[str, "Estimate"]:
        """By kind and precision: accelerators if any, and this machine's if it was measured or is the only one."""
        here = [self.estimate] if _HERE in self.hardware or self.accelerated is None else []
        there = [] if self.accelerated is None else [self.accelerated]
        return {_device_name(one): one for one in (*here, *there)}

    def _memory_table(self) -> Table:
        sizes = {name: dataclasses.asdict(one.memory()) for name, one in self._devices().items()}
        shards, in_parts = self.estimate.shards, self.estimate.plan.recipe.accumulate > 1
        shared = {"weights", "optimizer", *(() if in_parts else ("gradients",))} if shards > 1 else set()
        rows = {
            f"{part}, 1/{shards} each" if part in shared else part: {
                name: _size(size[part]) for name, size in sizes.items()
            }
            for part in next(iter(sizes.values()))
            if shards > 1 or part != "gathered"
        }
        if self.memory is not None:
            rows[f"images in {self.memory:g} GB"] = {
                name: f"{one.largest_batch(self.memory):,}" for name, one in self._devices().items()
            }
        return numbers_table(rows)

    def _cells(self, one: Hardware) -> dict[str, str]:
        return {
            "devices": str(one.devices),
            "precision": one.precision,
            "images/s": f"{one.images_per_second:,.0f}"
            if one.images_per_second >= 10
            else f"{one.images_per_second:.2g}",
            "time": duration(one.seconds),
            "images that fit a device": "" if one.largest_batch is None else f"{one.largest_batch:,}",
        }


def _device_name(estimate: "Estimate") -> str:
    precision = estimate.plan.recipe.precision
    if estimate.step_memory.device != "cpu":
        return f"GPU, {precision}"
    return "CPU, bf16 in linear layers" if precision == "bf16-mixed" else f"CPU, {precision}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number > 1)}"


def _digits(number: float) -> str:
    return f"{number:,.2f}" if number >= 1 else f"{number:.2g}"


def _size(size: float) -> str:
    return f"{size / _GIGABYTE:,.2f} GB" if size >= _GIGABYTE else f"{size / _MEGABYTE:,.1f} MB"


@takes_some_fields_of(PlanSettings)
def plan(given: dict[str, Any]) -> PlanResult:
    """Estimate what a run costs before it starts: parameters, operations, memory and time.

    Operations and memory follow from the sizes of the networks and from the recipe's own masks. The time on this
    machine follows from a few measured steps, that on accelerators from their peak speed; communication between
    devices is not counted. Settings that are left open get the values that pretrain would choose on this machine,
    except for the precision, which is that of each device.
    """
    if isinstance(given.get("data"), int):
        given["data"] = str(given["data"])
    values, others = split_values(PlanSettings, given)
    asked = PlanSettings(**others)
    recipe = choose_length(make_recipe(values, asked.config), given=values)
    check_ranges(recipe)
    check_ranges(asked)
    refuse_without_effect(recipe, values)
    if recipe.minutes is not None:
        raise UserError(f"minutes={recipe.minutes:g} is for pretrain, which measures the run itself. Give epochs=….")
    return plan_of(recipe, asked)


def plan_of(recipe: Recipe, asked: PlanSettings) -> PlanResult:
    """The cost of this recipe; its `minutes` are ignored."""
    from flexpredict.costs.accelerators import accelerator_named

    accelerators = {name: accelerator_named(name) for name in asked.on}
    import torch

    from flexpredict.costs.estimate import estimate
    from flexpredict.costs.speed import measure_speed
    from flexpredict.training.initial_weights import initial_weights
    from flexpredict.training.plan import make_plan
    from flexpredict.training.precision import is_cuda
    from flexpredict.training.starting_weights import adopted

    device = torch.device("cuda" if is_cuda(recipe.accelerator) else "cpu")
    ranks, images = _ranks(recipe, device.type), _images(recipe)
    if recipe.init_from is not None:
        recipe = adopted(recipe, initial_weights(recipe), images)
    estimated = estimate(make_plan(recipe, images, device, ranks), device.type, ranks)
    settled = estimated.plan.recipe
    hardware = {}
    if asked.measure:
        # Ranks on a CPU share its cores.
        devices = min(ranks, torch.cuda.device_count()) if device.type == "cuda" else 1
        seconds = estimated.seconds_here(measure_speed(settled, device), devices)
        hardware[_HERE] = Hardware(devices, settled.precision, estimated.images / seconds, seconds)
    accelerated = estimated.on("cuda", recipe.precision or "bf16-mixed") if accelerators else None
    for name, accelerator in accelerators.items():
        assert accelerated is not None
        seconds = accelerated.seconds_on(accelerator, asked.utilization)
        fits = accelerated.largest_batch(accelerator.memory)
        precision = accelerated.plan.recipe.precision
        hardware[name] = Hardware(ranks, precision, estimated.images / seconds, seconds, fits)
    return PlanResult(estimated, accelerated, hardware, asked.utilization, asked.memory)


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


def _ranks(recipe: Recipe, device: str) -> int:
    devices = str(recipe.devices)
    if devices == "auto":
        import torch

        return recipe.num_nodes * (torch.cuda.device_count() if device == "cuda" else 1)
    if not (devices.isdecimal() and int(devices)):
        raise UserError(f"devices={devices} does not work: give a number, or auto.")
    return recipe.num_nodes * int(devices)
