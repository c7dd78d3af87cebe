"""What a recipe comes to, and what is refused before anything is built."""

import dataclasses
from typing import Any

import pytest
import torch
import yaml

from flexpredict.data.sources.opening import ArraySource
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import Augmentation
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe


def plan_of(config: str | None = None, **values: Any) -> Plan:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8).expand(100, -1, -1, -1)
    recipe = make_recipe({"epochs": 1, "batch_size": 4, "image_size": 32, "patch_size": 4, **values}, config)
    return make_plan(recipe, ArraySource("images", images), torch.device("cpu"), world_size=1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"targets": {"standardize": "position"}, "image_size": "32,40"}, "image_size=32,40 has several"),
        ({"model_options": {"img_size": 64}}, r"model_options.img_size=64 cannot be set. Use image_size"),
        ({"model_options": {"in_chans": 1}}, "Images have three channels here"),
    ],
    ids=["places of several grids", "size", "channels"],
)
def test_what_would_contradict_itself_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan_of(**values)


def test_a_value_of_the_augmentation_changes_the_preset_of_a_recipe_file() -> None:
    short = {"optimizer": {"warmup_epochs": 0.1}, "model": "vit_tiny_patch16_224"}
    chosen = plan_of("vit_b16", **short, augmentation={"blur": 0.1}).recipe.augmentation
    assert (chosen.flip, chosen.blur, chosen.grayscale) == (0.5, 0.1, 0.2)


@pytest.mark.parametrize(("scale", "blur"), [("small", 0.0), ("published", 0.5)])
def test_a_value_of_the_augmentation_leaves_the_others_as_this_run_would_have_them(scale: str, blur: float) -> None:
    short = {"model": "vit_tiny_patch16_224", "scale": scale}
    usual = plan_of(**short).recipe.augmentation
    chosen = plan_of(**short, augmentation={"grayscale": 0.1}).recipe.augmentation
    assert chosen == dataclasses.replace(usual, grayscale=0.1) and (chosen.flip, chosen.blur) == (0.5, blur)


def test_a_recorded_augmentation_stays_what_it_was() -> None:
    short = {"model": "vit_tiny_patch16_224", "scale": "small"}
    for given in ("ijepa", "none", Augmentation(grayscale=0.1), {"grayscale": 0.1}):
        settled = plan_of(**short, augmentation=given)
        recorded = yaml.safe_load(yaml.safe_dump(settled.describe()))
        assert plan_of(**recorded).recipe.augmentation == settled.recipe.augmentation
    assert plan_of(**short, augmentation=Augmentation(grayscale=0.1)).recipe.augmentation.flip == 0, "all of it"


def test_a_value_of_the_augmentation_that_is_out_of_range_is_refused_before_anything_is_known() -> None:
    with pytest.raises(UserError, match=r"augmentation.flip=2.0 is out of range"):
        make_recipe({"augmentation": {"flip": 2}})


def test_targets_are_not_subject_to_dropout() -> None:
    plan = plan_of(model="vit_tiny_patch16_224", model_options={"embed_dim": 24, "depth": 2, "num_heads": 2})
    model = plan.build_model().train()
    assert model.training and not model.get_submodule("target_encoder").training
