"""`minutes`: a run that fits the time a person has. Its length is chosen once, before it starts."""

import bisect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from flexpredict.errors import UserError
from flexpredict.methods.method import Method
from flexpredict.progress import duration
from flexpredict.settings.recipe import Recipe
from flexpredict.training.checkpoint_timer import seconds_between
from flexpredict.training.engine import gather
from flexpredict.training.plan import PROBES_PER_RUN, Plan, make_plan
from flexpredict.training.rehearsal import Costs, Rehearsal
from flexpredict.training.smaller_encoder import suggest_smaller

_MEASURED_SHARE = 0.05  # of the time
_LONGEST_MEASURED = 60.0  # seconds
_DIGITS = 4  # of the number of epochs: at most a thousandth of the time is lost

# Shorter runs leave small encoders hardly better than untrained ones. Those of init_from are trained already.
ENOUGH_IMAGES = 100_000
ENOUGH_STEPS = 1_000


@dataclass(frozen=True)
class FittedRun:
    """A run whose length was chosen to end on time.

    Args:
        plan: with epochs in place of minutes.
        model: of this plan, with its initial weights.
        explanation: why it has this length.
        advice: what to do if the time is too short for the encoder, else empty.
    """

    plan: Plan
    model: Method
    explanation: str
    advice: str


def fit_to_time(recipe: Recipe, rehearsal: Rehearsal) -> FittedRun | None:
    """Measure what the run costs, and choose its length; None if someone stopped it."""
    started = time.perf_counter()
    fitted = _fit(recipe, rehearsal, started)
    if fitted is None or fitted.plan.recipe.scale == rehearsal.plan.recipe.scale:
        return fitted
    # The length decides between the defaults of small and of large runs, which change the step: measure again.
    recipe = replace(recipe, scale=fitted.plan.recipe.scale)
    plan = make_plan(recipe, rehearsal.source, rehearsal.fabric.device, rehearsal.fabric.world_size)
    return _fit(recipe, replace(rehearsal, plan=plan, model=plan.build_model()), started)


def _fit(recipe: Recipe, rehearsal: Rehearsal, started: float) -> FittedRun | None:
    assert recipe.minutes
    fabric, source, usual = rehearsal.fabric, rehearsal.source, rehearsal.plan
    seconds = 60 * recipe.minutes
    costs = rehearsal.measure(min(_LONGEST_MEASURED, _MEASURED_SHARE * seconds))
    if costs is None:
        return None
    # Measuring takes part of the time. All ranks use the first one's clock.
    spent = gather(fabric, time.perf_counter() - started)[0]
    steps = most_steps(recipe, usual, costs, seconds - spent)

    def plan_of(other: Recipe) -> Plan:
        return make_plan(other, source, fabric.device, fabric.world_size)

    if steps < 1:
        smaller = suggest_smaller(recipe, usual, costs.data_wait, ENOUGH_STEPS * costs.step / seconds, plan_of)
        raise UserError(
            f"minutes={recipe.minutes:g} is too short: measuring a step took {duration(spent)}, and one more takes "
            f"{costs.step:.2g} s. Give at least {math.ceil(spent / 30)} minutes"
            f"{'' if smaller is None else f', or choose a smaller encoder, {smaller.as_option}'}."
        )
    fitted = with_epochs(recipe, steps * usual.recipe.batch_size / usual.samples)
    plan = plan_of(fitted)
    advice = _advice(recipe, plan, costs, plan_of)
    explanation = (
        f"{recipe.minutes:g} minutes allow {plan.steps:,} steps: one takes {1000 * costs.step:,.0f} ms (measured)."
    )
    return FittedRun(plan, rehearsal.model, explanation, advice)


def most_steps(recipe: Recipe, plan: Plan, costs: Costs, seconds: float) -> int:
    """The most steps that fit into this time, with their checkpoints and probes. plan: the one of the recipe."""

    def seconds_of(steps: int) -> float:
        epochs = steps * plan.recipe.batch_size / plan.samples
        every = recipe.checkpoint_every or seconds_between(costs.checkpoint) / costs.step
        checkpoints = math.ceil(steps / every)
        checkpoints += int(epochs / recipe.keep_every) if recipe.keep_every else 0
        probes = PROBES_PER_RUN if recipe.probe_data is not None else 0
        if recipe.probe_every:
            probes = math.ceil(epochs / recipe.probe_every)
        probes += bool(probes)  # and one before the first step
        return costs.start + steps * costs.step + checkpoints * costs.checkpoint + probes * costs.probe

    limit = int(max(0.0, seconds) / costs.step) + 1
    return bisect.bisect_right(range(1, limit), seconds, key=seconds_of)


def with_epochs(recipe: Recipe, epochs: float) -> Recipe:
    """The recipe with these epochs, rounded down, in place of minutes; lengths given in its own epochs are scaled."""
    epochs = _rounded_down(epochs)
    settings, scale = recipe.optimizer, epochs / recipe.epochs if recipe.epochs else 1.0
    lengths = ("warmup_epochs", "predictor_warmup_epochs", "hold_from_epoch")
    given = {name: value * scale for name in lengths if (value := getattr(settings, name)) is not None}
    settings = replace(settings, **given)
    return replace(recipe, epochs=epochs, minutes=None, optimizer=settings)


def _rounded_down(value: float) -> float:
    places = _DIGITS - 1 - math.floor(math.log10(value))
    return round(math.floor(value * 10.0**places) / 10.0**places, places)


def _advice(recipe: Recipe, plan: Plan, costs: Costs, plan_of: Callable[[Recipe], Plan]) -> str:
    images = plan.steps * plan.recipe.batch_size
    lacking = max(ENOUGH_IMAGES / images, ENOUGH_STEPS / plan.steps)
    if lacking <= 1 or recipe.init_from is not None:
        return ""
    said = [
        f"{recipe.minutes:g} minutes are short for this encoder: it sees {images:,} images in {plan.steps:,} steps, "
        f"and learns little from fewer than {ENOUGH_IMAGES:,} images or {ENOUGH_STEPS:,} steps."
    ]
    smaller = suggest_smaller(recipe, plan, costs.data_wait, lacking, plan_of)
    if smaller is not None:
        reached = float(f"{images * smaller.speed:.2g}")
        said.append(f"A smaller one would see about {reached:,.0f} images: {smaller.as_option}.")
    if smaller is None or smaller.speed < lacking:
        said.append("More time, smaller images (image_size) or larger patches (patch_size) help as well.")
    return " ".join(said)
