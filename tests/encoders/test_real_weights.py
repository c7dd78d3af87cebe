"""A real pre-trained encoder, where one lies beside the repository: DINOv2 ViT-S/14 under Meta's names, float16."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import flexpredict
from flexpredict.data.pixels import MEAN, STD, normalize
from flexpredict.data.sources.opening import open_images
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.exports import export
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform
from flexpredict.training.initial_weights import initial_weights
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.starting_weights import adopted, start_from

_FOUND = [
    folder / "shared" / "weights" / "dinov2_vits14_fp16.safetensors"
    for folder in Path(__file__).resolve().parents
    if (folder / "shared" / "weights" / "dinov2_vits14_fp16.safetensors").is_file()
]
pytestmark = pytest.mark.skipif(not _FOUND, reason="no shared/weights beside the repository")
SIZES = [(518, 518), (224, 224), (112, 112), (112, 196)]


@pytest.fixture(scope="module")
def encoder() -> ImageEncoder:
    return flexpredict.load(_FOUND[0])


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in load_file(_FOUND[0]).items()}


def images(height: int, width: int) -> Tensor:
    """Two, or one where two would take seconds."""
    keys = sample_keys(1, torch.arange(1 if height > 224 else 2))
    return uniform(keys, 3 * height * width).mul(255).byte().view(-1, 3, height, width)


def test_its_file_tells_what_it_is(encoder: ImageEncoder) -> None:
    assert encoder.details[0].startswith(
        "checkpoint of DINOv2's kind, encoder: 12 layers of 384, 6 heads with a class"
    )
    assert (encoder.patch_size, encoder.image_size, encoder.pooling) == ((14, 14), (518, 518), "class")
    assert (encoder.mean, encoder.std) == (MEAN, STD)


@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_features_are_those_of_timms_model_with_the_same_weights(
    size: tuple[int, int], encoder: ImageEncoder, weights: dict[str, Tensor]
) -> None:
    model = timm.create_model("vit_small_patch14_dinov2", pretrained=False, dynamic_img_size=True).eval()
    model.load_state_dict({name: tensor for name, tensor in weights.items() if name != "mask_token"}, strict=True)
    pixels = normalize(images(*size))
    expected = model.forward_features(pixels)
    torch.testing.assert_close(encoder(images(*size)), expected[:, 1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(encoder.pooled(images(*size)), expected[:, 0], atol=1e-4, rtol=0)
    # Inside, some features are so large that float32 rounds their neighbors by more than that.
    inner = model.double().get_intermediate_layers(pixels.double(), 4, norm=True)
    for found, layer in zip(copy.deepcopy(encoder).double().layers(images(*size), 4), inner, strict=True):
        torch.testing.assert_close(found, layer, atol=1e-6, rtol=0)


def in_transformers(weights: dict[str, Tensor], grid: tuple[int, int]) -> Any:
    """transformers' own model with these weights, renamed here; positions are resampled to the grid as timm does."""
    transformers = pytest.importorskip("transformers")
    names = {
        r"^(cls_token|mask_token)$": r"embeddings.\1",
        r"^pos_embed$": "embeddings.position_embeddings",
        r"^patch_embed\.proj": "embeddings.patch_embeddings.projection",
        r"^norm\.": "layernorm.",
        r"^blocks\.": "encoder.layer.",
        r"\.attn\.proj\.": ".attention.o_proj.",
        r"\.ls([12])\.gamma": r".layer_scale\1.lambda1",
    }
    renamed = {"embeddings.mask_token": torch.zeros(1, 384)}  # not in the file, and not used
    for theirs, tensor in weights.items():
        name = theirs
        for pattern, replacement in names.items():
            name = re.sub(pattern, replacement, name)
        if ".attn.qkv." in name:
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                renamed[name.replace(".attn.qkv.", f".attention.{part}_proj.")] = piece
        else:
            renamed[name] = tensor
    positions = renamed["embeddings.position_embeddings"]
    square = positions[:, 1:].unflatten(1, (37, 37)).permute(0, 3, 1, 2)
    fitted = torch.nn.functional.interpolate(square, grid, mode="bicubic", antialias=True)
    fitted = square if grid == (37, 37) else fitted
    positions = torch.cat((positions[:, :1], fitted.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)
    sizes = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "patch_size": 14}
    model = transformers.Dinov2Model(transformers.Dinov2Config(**sizes, image_size=518)).eval()
    if "encoder.layer.0.attention.attention.query.weight" in model.state_dict():  # older versions
        older = {r"\.q_proj": ".attention.query", r"\.k_proj": ".attention.key", r"\.v_proj": ".attention.value"}
        for pattern, replacement in (older | {r"\.o_proj": ".output.dense"}).items():
            renamed = {re.sub(pattern, replacement, name): tensor for name, tensor in renamed.items()}
    model.load_state_dict(renamed, strict=True)
    model.embeddings.interpolate_pos_encoding = lambda embeddings, height, width: positions
    return model


@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_features_are_those_of_transformers_model_with_the_same_weights(
    size: tuple[int, int], encoder: ImageEncoder, weights: dict[str, Tensor]
) -> None:
    model = in_transformers(weights, (size[0] // 14, size[1] // 14))
    expected = model(normalize(images(*size))).last_hidden_state
    torch.testing.assert_close(encoder(images(*size)), expected[:, 1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(encoder.pooled(images(*size)), expected[:, 0], atol=1e-4, rtol=0)


def test_a_photo_is_encoded_at_the_size_it_was_trained_at(encoder: ImageEncoder) -> None:
    photo = Image.new("RGB", (640, 480), (200, 30, 90))
    assert encoder.pooled(photo).numpy().shape == (1, 384)


@pytest.mark.parametrize("kind", ["timm", "hf"])
@torch.no_grad()
def test_an_export_comes_back_with_the_same_features(kind: str, encoder: ImageEncoder, tmp_path: Path) -> None:
    export(encoder, kind, tmp_path / "x", image_size=112)
    back = flexpredict.load(tmp_path / "x")
    assert back.image_size == (112, 112)
    torch.testing.assert_close(back(images(112, 112)), encoder(images(112, 112)), atol=1e-4, rtol=0)


def test_the_published_code_of_ijepa_has_no_place_for_layer_scale(encoder: ImageEncoder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no place for blocks\.ls1\.gamma.* Use format=timm"):
        export(encoder, "official", tmp_path / "x.pth.tar")
    assert not list(tmp_path.iterdir())


@torch.no_grad()
def test_pretraining_goes_on_from_it_at_another_size(
    encoder: ImageEncoder, weights: dict[str, Tensor], tmp_path: Path
) -> None:
    recipe = make_recipe({"data": "scenes:16,size=32", "init_from": str(_FOUND[0])})
    initial, source = initial_weights(recipe), open_images("scenes:16,size=32")
    plan = make_plan(adopted(recipe, initial, source), source, torch.device("cpu"), 1)
    model = plan.build_model()
    notes = start_from(model, initial)
    assert any("the rest of the model" in note and "is new" in note for note in notes)
    context, target = model.context_encoder, model.target_encoder
    assert context.grid == (8, 8)
    for name in ("cls_token", "blocks.3.ls1.gamma", "blocks.11.mlp.fc2.weight"):
        assert torch.equal(context.vit.state_dict()[name], weights[name])
    expected = encoder.tokens(images(112, 112))[0]
    for started in (context.eval(), target.eval()):
        tokens = started.last_tokens(normalize(images(112, 112)), 1)[0]
        torch.testing.assert_close(tokens[:, 1:], expected.patches, atol=1e-4, rtol=0)
        torch.testing.assert_close(tokens[:, 0], expected.class_token, atol=1e-4, rtol=0)


def test_every_evaluation_takes_it(encoder: ImageEncoder, tmp_path: Path) -> None:
    small: dict[str, Any] = {"image_size": 56, "accelerator": "cpu", "out": None}
    train, test = "scenes:40,size=32", "scenes:20,size=32,split=test"
    quick: dict[str, Any] = {"labels": [1.0], "l2": 0.1, "neighbors": 3}
    verbs: dict[str, Callable[[], Any]] = {
        "probe": lambda: flexpredict.probe(encoder, train, test, **small, **quick),
        "transfer": lambda: flexpredict.transfer(encoder, ["scenes:40,size=32"], **small, **quick)[0],
        "clevr": lambda: flexpredict.evaluate_clevr(encoder, "scenes:40,size=32", **small, l2=0.1)[0],
        "location": lambda: flexpredict.evaluate_location(encoder, train, test, shifts=0, **small),
        "segmentation": lambda: flexpredict.evaluate_segmentation(encoder, train, test, neighbors=0, **small),
        "depth": lambda: flexpredict.evaluate_depth(encoder, train, test, **small),
        "davis": lambda: flexpredict.evaluate_davis(
            encoder, data="scenes:1,size=32,frames=3", height=56, out=tmp_path / "davis", accelerator="cpu"
        ),
    }
    for name, verb in verbs.items():
        result = verb()
        assert result.encoder == encoder.what and result.protocol["fingerprint"] == encoder.fingerprint(), name
        assert all(number == number for number in result.numbers.values()), name
