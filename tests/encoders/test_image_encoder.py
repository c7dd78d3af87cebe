"""A loaded encoder from Python: what it takes, what it gives, what it trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import flexpredict
from flexpredict.data.pixels import MEAN, STD
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.features.extraction import extract_features
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform
from flexpredict.runs.encoder_file import EncoderSpec


@pytest.fixture(scope="module")
def encoder(finished: Path) -> ImageEncoder:
    return flexpredict.load(str(finished))


def pictures(count: int = 2, height: int = 32, width: int = 32) -> Tensor:
    return uniform(sample_keys(5, torch.arange(count)), 3 * height * width).mul(255).byte().view(-1, 3, height, width)


def normalized(images: Tensor) -> Tensor:
    return (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def test_a_path_and_a_string_name_the_same_encoder(finished: Path, encoder: ImageEncoder) -> None:
    assert flexpredict.load(finished).fingerprint() == encoder.fingerprint()
    assert not encoder.training


def test_whatever_stands_for_an_encoder_can_be_loaded(finished: Path, encoder: ImageEncoder) -> None:
    images = pictures()
    assert flexpredict.load(encoder) is encoder
    assert torch.equal(flexpredict.load(flexpredict.Run(finished, 1, True))(images), encoder(images))
    vit = encoder.timm()
    vit.pretrained_cfg |= {"mean": MEAN, "std": STD}
    given = flexpredict.load(vit.train().requires_grad_())
    torch.testing.assert_close(given(images), encoder(images))
    assert vit.training and next(vit.parameters()).requires_grad, "the model itself stays as it was"
    assert not any(part.training for part in given.modules()) and not given(images).requires_grad
    vit.eval().requires_grad_(False)


def test_what_is_no_encoder_is_refused_in_words(encoder: ImageEncoder, finished: Path, tmp_path: Path) -> None:
    load: Any = flexpredict.load
    with pytest.raises(UserError, match="a given Linear does not give its inner features"):
        load(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="heads, grid and partial are for an encoder given by its name"):
        load(encoder, heads=3)
    with pytest.raises(UserError, match=r"which=contxt does not work: it takes target or context. Did you mean"):
        load(finished, which="contxt")
    with pytest.raises(UserError, match="heads=0 is out of range"):
        load(finished, heads=0)
    for grid in ("3", "0x4", (0, 4)):
        with pytest.raises(UserError, match=r"is not a grid. Give rows x columns"):
            load(finished, grid=grid)
    with pytest.raises(TypeError, match=r"open_encoder\(\) needs encoder"):
        load()
    with pytest.raises(UserError, match=r"pooling=max is not known. Use mean or class"):
        load(finished).pooled(pictures(), pooling="max")
    (tmp_path / "a.png").write_bytes(b"\x89PNG" + bytes(30))
    with pytest.raises(
        UserError, match=r"a.png is not a checkpoint that can be read safely: its first bytes are b'.x89PNG"
    ):
        load(tmp_path / "a.png")


def test_calling_it_gives_patch_features_and_layers_and_vectors_agree_with_them(encoder: ImageEncoder) -> None:
    images = pictures(3)
    patches = encoder(images)
    assert patches.shape == (3, 64, 24)
    layers = encoder.layers(images, 2)
    assert len(layers) == 2 and torch.equal(layers[-1], patches) and not torch.equal(layers[0], patches)
    torch.testing.assert_close(encoder.pooled(images), patches.mean(dim=1))
    both = torch.cat([layer.mean(dim=1) for layer in layers], dim=1)
    torch.testing.assert_close(encoder.pooled(images, 2), both)
    pooled, again = encoder.pooled_and_layers(images, 2)
    torch.testing.assert_close(pooled, both)
    assert all(map(torch.equal, again, layers))


def test_bytes_are_normalized_and_floats_are_taken_as_normalized(encoder: ImageEncoder) -> None:
    images = pictures()
    torch.testing.assert_close(encoder(normalized(images)), encoder(images))
    torch.testing.assert_close(encoder(normalized(images).double()), encoder(images))


FORMS: dict[str, Any] = {
    "batch": lambda images: images,
    "channels last": lambda images: images.permute(0, 2, 3, 1),
    "array": lambda images: images.numpy(),
    "array, channels last": lambda images: images.permute(0, 2, 3, 1).numpy(),
    "list of tensors": list,
    "list of arrays": lambda images: [image.permute(1, 2, 0).numpy() for image in images],
    "list of both": lambda images: [images[0], images[1].numpy()],
    "tuple": tuple,
    "PIL images": lambda images: [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images],
}


@pytest.mark.parametrize("form", FORMS)
def test_images_may_come_in_any_form(form: str, encoder: ImageEncoder) -> None:
    images = pictures()
    torch.testing.assert_close(encoder(FORMS[form](images)), encoder(images))
    single = FORMS[form](images)[0]
    torch.testing.assert_close(encoder(single), encoder(images[:1]))
    assert encoder.pooled(single).shape == (1, 24)


@pytest.mark.parametrize("empty", [torch.zeros(0, 3, 32, 40, dtype=torch.uint8), np.zeros((0, 32, 40, 3)), []])
def test_no_images_give_no_features_of_the_right_shape(empty: Any, encoder: ImageEncoder) -> None:
    patches = 64 if isinstance(empty, list) else 80
    assert encoder(empty).shape == (0, patches, 24)
    assert [layer.shape for layer in encoder.layers(empty, 2)] == [(0, patches, 24)] * 2
    assert encoder.pooled(empty, 2).shape == (0, 48)


def test_photos_are_prepared_as_in_every_evaluation(encoder: ImageEncoder, tmp_path: Path) -> None:
    """Any size, mode and orientation."""
    (tmp_path / "photos").mkdir()
    rgb = Image.fromarray(pictures(1, 50, 70)[0].permute(1, 2, 0).numpy())
    rotated = Image.Exif()
    rotated[0x0112] = 6
    rgb.save(tmp_path / "photos" / "a.png")
    rgb.save(tmp_path / "photos" / "b.png", exif=rotated)
    rgb.convert("L").save(tmp_path / "photos" / "c.png")
    transparent = rgb.convert("RGBA")
    transparent.putalpha(100)
    transparent.save(tmp_path / "photos" / "d.png")
    expected = extract_features(encoder, open_source(str(tmp_path / "photos"))).vectors
    photos = [Image.open(file) for file in sorted((tmp_path / "photos").iterdir())]
    sizes = [photo.size for photo in photos]
    found = encoder.pooled(photos)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert [photo.size for photo in photos] == sizes == [(70, 50)] * 4
    assert len({tuple(row) for row in found.tolist()}) == 4


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(3, 33, 32), r"33x32 cannot be cut into the 4x4 patches .* image_size=32x32"),
        (torch.zeros(32, 32), "An array of shape 32 32 is not an image. Give uint8"),
        (torch.zeros(2, 4, 32, 32), "shape 2 4 32 32 have no three color channels"),
        (torch.zeros(3, 32, 32, dtype=torch.int64), "Images of int64 are not accepted"),
        (np.zeros((3, 32, 32), dtype=bool), "Images of bool are not accepted"),
        ([torch.zeros(3, 32, 32), torch.zeros(3, 36, 32)], "same size and type; these are float32 of 32x32 and"),
        ([torch.zeros(3, 32, 32), torch.zeros(3, 32, 32, dtype=torch.uint8)], "same size and type"),
        (["photo.jpg"], "type str is not an image"),
        ("photo.jpg", "type str is not an image"),
        (7, "type int is not an image"),
        (None, "type NoneType is not an image"),
    ],
)
def test_what_is_no_image_is_refused_in_words(images: Any, words: str, encoder: ImageEncoder) -> None:
    with pytest.raises(UserError, match=words):
        encoder(images)


def test_features_need_no_gradients_unless_asked(finished: Path) -> None:
    encoder = flexpredict.load(finished)
    assert encoder.pooled(pictures()).numpy().shape == (2, 24)
    assert isinstance(encoder, ViTEncoder)
    positions = encoder.encoder.vit.pos_embed
    encoder.requires_grad_()
    encoder(pictures()).square().sum().backward()
    trained = {name for name, value in encoder.named_parameters() if value.grad is not None}
    everything = {name for name, _ in encoder.named_parameters()}
    assert everything - trained == {"encoder.vit.pos_embed"} and not positions.requires_grad, "sines stay fixed"
    encoder.requires_grad_(False)
    pixels = normalized(pictures()).requires_grad_()
    encoder(pixels).square().sum().backward()
    assert pixels.grad is not None and pixels.grad.abs().sum() > 0, "of the image, where that asks for it"


def test_it_moves_like_any_module(encoder: ImageEncoder) -> None:
    doubled = flexpredict.load(encoder.name).double()
    assert doubled(pictures()).dtype == torch.float64
    torch.testing.assert_close(doubled(pictures()).float(), encoder(pictures()), atol=1e-4, rtol=1e-4)
    assert flexpredict.load(encoder.name).to("meta")(pictures()).device.type == "meta", "images follow it"


def test_its_timm_model_gives_the_same_features(encoder: ImageEncoder, tmp_path: Path) -> None:
    images = pictures()
    model: Any = encoder.timm()
    assert type(model) is timm.models.VisionTransformer
    torch.testing.assert_close(model.forward_features(normalized(images)), encoder(images))
    opened = flexpredict.load("timm:test_vit,pretrained=no")
    assert isinstance(opened, TimmEncoder) and opened.timm() is opened.model
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    transformers.ViTModel(transformers.ViTConfig(**sizes, intermediate_size=48)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"run by transformers .* load its folder without 'hf:'"):
        flexpredict.load(f"hf:{tmp_path}").timm()
    assert type(flexpredict.load(tmp_path).timm()) is timm.models.VisionTransformer


def test_what_a_file_does_not_tell_can_be_said_after_its_name_or_by_argument(tmp_path: Path) -> None:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    vit = EncoderSpec("vit_tiny_patch16_224", (16, 64), 8, "learned", False, options).build().vit
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    named = flexpredict.load(f"{tmp_path}/x.pth,heads=2,grid=2x8")
    assert named.image_size == (16, 64)
    for grid in ((2, 8), "2x8"):
        assert named.fingerprint() == flexpredict.load(tmp_path / "x.pth", heads=2, grid=grid).fingerprint()
    for name, words in (
        ("x.pth,heads=two", r"heads=two .* must be a whole number"),
        ("x.pth,heads=2,grid=2", "grid=2 is not a grid"),
        ("x.pth,grits=2x8", "Did you mean 'grid'"),
        ("y.pth,heads=2", "There is no encoder"),
    ):
        with pytest.raises(UserError, match=words):
            flexpredict.load(f"{tmp_path}/{name}")
