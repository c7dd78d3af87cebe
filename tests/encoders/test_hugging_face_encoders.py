"""Encoders of transformers give what transformers gives, or say why they cannot."""

import json
from pathlib import Path

import pytest
import torch
from foreign_models import (
    HUGGING_FACE,
    SIZES,
    close,
    normalized,
    pictures,
    saved_model,
    unsettled,
)

from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError


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
    with pytest.raises(UserError, match="does not give one feature for each patch"):
        open_encoder(f"hf:{tmp_path / 'swin'}").layers(pictures())
