"""Runs are read whole even where a copy has lost the link to their last checkpoint."""

import shutil
from pathlib import Path

import pytest
import torch
from tiny import RECIPE
from torch import Tensor

from flexpredict import pretrain
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.exports import export
from flexpredict.runs.checkpoint import last_checkpoint
from flexpredict.runs.encoder_file import EncoderSpec, read_encoder
from flexpredict.runs.run_folder import RunFolder
from flexpredict.studies.ablations.runs import steps_done
from flexpredict.studies.analyses.opening import open_model
from flexpredict.training.initial_weights import initial_weights
from flexpredict.training.recipe_parser import make_recipe


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    pretrain("scenes:16,size=32", out, **{**RECIPE, "epochs": 1})
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """As copied by a tool that does not know links."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / "checkpoints" / "last").unlink()
    return tmp_path / "copy"


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_lost_link_does_not_matter_to_anyone(whole: Path, copy: Path, tmp_path: Path) -> None:
    assert last_checkpoint(RunFolder(copy).checkpoints) == copy / "checkpoints" / "step-2"
    for which in ("target", "context"):
        found, expected = (open_encoder(run, which=which) for run in (copy, whole))
        assert found.what == f"{which} encoder of {copy} after step 2"
        assert found.fingerprint() == expected.fingerprint()
    started, reference = (initial_weights(make_recipe({"init_from": str(run)})) for run in (copy, whole))
    assert started.rest and equal(started.rest, reference.rest) and equal(started.context, reference.context)
    assert open_model(copy).step == 2
    assert steps_done(copy) == 2
    saved = torch.load(export(open_encoder(copy), "official", tmp_path / "x.pth").out, weights_only=True)
    assert "predictor" in saved and saved["epoch"] == 1


def test_a_run_without_its_link_is_resumed_and_not_started_again_from_other_weights(
    whole: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    pretrain("scenes:16,size=32", other, **{**RECIPE, "epochs": 1, "init_from": str(whole)})
    (other / "checkpoints" / "last").unlink()
    moved = whole.with_name("elsewhere")
    whole.rename(moved)  # what it started from is not needed any more
    try:
        assert pretrain(out=other, resume=True).finished
    finally:
        moved.rename(whole)


def test_the_spec_of_a_runs_config_is_that_of_its_encoder_file(whole: Path) -> None:
    assert EncoderSpec.of_config(RunFolder(whole).load_config()) == read_encoder(whole).spec


def test_what_a_run_lacks_is_said(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    assert open_encoder(copy).what == f"target encoder of {copy} after step 2", "its own file tells"
    with pytest.raises(UserError, match="which=context needs a checkpoint of a run, and there is none"):
        open_encoder(copy, which="context")
    (copy / "encoder.safetensors").unlink()
    with pytest.raises(UserError, match="has not written its encoder yet"):
        open_encoder(copy)
    (copy / "config.yaml").write_text("a: [1")
    with pytest.raises(UserError, match=r"config\.yaml is not valid YAML: .* Restore it from a copy"):
        RunFolder(copy).load_config()
