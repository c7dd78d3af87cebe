"""The speed of a step on this machine, measured with a few blocks of the encoder and of the predictor.

All blocks of a network do the same work, so two of each are enough; the whole model might not even fit into memory.
Masks, widths and precision are those of the recipe. Images are random, so the time to read them is not included.
"""

import dataclasses
import time
from dataclasses import dataclass

import torch

from flexpredict.costs.passes import flops_by_part, mask_grid, passes_of, tokens_of
from flexpredict.masking import sample_masks
from flexpredict.methods.choosing import build_method
from flexpredict.randomness import sample_keys, stream_key
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.settings.recipe import SettledRecipe
from flexpredict.training.optimizer import build_optimizers
from flexpredict.training.precision import low_precision

_BLOCKS = 2
_WORK = {"cpu": 2e10, "cuda": 2e12}  # operations of a measured step: a fraction of a second
_STEPS = 4  # the first of which does not count


@dataclass(frozen=True)
class Speed:
    """Seconds for each operation of forward and backward, and of the update for each parameter that is trained."""

    per_operation: float
    per_parameter: float

    def step(self, operations: float, trained: int) -> float:
        return operations * self.per_operation + trained * self.per_parameter


def measure_speed(recipe: SettledRecipe, device: torch.device) -> Speed:
    """Measure the speed of this device, with the recipe's networks shortened."""
    short = _shortened(recipe)
    model = build_method(short, EncoderSpec.of_config(dataclasses.asdict(short)).build(short.seed)).to(device)
    optimizers = build_optimizers(short.optimizer, model)
    encoder = model.context_encoder
    masks = sample_masks(short.masking, mask_grid(model, encoder.grid), stream_key(0, "speed"), short.batch_size)
    operations = sum(flops_by_part(passes_of(model, tokens_of(model, masks, encoder.grid))).values())
    most = short.batch_size // short.accumulate
    images = max(1, min(most, round(_WORK.get(device.type, _WORK["cpu"]) / operations)))

    masks = masks.rows(0, images).to(device)
    size = (side * patch for side, patch in zip(encoder.grid, encoder.patch_size, strict=True))
    pixels = torch.randn(images, 3, *size, device=device)
    streams = torch.arange(images * short.masking.contexts_per_image).view(images, -1)
    keys = sample_keys(stream_key(0, "noise"), streams).to(device)

    passing, updating = 0.0, 0.0
    for number in range(_STEPS):
        started = _now(device)
        with low_precision(device, short.precision):
            loss = model(pixels, masks.context, masks.targets, keys).loss
        loss.backward()
        passed = _now(device)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        model.after_step(0.99)
        if number:
            passing, updating = passing + passed - started, updating + _now(device) - passed
    counted = _STEPS - 1
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Speed(passing / counted / (images * operations), updating / counted / trained)


def _shortened(recipe: SettledRecipe) -> SettledRecipe:
    targets, predictor = recipe.targets, recipe.predictor
    return dataclasses.replace(
        recipe,
        model_options={**recipe.model_options, "depth": _BLOCKS},
        targets=dataclasses.replace(targets, layers=targets.layers and min(targets.layers, _BLOCKS)),
        predictor=dataclasses.replace(predictor, depth=predictor.depth and min(predictor.depth, _BLOCKS)),
    )


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
