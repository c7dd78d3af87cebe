"""Two processes on gloo train the model that one process trains."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import OPTIONS, two_ranks
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures

from flexpredict import pretrain


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "standardize"), [("sincos", "none"), ("stochastic", "feature")])
def test_two_ranks_reach_the_weights_of_one(kind: str, standardize: Any, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    pretrain(
        str(pictures), tmp_path / "one", **RECIPE, positions={"kind": kind}, targets={"standardize": standardize}
    )
    given = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    done = two_ranks(
        "pretrain", "--data", str(pictures), "--out", str(tmp_path / "two"), *given, "--devices", "2",
        "--positions.kind", kind, "--targets.standardize", standardize,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run folder") == 1, "only the first rank speaks"
    assert "8 = 2 devices x 1 parts x 4" in done.stdout
    one = load_file(tmp_path / "one" / "checkpoints" / "last" / "model.safetensors")
    two = load_file(tmp_path / "two" / "checkpoints" / "last" / "model.safetensors")
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], atol=1e-5, rtol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.slow
def test_two_ranks_agree_on_the_length_that_fits_the_time(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    given = [word for name, value in OPTIONS.items() if name != "epochs" for word in (f"--{name}", value)]
    done = two_ranks(
        "pretrain", "--data", str(pictures), "--out", str(tmp_path / "run"), *given, "--devices", "2",
        "--minutes", "0.1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("0.1 minutes allow") == 1 and "encoder.safetensors" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pictures", "run"]


@pytest.mark.slow
def test_bad_input_ends_both_ranks_with_one_message(tmp_path: Path) -> None:
    places = ["--data", str(tmp_path / "missing"), "--out", str(tmp_path / "run")]
    done = two_ranks("pretrain", *places, "--accelerator=cpu", "--devices=2")
    assert done.returncode != 0 and "There is no folder" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_ranks_that_share_the_weights_reach_those_of_one_and_write_whole_checkpoints(tmp_path: Path) -> None:
    """FSDP: its checkpoints are those of one process, which each goes on from what the other wrote."""
    pictures = write_pictures(tmp_path / "pictures")
    given = [word for name, value in OPTIONS.items() if name != "epochs" for word in (f"--{name}", value)]
    recipe = {**RECIPE, "epochs": 2}
    pretrain(str(pictures), tmp_path / "one", **recipe)
    done = two_ranks(
        "pretrain", "--data", str(pictures), "--out", str(tmp_path / "two"), *given, "--epochs", "1",
        "--devices", "2", "--strategy", "fsdp",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pretrain(str(pictures), tmp_path / "half", **{**recipe, "epochs": 1})
    for name in ("model", "optimizer"):
        ours, theirs = (
            load_file(tmp_path / run / "checkpoints" / "last" / f"{name}.safetensors") for run in ("two", "half")
        )
        assert {key: tensor.shape for key, tensor in ours.items()} == {
            key: tensor.shape for key, tensor in theirs.items()
        }
        for key in ours:
            torch.testing.assert_close(ours[key], theirs[key], atol=1e-5, rtol=1e-6, msg=key)
    # From here on one process, and then two again.
    assert pretrain(out=tmp_path / "two", resume=True, devices=1, strategy="auto", epochs=1.5).steps == 9
    done = two_ranks(
        "pretrain",
        "--out",
        str(tmp_path / "two"),
        "--resume",
        "--epochs",
        "2",
        "--devices",
        "2",
        "--strategy",
        "fsdp",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "checkpoints" / "step-12").is_dir()
