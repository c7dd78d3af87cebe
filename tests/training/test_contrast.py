"""New models see pale images as they see others."""

import copy

import pytest
import torch
from torch import Tensor

from flexpredict.data.pixels import MEAN, STD, normalize
from flexpredict.data.sources.image_source import ArraySource, ImageSource
from flexpredict.methods.choosing import build_method
from flexpredict.methods.method import Method
from flexpredict.model.building import build_encoder
from flexpredict.settings.recipe import PredictorSize, Recipe
from flexpredict.training.contrast import fit_to_contrast


def source_of(images: Tensor) -> ImageSource:
    """images: B 3 H W uint8."""
    return ArraySource(name="pale", images=images.movedim(1, 3).contiguous())


@pytest.fixture
def model() -> Method:
    encoder = build_encoder(
        "vit_tiny_patch16_224", (32, 32), 8, options={"embed_dim": 24, "depth": 1, "num_heads": 3}
    )
    return build_method(Recipe(predictor=PredictorSize(12, 1, 3)), encoder)


def test_pale_images_give_the_tokens_of_images_with_full_contrast(model: Method) -> None:
    colorful = normalize(torch.randint(0, 256, (300, 3, 32, 32), dtype=torch.uint8))
    unit = (colorful - colorful.mean((0, 2, 3), keepdim=True)) / colorful.std((0, 2, 3), keepdim=True)
    pale = (unit * 12 + torch.tensor([90.0, 120.0, 150.0]).view(3, 1, 1)).round().clamp(0, 255).to(torch.uint8)
    wanted = copy.deepcopy(model).context_encoder.embed(unit, None)
    fit_to_contrast(model, source_of(pale), (32, 32))
    for encoder in (model.context_encoder, model.saved_encoder[0]):
        torch.testing.assert_close(encoder.embed(normalize(pale), None), wanted, rtol=0, atol=0.1)


def test_images_with_the_usual_statistics_leave_the_weights_nearly_as_they_are(model: Method) -> None:
    noise = torch.randn(300, 3, 32, 32)
    images = ((noise * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)) * 255).clamp(0, 255)
    before = model.context_encoder.vit.patch_embed.proj.weight.clone()
    fit_to_contrast(model, source_of(images.to(torch.uint8)), (32, 32))
    torch.testing.assert_close(model.context_encoder.vit.patch_embed.proj.weight, before, rtol=0.1, atol=1e-3)


def test_images_of_one_color_do_not_blow_the_weights_up(model: Method) -> None:
    fit_to_contrast(model, source_of(torch.full((4, 3, 32, 32), 7, dtype=torch.uint8)), (32, 32))
    assert model.context_encoder.vit.patch_embed.proj.weight.abs().max() < 10
