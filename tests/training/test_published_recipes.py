"""The paper's recipes against the released configuration: values at chosen epochs, written out by hand."""

import math

import pytest
import torch

from flexpredict.data.sources.opening import ArraySource
from flexpredict.errors import UserError
from flexpredict.settings.recipe import Recipe
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe

STEPS_AN_EPOCH = 10


def plan_of(recipe: Recipe) -> Plan:
    """On ten batches of images. One image stands for all, as only the sizes count."""
    assert recipe.batch_size
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    source = ArraySource("images", image.expand(STEPS_AN_EPOCH * recipe.batch_size, -1, -1, -1))
    return make_plan(recipe, source, torch.device("cpu"), world_size=1)


def published(name: str) -> Plan:
    return plan_of(make_recipe({}, name))


def halfway(start: float, final: float) -> float:
    return (start + final) / 2


@pytest.mark.parametrize("name", ["vit_b16", "vit_l16"])
def test_base_and_large_end_at_a_learning_rate_of_1e_4(name: str) -> None:
    plan = published(name)
    assert plan.steps == 600 * STEPS_AN_EPOCH
    # The warm-up takes 15 epochs; the middle of the cosine is halfway between there and the end.
    expected = {0: 2e-4, 7.5: 5e-4, 15: 8e-4, 307.5: halfway(8e-4, 1e-4), 600: 1e-4}
    assert {epoch: plan.learning_rate(round(epoch * STEPS_AN_EPOCH)) for epoch in expected} == pytest.approx(expected)
    expected = {0: 0.04, 300: halfway(0.04, 0.4), 600: 0.4}
    assert {epoch: plan.weight_decay(epoch * STEPS_AN_EPOCH) for epoch in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", ["vit_h14", "vit_h16"])
def test_huge_holds_learning_rate_and_weight_decay_from_epoch_250_on(name: str) -> None:
    plan = published(name)
    assert plan.steps == 300 * STEPS_AN_EPOCH
    held_lr = 1e-6 + (1e-3 - 1e-6) * (1 + math.cos(math.pi * 210 / 260)) / 2
    held_decay = 0.4 + (0.04 - 0.4) * (1 + math.cos(math.pi * 250 / 300)) / 2
    assert held_lr == pytest.approx(8.9e-5, rel=0.01) and held_decay == pytest.approx(0.376, rel=0.001)
    expected = {0: 2e-4, 20: 6e-4, 40: 1e-3, 170: halfway(1e-3, 1e-6), 250: held_lr, 251: held_lr, 300: held_lr}
    assert {epoch: plan.learning_rate(epoch * STEPS_AN_EPOCH) for epoch in expected} == pytest.approx(expected)
    expected = {0: 0.04, 150: halfway(0.04, 0.4), 250: held_decay, 275: held_decay, 300: held_decay}
    assert {epoch: plan.weight_decay(epoch * STEPS_AN_EPOCH) for epoch in expected} == pytest.approx(expected)
    before = plan.learning_rate(250 * STEPS_AN_EPOCH - 1)
    assert before > held_lr, "until then they follow their cosines"


@pytest.mark.parametrize("name", ["vit_b16", "vit_l16", "vit_h14", "vit_h16"])
def test_a_published_recipe_stays_one_however_short_the_run(name: str) -> None:
    whole, short = (
        published(name).recipe,
        plan_of(make_recipe({"epochs": 1, "optimizer": {"warmup_epochs": 0.1}}, name)),
    )
    assert short.recipe.targets == whole.targets and short.recipe.augmentation == whole.augmentation
    assert short.recipe.optimizer.kind == whole.optimizer.kind == "adamw"


def test_huge_comes_with_the_papers_patches_and_with_the_released_ones() -> None:
    paper, released = published("vit_h14"), published("vit_h16")
    assert (paper.recipe.patch_size, released.recipe.patch_size) == (14, 16)
    assert (paper.encoder.model, released.encoder.model) == ("vit_huge_patch14_224",) * 2
    assert paper.recipe.optimizer == released.recipe.optimizer


def test_schedules_cannot_be_held_within_the_warm_up() -> None:
    settings = {"warmup_epochs": 5, "hold_from_epoch": 4}
    with pytest.raises(UserError, match=r"hold_from_epoch=4 is within the warm-up of 5 epochs"):
        plan_of(make_recipe({"batch_size": 8, "epochs": 10, "image_size": 32, "optimizer": settings}))
