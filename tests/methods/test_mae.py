"""MAE: the loss of Hugging Face's with the same weights; stochastic positions on its decoder; whole runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interrupted import assert_a_resumed_run_ends_as_if_nothing_had_happened
from safetensors.torch import load_file
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.masking import sample_masks
from flexpredict.methods.mae import MAE, patch_values
from flexpredict.model.building import build_encoder
from flexpredict.model.predictor import Predictor
from flexpredict.randomness import sample_keys
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.settings.masking import Masking
from flexpredict.settings.positions import Positions
from flexpredict.torchvision_repair import repair

repair()
transformers = pytest.importorskip("transformers")


def make(normalize_pixels: bool = True, class_token: bool = True, **positions: Any) -> MAE:
    options = {"embed_dim": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 2}
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, class_token=class_token, options=options)
    settings = Positions(**{"kind": "sincos", **positions})
    predictor = Predictor(32, (4, 4), 24, 2, 2, settings, output_dim=patch_values(encoder))
    return MAE(encoder, predictor, normalize_pixels, settings.l1)


def inputs(rows: int = 3, contexts: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    masks = sample_masks(Masking(kind="random", contexts_per_image=contexts), (4, 4), 5, rows)
    keys = sample_keys(9, torch.arange(rows * contexts).view(rows, contexts))
    return torch.randn(rows, 3, 32, 32), masks.context, masks.targets, keys


def hugging_face(model: MAE, normalize_pixels: bool) -> Any:
    """Hugging Face's model with the weights of ours."""
    config = transformers.ViTMAEConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        decoder_hidden_size=24, decoder_num_hidden_layers=2, decoder_num_attention_heads=2,
        decoder_intermediate_size=96, layer_norm_eps=1e-6, norm_pix_loss=normalize_pixels, mask_ratio=0.75,
    )  # fmt: skip
    theirs = transformers.ViTMAEForPreTraining(config)
    vit, decoder = model.context_encoder.vit, model.predictor
    theirs.vit.embeddings.cls_token.data = vit.cls_token.data
    copy(theirs.vit.embeddings.patch_embeddings.projection, vit.patch_embed.proj)
    copy(theirs.vit.layernorm, vit.norm)
    copy(theirs.decoder.decoder_embed, decoder.projection)
    copy(theirs.decoder.decoder_norm, decoder.norm)
    copy(theirs.decoder.decoder_pred, decoder.output)
    theirs.decoder.mask_token.data = decoder.mask_token.data.view(1, 1, -1)
    theirs.vit.embeddings.position_embeddings.data = vit.pos_embed.data
    theirs.decoder.decoder_pos_embed.data = torch.cat((torch.zeros(1, 24), decoder.positions))[None]
    for layers, blocks in ((theirs.vit.layers, vit.blocks), (theirs.decoder.decoder_layers, decoder.blocks)):
        for layer, block in zip(layers, blocks, strict=True):
            copy_block(layer, block)
    return theirs


def copy(theirs: torch.nn.Module, ours: torch.nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def copy_block(layer: torch.nn.Module, block: Any) -> None:
    parts = dict(layer.named_modules())
    names = [name for name, part in parts.items() if isinstance(part, (torch.nn.Linear, torch.nn.LayerNorm))]
    norms = [name for name in names if isinstance(parts[name], torch.nn.LayerNorm)]
    linear = [name for name in names if name not in norms]
    copy(parts[norms[0]], block.norm1)
    copy(parts[norms[1]], block.norm2)
    weights, biases = block.attn.qkv.weight.chunk(3), block.attn.qkv.bias.chunk(3)
    for name, weight, bias in zip(linear[:3], weights, biases, strict=True):
        parts[name].weight.data, parts[name].bias.data = weight.data.clone(), bias.data.clone()
    for name, ours in zip(linear[3:], (block.attn.proj, block.mlp.fc1, block.mlp.fc2), strict=True):
        copy(parts[name], ours)


@pytest.mark.parametrize("normalize_pixels", [True, False])
def test_the_loss_is_that_of_hugging_faces_mae_with_the_same_weights_and_mask(normalize_pixels: bool) -> None:
    model = make(normalize_pixels)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, which are 0 and 1 at the start
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
        model.context_encoder.vit.pos_embed.copy_(make().context_encoder.vit.pos_embed)
    images, context, targets, keys = inputs()
    ours = model(images, context, targets, keys)
    # Theirs keeps the patches with the smallest numbers.
    numbers = torch.ones(3, 16).scatter(1, context[:, 0], 0.0)
    theirs = hugging_face(model, normalize_pixels)(images, noise=numbers)
    torch.testing.assert_close(ours.loss, theirs.loss, atol=1e-5, rtol=1e-5)
    pixels = theirs.logits.gather(1, targets[:, 0, 0].unsqueeze(-1).expand(-1, -1, 192))
    torch.testing.assert_close(ours.predictions[:, 0], pixels, atol=1e-5, rtol=1e-5)


def test_the_class_token_is_seen_by_the_decoder() -> None:
    model, data = make(), inputs()
    before = model(*data).predictions
    with torch.no_grad():
        model.context_encoder.vit.cls_token.add_(1.0)
        for block in model.context_encoder.vit.blocks:  # so that it cannot reach the patches in the encoder
            block.attn.proj.weight.zero_()
    closed = model(*data).predictions
    with torch.no_grad():
        model.context_encoder.vit.cls_token.add_(torch.arange(32.0))
    assert not torch.equal(before, closed) and not torch.equal(closed, model(*data).predictions)


def test_every_trained_parameter_learns_and_there_is_no_average() -> None:
    model = make(kind="stochastic")
    model(*inputs()).loss.backward()
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert [name for name, gradient in trained.items() if gradient is None or not gradient.any()] == []
    assert not hasattr(model, "target_encoder") and model.after_step(0.9) == {}
    assert model.saved_encoder[0] is model.context_encoder


def test_hidden_pixels_cannot_be_seen_by_the_decoder() -> None:
    model = make()
    images, context, targets, keys = inputs(1)
    before = model(images, context, targets, keys).predictions
    for patch in targets.flatten().tolist():
        row, column = divmod(patch, 4)
        images[0, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 7.0
    assert torch.equal(model(images, context, targets, keys).predictions, before)


def test_noise_is_on_masked_tokens_through_the_decoders_embedding_and_zero_noise_is_sincos() -> None:
    data = inputs()
    plain = make()(*data).predictions
    assert torch.equal(make(kind="stochastic", noise_std=0.0)(*data).predictions, plain)
    noisy = make(kind="stochastic", noise_std=1.0)
    assert noisy.predictor.stochastic.projection is noisy.predictor.projection
    assert not torch.equal(noisy(*data).predictions, plain)
    with torch.no_grad():
        noisy.predictor.projection.weight.zero_()
    silent = make()
    silent.load_state_dict(noisy.state_dict())
    assert torch.equal(noisy(*data).predictions, silent(*data).predictions)


def test_several_contexts_of_an_image_equal_the_image_seen_several_times() -> None:
    model = make(kind="stochastic", class_token=False)
    images, context, targets, keys = inputs(2, contexts=3)
    together = model(images, context, targets, keys)
    flat = [part.flatten(0, 1).unsqueeze(1) for part in (context, targets, keys)]
    repeated = model(images.repeat_interleave(3, dim=0), *flat)
    torch.testing.assert_close(together.predictions, repeated.predictions)
    torch.testing.assert_close(together.targets, repeated.targets)


def test_a_run_says_its_defaults_learns_and_saves_the_encoder_it_trained(pictures: str, tmp_path: Path) -> None:
    pretrain(pictures, tmp_path / "run", **{**RECIPE, "epochs": 12, "optimizer": {"lr": 3e-3}}, method="mae")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["method"] == "mae" and config["encoder_positions"] == "sincos"
    assert (config["masking"]["kind"], config["masking"]["mask_ratio"]) == ("random", 0.75)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < 0.9 * records[0]["loss"]
    assert records[-1]["noise_to_signal"] == 0 and "ema_momentum" not in records[-1]
    saved = load_file(tmp_path / "run" / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in read_encoder(tmp_path / "run").encoder.vit.state_dict().items():
        assert torch.equal(tensor, saved[f"context_encoder.vit.{name}"])


def test_an_interrupted_run_ends_bit_identical(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**RECIPE, "method": "mae", "class_token": True}
    assert_a_resumed_run_ends_as_if_nothing_had_happened(MAE, pictures, tmp_path, recipe, monkeypatch)
