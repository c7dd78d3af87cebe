"""Encoders of timm, of transformers and of our own runs give what their libraries give, or say why they cannot."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import HUGGING_FACE, SIZES, SMALL, saved_model, timm_encoder, unsettled
from torch import Tensor

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform
from flexpredict.runs.encoder_file import read_encoder


def pictures(height: int = 32, width: int = 32, count: int = 2) -> Tensor:
    return uniform(sample_keys(5, torch.arange(count)), 3 * height * width).mul(255).byte().view(-1, 3, height, width)


def normalized(images: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    """Written independently: first to [0, 1], then by mean and deviation."""
    return (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# timm

TRANSFORMERS = {
    "class token": ("vit_tiny_patch16_224", {"patch_size": 8, "dynamic_img_size": True}, "class"),
    "no class token": (
        "vit_tiny_patch16_224",
        {"patch_size": 8, "class_token": False, "global_pool": "avg", "dynamic_img_size": True},
        "mean",
    ),
    "registers": ("vit_small_patch14_reg4_dinov2", {"patch_size": 8, "dynamic_img_size": True}, "class"),
    "registers alone": (
        "vit_small_patch14_reg4_dinov2",
        {"patch_size": 8, "class_token": False, "global_pool": "avg", "dynamic_img_size": True},
        "mean",
    ),
    "eva": ("eva02_tiny_patch14_224", {"patch_size": 8, "dynamic_img_size": True}, None),
    "beit": ("beit_base_patch16_224", {"patch_size": 8}, "mean"),
    "relative positions": ("vit_relpos_small_patch16_224", {"patch_size": 8, "class_token": False}, "mean"),
    "distilled": ("deit_tiny_distilled_patch16_224", {"patch_size": 8, "dynamic_img_size": True}, "class"),
}


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_layers_and_vectors_of_a_timm_transformer_are_its_own(kind: str) -> None:
    name, options, pooling = TRANSFORMERS[kind]
    encoder = timm_encoder(name, **SMALL, **options)
    model, images = encoder.model, pictures()
    inputs = normalized(images, model.pretrained_cfg["mean"], model.pretrained_cfg["std"])
    assert (encoder.dim, encoder.depth, encoder.patch_size) == (24, 3, (8, 8))
    assert pooling in (None, encoder.pooling)
    features = model.forward_features(inputs)
    (last,) = encoder.tokens(images)
    close(last.patches, features[:, model.num_prefix_tokens :])
    assert last.patches.shape == (2, 16, 24)
    if options.get("class_token", True):
        assert last.class_token is not None
        close(last.class_token, features[:, 0])
        close(encoder.pooled(images, 2, "class")[:, 24:], features[:, 0])
    else:
        assert last.class_token is None
        with pytest.raises(UserError, match=f"needs a class token, and a small {name} has none"):
            encoder.pooled(images, pooling="class")
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    inner = model.forward_intermediates(
        inputs, indices=[0, 1, 2], norm=True, output_fmt="NLC", intermediates_only=True
    )
    for found, expected in zip(encoder.tokens(images, 3), inner, strict=True):
        close(found.patches, expected)
    two = torch.cat([expected.mean(dim=1) for expected in inner[1:]], dim=1)
    close(encoder.pooled(images, 2, "mean"), two)


@pytest.mark.parametrize("kind", ["class token", "registers", "eva"])
def test_timm_transformers_take_other_sizes_as_timm_does(kind: str) -> None:
    name, options, _ = TRANSFORMERS[kind]
    encoder = timm_encoder(name, **SMALL, **options)
    images = pictures(48, 40)
    cfg = encoder.model.pretrained_cfg
    expected = encoder.model.forward_features(normalized(images, cfg["mean"], cfg["std"]))
    close(encoder.tokens(images)[0].patches, expected[:, encoder.model.num_prefix_tokens :])
    with pytest.raises(UserError, match=r"48x41 cannot be cut into the 8x8 patches .* image_size=48x40"):
        encoder.layers(pictures(48, 41))


def test_a_model_whose_positions_are_fixed_says_so() -> None:
    name, options, _ = TRANSFORMERS["beit"]
    with pytest.raises(UserError, match=r"takes images of 32x32 only, not of 48x48.*Leave image_size out"):
        timm_encoder(name, **SMALL, **options).pooled(pictures(48, 48))


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto"])
def test_cells_of_a_convolutional_network_are_its_patches(name: str) -> None:
    encoder = open_encoder(f"timm:{name},pretrained=no")
    assert isinstance(encoder, TimmEncoder)
    model, images = encoder.model, pictures(64, 96)
    features = model.forward_features(normalized(images))
    (last,) = encoder.tokens(images)
    close(last.patches, features.flatten(2).mT)
    assert last.patches.shape == (2, 6, encoder.dim) and last.class_token is None
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    inner = model.forward_intermediates(normalized(images), indices=2, norm=True, intermediates_only=True)
    close(encoder.pooled(images, 2), torch.cat([cells.mean(dim=(2, 3)) for cells in inner], dim=1))
    assert encoder.pooled(pictures(70, 70)).shape == (2, model.num_features), "no patches that must be filled"


def test_swin_gives_its_own_vector_and_refuses_other_sizes_in_words() -> None:
    model = timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=2,
        embed_dim=12,
        num_heads=(2, 2, 2, 2),
        num_classes=0,
    )
    encoder = TimmEncoder(unsettled(model), "timm:swin", "a small swin", (64, 64)).eval()
    images = pictures(64, 64)
    features = model.forward_features(normalized(images))  # B H W C
    close(encoder.tokens(images)[0].patches, features.flatten(1, 2))
    close(encoder.pooled(images), model.forward_head(features, pre_logits=True))
    with pytest.raises(UserError, match="64x64 only, not of 96x64"):
        encoder.pooled(pictures(96, 64))


def test_a_size_that_fails_inside_the_model_is_refused_in_words() -> None:
    encoder = open_encoder("timm:resnet18,pretrained=no")
    assert isinstance(encoder, TimmEncoder)
    encoder.model.layer4.register_forward_pre_hook(lambda module, inputs: inputs[0].view(2, 256, 14, 14) and None)
    with pytest.raises(UserError, match=r"trained at 224x224 and cannot take images of 64x64 \(shape"):
        encoder.pooled(pictures(64, 64))


def test_attention_pooling_is_a_models_own_way_and_not_a_mean() -> None:
    options = {"patch_size": 8, "class_token": False, "global_pool": "map"}
    encoder = timm_encoder("vit_tiny_patch16_224", **SMALL, **options)
    images = pictures()
    features = encoder.model.forward_features(normalized(images, (0.5,) * 3, (0.5,) * 3))
    close(encoder.pooled(images), encoder.model.forward_head(features, pre_logits=True))
    close(encoder.pooled(images, pooling="mean"), features.mean(dim=1))
    assert (encoder.pooling_in_words(None), encoder.pooling_in_words("mean")) == ("map", "mean")


def test_untrained_weights_are_a_function_of_the_seed_alone() -> None:
    names = [f"timm:test_vit,pretrained=no{seed}" for seed in ("", ",seed=0", ",seed=1")]
    torch.rand(3)
    first, same, other = (open_encoder(name).fingerprint() for name in names)
    assert first == same != other


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:resnet81,pretrained=no", "no model named 'resnet81'. Did you mean 'resnet18'"),
        ("timm:resnet18,pretraind=no", "'pretraind' in .* is not an option. Did you mean 'pretrained'"),
        ("timm:resnet18,pretrained=maybe", "Write it like timm:resnet18,pretrained=no,seed=0"),
        ("timm:resnet18,pretrained=no,seed=x", "Write it like"),
        ("timm:resnet18", "could not be loaded: .*timm:resnet18,pretrained=no is the untrained model"),
        ("timm:densenet121,pretrained=no", "does not give its inner features"),
        ("tim:resnet18", "There is no encoder 'tim:resnet18' .* Did you mean 'timm'"),
        ("hf:", "hf: needs a name"),
        ("hf:nobody/nothing", "hf:nobody/nothing could not be loaded: .*the network is needed"),
        ("runs/none", "There is no encoder 'runs/none'"),
    ],
)
def test_names_that_stand_for_nothing_are_refused_in_words(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"(?s){message}"):
        open_encoder(name)


# transformers


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_layers_of_a_hugging_face_model_are_its_own(kind: str, tmp_path: Path) -> None:
    model = saved_model(tmp_path, kind)
    _, _, prefix, pooling = HUGGING_FACE[kind]
    encoder = open_encoder(f"hf:{tmp_path}")
    assert (encoder.dim, encoder.depth, encoder.pooling) == (24, 3, pooling)
    images = pictures()
    with torch.no_grad():
        output = model(pixel_values=normalized(images), output_hidden_states=True)
        last = output.last_hidden_state
        found = encoder.tokens(images, 3)
        close(found[-1].patches, last[:, prefix:])
        assert found[-1].patches.shape == (2, 16, 24)
        if prefix:
            assert found[-1].class_token is not None
            close(found[-1].class_token, last[:, 0])
        close(encoder.pooled(images), last[:, 0] if pooling == "class" else last[:, prefix:].mean(dim=1))
        # A model that ends after its second layer has the second layer as its last, with the norm.
        blocks = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == 3)
        del blocks[2]
        model.config.num_hidden_layers = 2
        close(found[1].patches, model(pixel_values=normalized(images)).last_hidden_state[:, prefix:])


@pytest.mark.parametrize("kind", ["ijepa", "vit", "dinov2", "dinov2 with registers", "beit, relative"])
def test_hugging_face_models_take_other_sizes(kind: str, tmp_path: Path) -> None:
    model = saved_model(tmp_path, kind)
    prefix = HUGGING_FACE[kind][2]
    images = pictures(48, 40)
    interpolated = {} if kind.startswith("dinov2") else {"interpolate_pos_encoding": True}
    expected = model(pixel_values=normalized(images), **interpolated).last_hidden_state[:, prefix:]
    found = open_encoder(f"hf:{tmp_path}").tokens(images)[0].patches
    close(found, expected)
    assert found.shape == (2, 30, 24)


@pytest.mark.parametrize("size", [(32, 32), (48, 40)])
def test_a_masked_autoencoder_sees_the_whole_image_in_order(size: tuple[int, int], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTMAEConfig(**SIZES, intermediate_size=48, mask_ratio=0.75)
    model = unsettled(transformers.ViTMAEModel(config))
    model.save_pretrained(tmp_path)
    images = pictures(*size)
    with torch.no_grad():
        # The encoder by hand, without the masking that its embeddings do.
        embeddings, inputs = model.embeddings, normalized(images)
        patches = embeddings.patch_embeddings.projection(inputs).flatten(2).mT
        positions = embeddings.position_embeddings
        if size != (32, 32):
            around = torch.cat((patches[:, :1], patches), dim=1)
            positions = embeddings.interpolate_pos_encoding(around, *size)
        first = (embeddings.cls_token + positions[:, :1]).expand(2, -1, -1)
        tokens = torch.cat((first, patches + positions[:, 1:]), dim=1)
        blocks = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))
        for block in blocks:
            output = block(tokens)
            tokens = output[0] if isinstance(output, tuple) else output
        expected = model.layernorm(tokens)
        (found,) = open_encoder(f"hf:{tmp_path}").tokens(images)
    close(found.patches, expected[:, 1:])
    assert found.class_token is not None
    close(found.class_token, expected[:, 0])


def test_pixels_are_normalized_as_the_folder_says(tmp_path: Path) -> None:
    model = saved_model(tmp_path, "ijepa")
    before = open_encoder(f"hf:{tmp_path}")
    half = [0.5, 0.5, 0.5]
    settings = {"image_processor_type": "ViTImageProcessor", "image_mean": half, "image_std": half}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    encoder = open_encoder(f"hf:{tmp_path}")
    inputs = normalized(pictures(), (0.5,) * 3, (0.5,) * 3)
    close(encoder.tokens(pictures())[0].patches, model(pixel_values=inputs).last_hidden_state)
    assert encoder.fingerprint() != before.fingerprint(), "the same weights make something else of the same images"


def test_half_precision_weights_are_evaluated_in_full(tmp_path: Path) -> None:
    saved_model(tmp_path, "vit").bfloat16().save_pretrained(tmp_path)
    encoder = open_encoder(f"hf:{tmp_path}")
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


def test_a_file_without_pooler_gives_the_same_encoder_each_time_and_one_without_a_block_none(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved_model(tmp_path, "vit")
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    first = open_encoder(f"hf:{tmp_path}").fingerprint()
    torch.rand(5)
    assert open_encoder(f"hf:{tmp_path}").fingerprint() == first
    kept = {name: tensor for name, tensor in kept.items() if "layernorm" not in name}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lacks \d+ of the weights of a ViTModel, for example .*layernorm"):
        open_encoder(f"hf:{tmp_path}")


def test_folders_of_other_models_are_refused_in_words(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty could not be loaded"):
        open_encoder(f"hf:{tmp_path / 'empty'}")
    config = transformers.BertConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=50
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "text")
    with pytest.raises(UserError, match="is a BertModel, not a vision transformer with patches"):
        open_encoder(f"hf:{tmp_path / 'text'}")
    swin = transformers.SwinConfig(image_size=32, patch_size=2, embed_dim=12, depths=[1, 1], num_heads=[2, 2])
    transformers.SwinModel(swin).save_pretrained(tmp_path / "swin")
    with pytest.raises(UserError, match="not one for each patch"):
        open_encoder(f"hf:{tmp_path / 'swin'}").layers(pictures())


# Our own


def test_a_run_gives_its_target_encoder_and_on_demand_its_context_encoder(finished: Path) -> None:
    from safetensors.torch import load_file

    target, context = open_encoder(finished), open_encoder(finished, which="context")
    assert target.what == f"target encoder of {finished} after step 18"
    assert context.what == f"context encoder of {finished} after step 18"
    weights = load_file(finished / "checkpoints" / "last" / "model.safetensors")
    for encoder, which in ((target, "target"), (context, "context")):
        reference = read_encoder(finished).encoder
        own = {key.removeprefix(f"{which}_encoder.vit."): value for key, value in weights.items()}
        reference.vit.load_state_dict(own, strict=False)
        images = pictures(32, 40)
        close(encoder.tokens(images)[0].patches, reference(normalized(images)))
    assert target.fingerprint() != context.fingerprint()


def test_an_encoder_file_is_the_target_encoder_and_has_no_other(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    shutil.copy(finished / "encoder.safetensors", file)
    encoder = open_encoder(file)
    assert encoder.what == f"target encoder of {file} after step 18"
    assert encoder.fingerprint() == open_encoder(finished).fingerprint()
    with pytest.raises(UserError, match="context encoder is in the checkpoints of a run"):
        open_encoder(file, which="context")
    (tmp_path / "no_run").mkdir()
    with pytest.raises(UserError, match="neither a run folder nor"):
        open_encoder(tmp_path / "no_run")


# All of them


def encoders(run: Path, folder: Path) -> list[Any]:
    model = saved_model(folder, "vit")
    return [
        open_encoder(run),
        timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8),
        HuggingFaceEncoder(model, "hf:tiny", "a tiny one").eval(),
    ]


def test_one_changed_weight_makes_another_fingerprint(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        before = encoder.fingerprint()
        assert encoder.fingerprint() == before
        with torch.no_grad():
            next(encoder.parameters()).view(-1)[0] += 1e-3
        assert encoder.fingerprint() != before, encoder.what


def test_gradients_flow_through_the_vector_of_an_image_to_all_blocks(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        encoder.requires_grad_().pooled(pictures()).square().sum().backward()
        weights = {name: value for name, value in encoder.named_parameters() if ".mlp." in name or "attn" in name}
        assert weights and all(bool(value.grad.any()) for name, value in weights.items() if "weight" in name)


def test_more_layers_than_there_are_and_arrays_that_are_no_images_are_refused(finished: Path, tmp_path: Path) -> None:
    for encoder in encoders(finished, tmp_path):
        with pytest.raises(UserError, match=rf"last {encoder.depth + 1} layers .* Ask for 1 to {encoder.depth}"):
            encoder.layers(pictures(), encoder.depth + 1)
        with pytest.raises(UserError, match=r"Images of int64 are not accepted. Give uint8"):
            encoder.pooled(pictures().long())
        with pytest.raises(UserError, match="no three color channels"):
            encoder.pooled(pictures()[:, :1])
