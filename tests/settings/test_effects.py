"""Settings without an effect are refused where they were given, and nowhere else."""

from dataclasses import asdict
from typing import Any

import pytest

from flexpredict.errors import UserError
from flexpredict.settings.effects import refuse_without_effect
from flexpredict.settings.masking import Masking
from flexpredict.settings.optimizer import Optimizer
from flexpredict.training.recipe_parser import make_recipe


def check(given: dict[str, Any], config: str | None = None) -> None:
    refuse_without_effect(make_recipe(given, config), given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keep_best": True}, "keep_best=True .* does not probe. .* with probe_data, or give probe_every"),
        ({"method": "mae", "optimizer": {"ema_momentum": 0.9}}, "ema_momentum=0.9 belongs to method ijepa or data"),
        ({"method": "mae", "optimizer": {"final_ema_momentum": 0.9}}, "final_ema_momentum=0.9 .* use method=ijepa"),
        ({"method": "mae", "optimizer": {"ema_by_steps": True}}, "ema_by_steps=True .* no target encoder"),
        ({"optimizer": {"kind": "adamw", "muon_lr": 0.1}}, "muon_lr=0.1 has no effect with optimizer.kind=adamw"),
        ({"method": "mae", "masking": {"targets": 2}}, "masking.targets=2 .* with masking.kind=random,"),
        ({"method": "data2vec", "masking": {"context_scale": [0.5, 1.0]}}, "context_scale=.* masking.kind=blocks,"),
        ({"masking": {"kind": "random", "target_scale": [0.1, 0.2]}}, r"target_scale=\[0.1, 0.2\] .* or blocks"),
        ({"masking": {"mask_ratio": 0.5}}, "mask_ratio=0.5 .*kind=multiblock, only with random or blocks"),
        ({"masking": {"kind": "published", "min_context": 0.5}}, "min_context=.*kind=published, only .* multiblock"),
    ],
)  # fmt: skip
def test_what_would_change_nothing_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(given)


@pytest.mark.parametrize(
    "given",
    [
        {"keep_best": True, "probe_every": 1.0},
        {"keep_best": True, "probe_data": "labeled"},
        {"optimizer": {"ema_momentum": 0.9, "muon_lr": 0.1}, "masking": {"targets": 2, "min_context": 0.5}},
        {"method": "data2vec", "optimizer": {"ema_by_steps": True}, "masking": {"mask_ratio": 0.5}},
        {"method": "mae", "masking": {"kind": "multiblock", "targets": 2}},
        {"model_options": {"pretrained_cfg_overlay": {"file": "weights.pth"}}},
    ],
)
def test_what_has_an_effect_is_accepted(given: dict[str, Any]) -> None:
    check(given)


def test_a_recorded_recipe_can_be_given_as_arguments() -> None:
    settled: dict[str, Any] = {
        "method": "mae",
        "masking": asdict(Masking().settled("random")),
        "optimizer": asdict(Optimizer()),
    }
    settled["optimizer"] |= {"ema_momentum": 0.99, "kind": "adamw", "muon_lr": 0.1}
    check(settled)
    del settled["optimizer"]["clip_grad"]
    with pytest.raises(UserError, match=r"ema_momentum=0.99"):
        check(settled)


def test_defaults_and_values_of_a_recipe_file_are_not_held_against_anyone() -> None:
    check({"method": "mae"}, config="vit_b16")  # which has ema_momentum and targets
    check({"method": "mae", "optimizer": {"ema_momentum": None, "final_ema_momentum": 1.0}, "keep_best": False})
    with pytest.raises(UserError, match=r"ema_momentum=0.9"):
        check({"method": "mae", "optimizer": {"ema_momentum": 0.9}}, config="vit_b16")
