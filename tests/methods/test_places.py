"""A method says where the features it is judged by were read."""

import pytest
import torch

from flexpredict.masking import sample_masks
from flexpredict.methods.data2vec import Data2Vec
from flexpredict.methods.ijepa import IJEPA
from flexpredict.methods.mae import MAE, patch_values
from flexpredict.methods.method import Prediction
from flexpredict.model.building import build_encoder
from flexpredict.model.encoder import Encoder
from flexpredict.model.predictor import Predictor
from flexpredict.settings.masking import Kind, Masking
from flexpredict.settings.positions import Positions
from flexpredict.settings.targets import Resolution, Standardize, Targets
from flexpredict.training.health import location_health

IMAGES, CONTEXTS = 3, 2


def encoder() -> Encoder:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    return build_encoder("vit_tiny_patch16_224", (32, 32), 4, options=options)


def predictor(output_dim: int | None = None) -> Predictor:
    return Predictor(24, (8, 8), 16, 2, 2, Positions("sincos"), output_dim=output_dim)


def inputs(kind: Kind, grid: tuple[int, int] = (8, 8)) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    masks = sample_masks(Masking(kind=kind, contexts_per_image=CONTEXTS), grid, 5, IMAGES)
    images = torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return images, masks.context, masks.targets


def assert_read_from(whole: torch.Tensor, result: Prediction) -> None:
    """whole: B N D, the features of all places."""
    assert result.places.shape == result.features.shape[:-1]
    for row, (features, places) in enumerate(zip(result.features, result.places, strict=True)):
        torch.testing.assert_close(features, whole[row // CONTEXTS][places])


def everywhere(patches: int) -> torch.Tensor:
    return torch.arange(patches).expand(IMAGES, 1, 1, -1)


@pytest.mark.parametrize(("resolution", "side"), [("full", 8), ("half_bilinear", 4), ("half_max", 4)])
@pytest.mark.parametrize("standardize", ["none", "position"])
def test_those_of_ijepa_are_its_targets_before_they_are_standardized(
    resolution: Resolution, side: int, standardize: Standardize
) -> None:
    model = IJEPA(encoder(), predictor(), Targets(resolution=resolution, standardize=standardize))
    images, context, targets = inputs("multiblock", (side, side))
    whole = model.target_features(images, everywhere(side * side))[:, 0]
    assert_read_from(whole, model(images, context, targets))


def test_those_of_data2vec_are_its_targets() -> None:
    model = Data2Vec(encoder())
    images, context, targets = inputs("blocks")
    assert_read_from(model.target_features(images, everywhere(64))[:, 0], model(images, context, targets))


def test_those_of_mae_are_the_visible_patches() -> None:
    vit = encoder()
    model = MAE(vit, predictor(patch_values(vit)))
    images, context, targets = inputs("random")
    result = model(images, context, targets)
    assert result.places.shape == result.features.shape[:-1]
    torch.testing.assert_close(vit(images, keep=result.places), result.features)


def test_an_image_shown_in_several_contexts_tells_of_a_place_once() -> None:
    features = torch.randn(40, 1, 16, 8)
    places = torch.arange(16).expand(40, 1, -1)
    nothing = torch.empty(0)
    once = Prediction(nothing, nothing, nothing, features, places)
    thrice = once._replace(features=features.repeat_interleave(3, dim=0), places=places.repeat_interleave(3, dim=0))
    assert location_health(thrice, 3) == pytest.approx(location_health(once, 1))
    assert location_health(once._replace(features=features[:1], places=places[:1]), 1) == {}
