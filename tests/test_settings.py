"""Settings: every number has a range, and is refused in words before anything is written."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.errors import UserError
from flexpredict.settings.ranges import Range, check_ranges
from flexpredict.settings.recipe import Recipe
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
        ({"batch_size": 1000}, "batch_size=1000 is more than the 48 images of an epoch. Use at most 48"),
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
    """Not the ones that other checks know more about: masks depend on the grid, noise on the kind of positions."""
    elsewhere = {"positions", "masking", "augmentation", "targets"}
    for field in dataclasses.fields(Recipe()):
        if field.name in elsewhere:
            continue
        inner = getattr(Recipe(), field.name)
        fields = dataclasses.fields(inner) if dataclasses.is_dataclass(inner) else (field,)
        for one in fields:
            if str(one.type) in ("<class 'int'>", "<class 'float'>", "int | None", "float | None"):
                assert "range" in one.metadata, one.name
