"""Models are opened for analysis as they were saved, at any step that was kept, with the noise of that step."""

import json
from pathlib import Path

import pytest
import torch

from flexpredict.errors import UserError
from flexpredict.studies.analyses.opening import OpenedModel, open_model

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"


def test_a_run_is_opened_as_it_was_saved_and_by_step(runs: dict[str, Path], stop: OpenedModel) -> None:
    from safetensors.torch import load_file

    saved = load_file(runs["stop"] / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in stop.model.state_dict().items():
        torch.testing.assert_close(tensor, saved[name], rtol=0, atol=0)
    assert stop.step == 6 and not stop.model.training
    earlier = open_model(runs["stop"], step=3)
    assert earlier.step == 3 and not torch.equal(earlier.matrix, stop.matrix)
    assert torch.equal(earlier.new_matrix, stop.new_matrix)
    with pytest.raises(UserError, match=r"no checkpoint of step 4 .* available steps: 3, 6"):
        open_model(runs["stop"], step=4)


def test_the_noise_level_is_that_of_the_step(runs: dict[str, Path]) -> None:
    assert open_model(runs["sincos"]).noise_std == 0.0
    records = [json.loads(line) for line in (runs["fading"] / "metrics.jsonl").read_text().splitlines()]
    faded = open_model(runs["fading"])
    assert faded.noise_std == records[-1]["noise_std"] < records[0]["noise_std"]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference vectors beside the repository")
def test_published_checkpoints_are_opened_with_their_own_matrix_and_noise() -> None:
    stop_path, ijepa_path = (REFERENCE / name / "checkpoint.pth.tar" for name in ("stop", "ijepa"))
    released, plain = open_model(stop_path, heads=2), open_model(ijepa_path, heads=2)
    assert (released.noise_std, plain.noise_std) == (0.25, 0.0)
    tensors = torch.load(stop_path, weights_only=True, map_location="cpu")["predictor"]
    (weight,) = (tensor for name, tensor in tensors.items() if name.endswith("predictor_embed.weight"))
    assert torch.equal(released.matrix, weight.float())


def test_what_is_no_run_is_refused_in_words(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no encoder"):
        open_model(tmp_path / "missing")
    with pytest.raises(UserError, match=r"no config\.yaml"):
        open_model(tmp_path)
    with pytest.raises(UserError, match="has an encoder but no predictor"):
        open_model(runs["stop"] / "encoder.safetensors")
