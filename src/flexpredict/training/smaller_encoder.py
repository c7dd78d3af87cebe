"""Suggests a smaller encoder that would see enough images in the same time."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from flexpredict.errors import UserError
from flexpredict.model.building import ModelFacts, model_facts
from flexpredict.settings.recipe import Recipe
from flexpredict.training.plan import Plan

_FEWEST_LAYERS = 4
_NARROWEST = 96
_SMALLEST_HEAD = 32
# How often a step works through the tokens of an image, where backward counts twice: the target encoder once through
# all of them, the context encoder three times through two fifths, the predictor for each of four targets three times
# through context and target, which are about half.
_ENCODER_PASSES = 1 + 3 * 0.4
_PREDICTOR_PASSES = 4 * 3 * 0.55
# Cost of norms, activations and sums per feature, in multiplications; fitted to steps of small encoders on a CPU.
_ELEMENTWISE = 650


@dataclass(frozen=True)
class Suggestion:
    """model_options of a smaller encoder, and about how many times as fast a step is with it."""

    model_options: dict[str, Any]
    speed: float

    @property
    def as_option(self) -> str:
        return f"model_options={json.dumps(self.model_options)}"


def suggest_smaller(
    recipe: Recipe, plan: Plan, data_wait: float, speed: float, plan_of: Callable[[Recipe], Plan]
) -> Suggestion | None:
    """The largest encoder that is `speed` times as fast, else the smallest possible one; None if none is smaller.

    data_wait: share of a step that waits for images, which a smaller encoder does not shorten.
    """
    best = None
    # Resolved once, because these sizes are read from the images.
    known = replace(recipe, image_size=plan.recipe.image_size, patch_size=plan.recipe.patch_size)
    for changes in _smaller(model_facts(plan.encoder.model, plan.encoder.options)):
        options = {**recipe.model_options, **changes}
        try:
            other = plan_of(replace(known, model_options=options))
        except UserError:
            continue  # it does not fit the rest of the recipe
        best = Suggestion(options, 1 / (data_wait + (1 - data_wait) * _work(other) / _work(plan)))
        if best.speed >= speed:
            break
    return best


def _smaller(facts: ModelFacts) -> Iterator[dict[str, Any]]:
    """Model options, from large to small: first fewer and fewer layers, then narrower ones."""
    dim, depth = facts.dim, facts.depth
    while depth > _FEWEST_LAYERS:
        depth = max(_FEWEST_LAYERS, depth // 2)
        yield {"depth": depth}
    while dim // 2 >= _NARROWEST and dim % 8 == 0:
        dim //= 2
        heads = max(h for h in range(1, facts.heads + 1) if dim % h == 0 and (h == 1 or dim // h >= _SMALLEST_HEAD))
        yield {"embed_dim": dim, "depth": depth, "num_heads": heads}


def _work(plan: Plan) -> float:
    """Multiplications of a step for each image, up to a factor."""
    height, width = plan.image_size
    assert plan.recipe.patch_size
    tokens = math.prod((height // plan.recipe.patch_size, width // plan.recipe.patch_size))
    facts, predictor = model_facts(plan.encoder.model, plan.encoder.options), plan.recipe.predictor
    work = _ENCODER_PASSES * _work_of_blocks(facts.dim, facts.depth, tokens)
    if predictor.dim and predictor.depth:
        work += _PREDICTOR_PASSES * _work_of_blocks(predictor.dim, predictor.depth, tokens)
    return work


def _work_of_blocks(dim: int, depth: int, tokens: int) -> float:
    """For each token of a sequence: four projections, an MLP four times as wide, attention, and the rest."""
    return depth * (12 * dim**2 + (2 * tokens + _ELEMENTWISE) * dim)
