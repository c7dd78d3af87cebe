"""What a planned run costs: parameters, operations, memory and time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from flexpredict.costs.accelerators import Accelerator
from flexpredict.costs.memory import Memory, StepMemory
from flexpredict.costs.passes import (
    CONTEXT,
    PREDICTOR,
    TARGET,
    Pass,
    Tokens,
    flops_by_part,
    pass_flops,
    passes_of,
    sample_tokens,
)
from flexpredict.costs.speed import Speed
from flexpredict.methods.method import Method
from flexpredict.settings.recipe import Precision
from flexpredict.training.plan import Plan

_SAMPLED_STEPS = 32
_GIGABYTE = 1e9


@dataclass(frozen=True)
class Part:
    """One of the networks."""

    parameters: int  # how many it has
    forward: float  # operations for each image, forward
    operations: float  # operations for each image, forward and backward


@dataclass(frozen=True)
class Estimate:
    """What a run costs."""

    plan: Plan  # of the run
    ranks: int  # devices that share a batch
    parts: dict[str, Part]  # the networks by name
    trained: int  # parameters that are trained
    recomputed: float  # operations for each image that are done again to save memory
    context: float  # patches in a context, on average
    predicted: float  # predictions for each image, on average
    step_memory: StepMemory  # memory of a device as a function of its images

    @property
    def operations(self) -> float:
        """Operations for each image, forward and backward."""
        return sum(part.operations for part in self.parts.values())

    @property
    def images_at_a_time(self) -> int:
        """Images at a time on each device."""
        recipe = self.plan.recipe
        return recipe.batch_size // self.ranks // recipe.accumulate

    @property
    def shards(self) -> int:
        """Parts that weights, gradients and optimizer state are split into; 1 if each device has the whole."""
        return self.step_memory.sharing.shards

    @property
    def images(self) -> int:
        """Images seen in the whole run."""
        return self.plan.steps * self.plan.recipe.batch_size

    def memory(self) -> Memory:
        """Memory of each device at the recipe's batch size."""
        return self.step_memory.of(self.images_at_a_time)

    def on(self, device: str, precision: Precision) -> "Estimate":
        """The same run on another kind of device, as torch calls it, with the precision that it would have there."""
        recipe = replace(self.plan.recipe, precision=precision)
        step_memory = replace(self.step_memory, recipe=recipe, device=device)
        return replace(self, plan=replace(self.plan, recipe=recipe), step_memory=step_memory)

    def seconds_on(self, accelerator: Accelerator, utilization: float) -> float:
        """Seconds of the whole run on all its devices."""
        work = self.images * (self.operations + self.recomputed)
        return work / (self.ranks * utilization * accelerator.peak(self.plan.recipe.precision))

    def seconds_here(self, speed: Speed, devices: int) -> float:
        """Seconds of the whole run on this machine alone. speed: of one of its devices."""
        work = self.plan.recipe.batch_size * (self.operations + self.recomputed) / devices
        return self.plan.steps * speed.step(work, self.trained)

    def largest_batch(self, gigabytes: float) -> int:
        """Images at a time that fit on a device with this much memory."""
        return self.step_memory.largest_batch(_GIGABYTE * gigabytes)


def estimate(plan: Plan, device: str, ranks: int = 1) -> Estimate:
    """Computed from the sizes of the networks and from masks like those of the run. device: the kind it is for."""
    with torch.device("meta"):  # sizes without weights
        model = plan.build_model()
    sampled = _sampled_passes(plan, model)
    passes = [one for one, _ in sampled]
    longest = max(passes, key=lambda some: sum(flops_by_part(some).values()))
    parts = {
        name: Part(parameters, *(_mean_flops(passes, name, backward) for backward in (False, True)))
        for name, parameters in _parameters(model, [one.part for one in longest]).items()
    }
    again = (
        (part.forward for name, part in parts.items() if name != TARGET) if plan.recipe.checkpoint_activations else ()
    )
    return Estimate(
        plan,
        ranks,
        parts,
        recomputed=sum(again),
        trained=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        context=sum(tokens.context for _, tokens in sampled) / len(sampled),
        predicted=sum(tokens.predicted for _, tokens in sampled) / len(sampled),
        step_memory=StepMemory(model, longest, plan.recipe, device, ranks),
    )


def _sampled_passes(plan: Plan, model: Method) -> list[tuple[list[Pass], Tokens]]:
    recipe, side = plan.recipe, plan.recipe.patch_size
    grids = [(height // side, width // side) for height, width in plan.image_sizes]
    return [
        (passes_of(model, tokens), tokens)
        for grid in grids
        for tokens in sample_tokens(model, recipe.masking, grid, recipe.batch_size, _SAMPLED_STEPS)
    ]


def _mean_flops(passes: Sequence[Sequence[Pass]], part: str, backward: bool) -> float:
    counts = [pass_flops(one, backward) for some in passes for one in some if one.part == part]
    return sum(counts) / len(counts)


def _parameters(model: Method, parts: Sequence[str]) -> dict[str, int]:
    """Parameters of each part. Those of no other part count as the context encoder's."""
    named = {TARGET: "target_encoder", PREDICTOR: "predictor"}
    sizes = {part: _numbers(getattr(model, named[part])) for part in parts if part in named}
    return {CONTEXT: _numbers(model) - sum(sizes.values()), **sizes}


def _numbers(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
