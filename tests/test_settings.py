"""Settings: every number has a range, and is refused in words before anything is written."""

import dataclasses
import inspect
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from tiny import RECIPE, write_pictures

from flexpredict import Augmentation, pretrain
from flexpredict.commands.table import COMMANDS
from flexpredict.errors import UserError
from flexpredict.settings.ablation import AblationSettings
from flexpredict.settings.declarations import alternatives
from flexpredict.settings.ranges import Range, check_ranges
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.run import PlanSettings, RunSettings
from flexpredict.training.recipe_parser import merge


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"optimizer": {"lr": -1}}, "optimizer.lr=-1.0 is out of range: it must be at least 0"),
        ({"optimizer": {"lr": math.inf}}, "optimizer.lr=inf is out of range"),
        ({"optimizer": {"betas": [2, 3]}}, r"optimizer.betas=\[2.0, 3.0\] .* at least 0 and less than 1"),
        ({"optimizer": {"ema_momentum": 2}}, "optimizer.ema_momentum=2.0 .* at most 1"),
        ({"optimizer": {"weight_decay": -1}}, "optimizer.weight_decay=-1.0"),
        ({"optimizer": {"warmup_epochs": 4}}, "warmup_epochs=4 is longer than the run of 3 epochs"),
        ({"max_skipped": 5}, "max_skipped=5.0 .* at most 1"),
        ({"log_every": 0}, "log_every=0 .* at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every=0"),
        ({"workers": -2}, "workers=-2 .* at least 0"),
        ({"predictor": {"depth": -1}}, "predictor.depth=-1"),
        ({"predictor": {"dim": 0}}, "predictor.dim=0"),
        ({"patch_size": 0}, "patch_size=0"),
        ({"image_size": 0}, "image_size=0 is not a size"),
        ({"epochs": 0}, "epochs=0.0"),
        ({"epochs": 1e300}, "epochs=1e.300 .* at most 1e.06"),
        ({"image_size": 100000}, "625,000,000 patches of 4, but at most 65,536 are possible"),
        ({"model_options": {"depth": 10**9}}, "model_options.depth=1000000000 must be a whole number from 1 to 1000"),
        ({"masking": {"targets": 0}}, "masking.targets=0 is out of range: it must be at least 1"),
        ({"masking": {"target_scale": [0.4, 0.2]}}, "the smallest first and the largest second"),
        ({"positions": {"noise_std": -1}}, "positions.noise_std=-1.0 is out of range: it must be at least 0"),
        ({"targets": {"layers": 0}}, "targets.layers=0 is out of range"),
        ({"batch_size": 1000}, "batch_size=1000 is more than the 48 images of an epoch. Use at most 48"),
        ({"batch_size": 64, "accumulate": 64}, "accumulate=64 need at least 64 images, and there are 48"),
        ({"model_options": {"embed_dim": 96, "num_heads": 5}}, "cannot be built with .*num_heads"),
        ({"model_options": {"wings": 2}}, "cannot be built with .*wings"),
        ({"positions": {"kind": "sincos", "noise_std": 0.5}}, "positions.noise_std=0.5 does not work"),
    ],
)
def test_values_out_of_range_are_refused_in_words_and_nothing_is_written(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        pretrain(str(write_pictures(tmp_path / "pictures")), tmp_path / "run", **merge(RECIPE, fields))
    assert not (tmp_path / "run").exists()


def test_all_defaults_are_in_their_ranges() -> None:
    check_ranges(Recipe())


def test_a_range_has_its_bounds_and_nothing_is_infinite() -> None:
    assert 0 in Range(least=0) and 0 not in Range(above=0)
    assert 1 in Range(most=1) and 1 not in Range(below=1)
    assert all(value not in Range(least=0) for value in (math.nan, math.inf))


def test_settings_are_declared_without_torch() -> None:
    code = (
        "import sys, flexpredict.settings.recipe; print([m for m in ('torch', 'timm', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_number_of_a_recipe_has_a_range() -> None:
    for field in dataclasses.fields(Recipe()):
        inner = Augmentation() if field.name == "augmentation" else getattr(Recipe(), field.name)
        fields = dataclasses.fields(inner) if dataclasses.is_dataclass(inner) else (field,)
        for one in fields:
            if re.search(r"\b(int|float)\b", str(one.type)) and one.name not in ("image_size", "devices"):
                assert "range" in one.metadata, one.name


def test_every_number_of_every_command_has_a_range() -> None:
    checked_otherwise = {"image_size", "devices", "grid", "void", "levels"}
    taken = {RunSettings, PlanSettings, AblationSettings}
    for command in COMMANDS.values():
        function = command.load()
        if (inner := inspect.unwrap(function)) is not function:  # whose one parameter is its settings
            (parameter,) = inspect.signature(inner).parameters.values()
            taken |= {parameter.annotation} if dataclasses.is_dataclass(parameter.annotation) else set()
    assert len(taken) > 12
    without = []
    while taken:
        for field in dataclasses.fields(settings := taken.pop()):
            kinds = alternatives(field.type)
            taken |= {kind for kind in kinds if dataclasses.is_dataclass(kind)}
            numbers = {kind for one in kinds for kind in (one, *get_args(one))} & {int, float}
            if numbers and "range" not in field.metadata and field.name not in checked_otherwise:
                without.append(f"{settings.__name__}.{field.name}")
    assert without == []
