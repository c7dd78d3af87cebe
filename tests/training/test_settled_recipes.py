"""What a recipe comes to, and what is refused before anything is built."""

from typing import Any

import pytest
import torch

from flexpredict.data.sources.opening import ArraySource
from flexpredict.errors import UserError
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


def test_targets_are_not_subject_to_dropout() -> None:
    plan = plan_of(model="vit_tiny_patch16_224", model_options={"embed_dim": 24, "depth": 2, "num_heads": 2})
    model = plan.build_model().train()
    assert model.training and not model.get_submodule("target_encoder").training
