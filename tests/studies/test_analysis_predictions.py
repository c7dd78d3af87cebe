"""Figures of predictions: the heatmap is a softmax of cosines, of a patch that the context does not show."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA
from flexpredict.studies.analyses.opening import OpenedModel, open_model
from flexpredict.studies.analyses.predictions import draw_mask, draw_predictions, heatmap, predicted_similarity


def test_the_heatmap_is_a_softmax_of_the_cosines() -> None:
    similarity = torch.tensor([0.9, -0.2, 0.4])
    expected = np.exp(similarity.numpy() / 0.1)
    np.testing.assert_allclose(heatmap(similarity, 0.1).numpy(), expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["stop", "half"])
def test_the_heatmap_peaks_where_the_token_equals_the_prediction(
    kind: str, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_model(runs[kind])
    assert isinstance(opened.model, IJEPA)
    masked = draw_mask(opened)
    pixels = torch.arange(3 * opened.image_size[0] * opened.image_size[1]).view(3, *opened.image_size).byte()
    predictions: list[Tensor] = []
    forward, features = IJEPA.forward, IJEPA.target_features

    def watched(self: IJEPA, *arguments: Tensor) -> Any:
        result = forward(self, *arguments)
        predictions.append(result.predictions[0, masked.block, masked.slot])
        return result

    planted = (masked.patch + 5) % (masked.grid[0] * masked.grid[1])

    def with_a_planted_token(self: IJEPA, images: Tensor, targets: Tensor) -> Tensor:
        found = features(self, images, targets).clone()
        if predictions:  # asked for all tokens, after the prediction
            found[0, 0, planted] = 3.0 * predictions[-1]
        return found

    monkeypatch.setattr(IJEPA, "forward", watched)
    monkeypatch.setattr(IJEPA, "target_features", with_a_planted_token)
    heat = heatmap(predicted_similarity(opened.model, pixels, masked), 0.2)
    assert len(heat) == masked.grid[0] * masked.grid[1]
    assert float(heat.sum()) == pytest.approx(1.0, abs=1e-5)
    assert int(heat.argmax()) == planted


def test_the_patch_is_hidden_from_the_context_and_by_default_inside_a_block(stop: OpenedModel) -> None:
    for seed in range(5):
        masked = draw_mask(stop, mask_seed=seed)
        assert masked.patch not in masked.context.tolist()
        rows, columns = masked.targets[0] // 8, masked.targets[0] % 8
        assert abs(masked.patch // 8 - float(rows.float().mean())) <= 0.5
        assert abs(masked.patch % 8 - float(columns.float().mean())) <= 0.5


def test_a_patch_that_is_not_predicted_is_refused_with_a_mask_that_does(stop: OpenedModel) -> None:
    shown = int(draw_mask(stop).context[0])
    place = f"{shown // 8 + 1},{shown % 8 + 1}"
    with pytest.raises(UserError, match="is not predicted under the mask") as refused:
        draw_mask(stop, place)
    seed = int(str(refused.value).split("mask_seed=")[-1].split()[0].rstrip(".,"))
    assert draw_mask(stop, place, seed).patch == shown


def test_two_runs_are_drawn_side_by_side_on_one_mask(runs: dict[str, Path], tmp_path: Path) -> None:
    models = [open_model(runs["sincos"]), open_model(runs["stop"])]
    made = draw_predictions(models, tmp_path / "figures", index=2)
    saved = np.load(made.data)
    np.testing.assert_allclose(saved["heat"].sum(axis=1), 1.0, rtol=1e-5)
    assert saved["cosine"].shape == (2, 64) and saved["image"].shape == (32, 32, 3)
    assert len(made.rows) == 2 and made.picture.is_file()
    again = draw_predictions(models[:1], tmp_path / "file", image=runs["pictures"] / "002.png")
    np.testing.assert_allclose(np.load(again.data)["cosine"][0], saved["cosine"][0], rtol=1e-5)


def test_predictions_of_other_methods_and_bad_requests_are_refused(
    runs: dict[str, Path], stop: OpenedModel, tmp_path: Path
) -> None:
    for method, reason in (("mae", "predicts pixels"), ("data2vec", "no predictor")):
        with pytest.raises(UserError, match=reason):
            draw_predictions([open_model(runs[method])], tmp_path)
    with pytest.raises(UserError, match="different grids"):
        draw_predictions([stop, open_model(runs["half"])], tmp_path, image=runs["pictures"] / "000.png")
    with pytest.raises(UserError, match="images 0 to 47"):
        draw_predictions([stop], tmp_path, index=48)
    with pytest.raises(UserError, match="temperature=0"):
        draw_predictions([stop], tmp_path, temperature=0.0)
    with pytest.raises(UserError, match="no image file"):
        draw_predictions([stop], tmp_path, image=tmp_path / "none.png")
    with pytest.raises(UserError, match=r"outside the grid of 8x8"):
        draw_predictions([stop], tmp_path, patch="9,1")
    with pytest.raises(UserError, match="is not a patch"):
        draw_predictions([stop], tmp_path, patch="middle")
