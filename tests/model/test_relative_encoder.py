"""An encoder with relative positions is timm's Beit, on any subset of its patches and on any grid."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import flexpredict
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.building import build_encoder, model_facts
from flexpredict.model.encoder import Encoder
from flexpredict.model.predictor import Predictor
from flexpredict.model.relative_encoder import RelativeEncoder, displacements, resized_table
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys
from flexpredict.runs.encoder_file import EncoderSpec, read_encoder, save_encoder

SMALL: dict[str, Any] = {"embed_dim": 32, "depth": 3, "num_heads": 4}
KINDS: dict[str, dict[str, Any]] = {
    "a table in each block": {},
    "one table": {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
    "both": {"use_shared_rel_pos_bias": True},
    "absolute positions besides": {"use_abs_pos_emb": True},
    "no layer scales, no bias": {"init_values": 0.0, "qkv_bias": False},
    "no final norm": {"global_pool": "avg", "use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
}
everything = pytest.mark.parametrize("kind", KINDS)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return normal(torch.tensor(seed), torch.Size(shape).numel()).view(shape)


def encoder_of(kind: str, size: tuple[int, int] = (32, 32), scale: float = 0.1) -> RelativeEncoder:
    """With random values everywhere: a new Beit's tables are zero, and its scales small."""
    encoder = build_encoder(
        "beit_base_patch16_224", size, 8, "relative", class_token=True, options=SMALL | KINDS[kind]
    )
    assert isinstance(encoder, RelativeEncoder)
    with torch.no_grad():
        for number, (name, parameter) in enumerate(encoder.named_parameters()):
            by = 1.0 if "table" in name or "gamma" in name else scale
            parameter.add_(by * numbers(*parameter.shape, seed=number))
    return encoder.eval()


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def subsets(rows: int, kept: int, patches: int = 16) -> Tensor:
    return numbers(rows, patches, seed=9).argsort(dim=1)[:, :kept]


# The whole image


@everything
@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
@torch.no_grad()
def test_all_patches_give_timms_output(kind: str, size: tuple[int, int]) -> None:
    encoder, images = encoder_of(kind, size), numbers(2, 3, *size)
    expected = encoder.vit.forward_features(images)
    close(encoder(images), expected[:, 1:])
    close(encoder.last_tokens(images)[-1], expected)
    layers = encoder.vit.forward_intermediates(
        images, indices=2, norm=True, output_fmt="NLC", intermediates_only=True
    )
    for ours, theirs in zip(encoder.last_layers(images, 2), layers, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("library", ["Beit", "Data2VecVision"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("mean_pooling", [False, True])
@torch.no_grad()
def test_all_patches_give_the_output_of_transformers(
    library: str, shared: bool, absolute: bool, mean_pooling: bool, tmp_path: Path
) -> None:
    config = getattr(transformers, f"{library}Config")(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        use_relative_position_bias=not shared, use_shared_relative_position_bias=shared,
        use_absolute_position_embeddings=absolute, use_mean_pooling=mean_pooling, layer_norm_eps=1e-3,
    )  # fmt: skip
    model = getattr(transformers, f"{library}Model")(config).eval()
    for number, parameter in enumerate(model.parameters()):
        parameter.add_(0.3 * numbers(*parameter.shape, seed=number))
    model.save_pretrained(tmp_path)
    loaded = flexpredict.load(tmp_path)
    images = numbers(2, 3, 32, 32)
    close(loaded.encoder.last_tokens(images)[-1], model(images).last_hidden_state)
    assert isinstance(loaded.encoder, RelativeEncoder) and "relative positions" in loaded.details[0]


def test_a_pair_of_patches_has_the_row_of_timms_index() -> None:
    for grid in ((1, 1), (4, 4), (3, 5), (5, 2)):
        everything = torch.arange(grid[0] * grid[1])[None]
        assert torch.equal(displacements(grid, everything)[0], timm.models.beit.gen_relative_position_index(grid))


# Some of its patches


@everything
@torch.no_grad()
def test_a_subset_equals_the_whole_with_the_other_tokens_hidden_from_attention(kind: str) -> None:
    """Independent of our own gathering: timm's blocks on all tokens, with -inf where a token must not be seen."""
    encoder, images, keep = encoder_of(kind), numbers(3, 3, 32, 32), subsets(3, 5)
    expected = []
    for image, kept in zip(images, keep, strict=True):
        hidden = torch.full((17,), float("-inf"))
        hidden[0] = hidden[kept + 1] = 0.0
        vit = copy.deepcopy(encoder.vit)
        x = torch.cat((vit.cls_token, vit.patch_embed(image[None])), dim=1)
        x = x if vit.pos_embed is None else x + vit.pos_embed
        shared = 0.0 if vit.rel_pos_bias is None else vit.rel_pos_bias()
        for block in vit.blocks:
            x = block(x, shared_rel_pos_bias=shared + hidden.expand(4, 17, 17))
        expected.append(vit.norm(x)[0, kept + 1])
    close(encoder(images, keep=keep), torch.stack(expected))


@everything
@torch.no_grad()
def test_another_order_of_the_kept_patches_is_but_another_order_of_their_features(kind: str) -> None:
    encoder, images, keep = encoder_of(kind), numbers(2, 3, 32, 32), subsets(2, 7)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    close(encoder(images, keep=keep[:, order]), encoder(images, keep=keep)[:, order])


@everything
@torch.no_grad()
def test_reading_some_and_masking_an_image_several_times_is_choosing_and_repeating(kind: str) -> None:
    encoder, images, keep = encoder_of(kind), numbers(2, 3, 32, 32), subsets(6, 5)
    masked = encoder(images, keep=keep)
    close(masked, encoder(images.repeat_interleave(3, dim=0), keep=keep))
    read = torch.tensor([[4, 0, 0]]).expand(6, -1)
    close(encoder(images, keep=keep, read=read), masked[:, [4, 0, 0]])


@torch.no_grad()
def test_only_displacements_matter_not_places() -> None:
    encoder = encoder_of("a table in each block")
    images = numbers(1, 3, 32, 32)
    moved = images.roll((8, 16), dims=(2, 3))
    here, there = torch.tensor([[0, 1, 5]]), torch.tensor([[6, 7, 11]])
    close(encoder(images, keep=here), encoder(moved, keep=there))
    assert not torch.allclose(encoder(images, keep=here), encoder(moved.roll(8, dims=2), keep=there), atol=1e-2)


# Another grid


@pytest.mark.parametrize("new", [(6, 6), (4, 7), (3, 5), (9, 3), (12, 12)])
def test_tables_are_resized_as_timm_resizes_them(new: tuple[int, int]) -> None:
    table = numbers(7 * 7 + 3, 4)
    shape = ((2 * new[0] - 1) * (2 * new[1] - 1) + 3, 4)
    expected = timm.layers.resize_rel_pos_bias_table(table, new, shape)
    torch.testing.assert_close(resized_table(table, (4, 4), new), expected, atol=1e-4, rtol=1e-4)


def test_a_table_of_a_rectangle_turned_is_the_table_of_the_rectangle_turned() -> None:
    """timm resizes tables of squares alone; rows and columns of others must not be mixed up."""
    table = numbers(5 * 9 + 3, 2)

    def turned(table: Tensor, rows: int, columns: int) -> Tensor:
        return torch.cat((table[:-3].view(rows, columns, 2).transpose(0, 1).reshape(-1, 2), table[-3:]))

    resized = resized_table(table, (3, 5), (6, 4))
    close(turned(resized, 11, 7), resized_table(turned(table, 5, 9), (5, 3), (4, 6)))
    assert resized_table(numbers(3 + 1, 2), (1, 1), (2, 3)).shape == (3 * 5 + 3, 2)


@everything
@torch.no_grad()
def test_another_image_size_gives_the_output_of_timms_resized_model(kind: str) -> None:
    encoder, images = encoder_of(kind), numbers(2, 3, 48, 40)
    model = timm.create_model(
        "beit_base_patch16_224", img_size=(48, 40), patch_size=8, num_classes=0,
        **({"global_pool": ""} | SMALL | KINDS[kind]),
    ).eval()  # fmt: skip
    model.fc_norm = torch.nn.Identity()
    model.load_state_dict(timm.models.beit.checkpoint_filter_fn(encoder.vit.state_dict(), model))
    expected = model.forward_features(images)[:, 1:]
    torch.testing.assert_close(encoder(images), expected, atol=1e-4, rtol=1e-4)
    other = encoder.resized((6, 5))
    assert other.grid == (6, 5) and encoder.grid == (4, 4)
    close(other(images), encoder(images))
    close(other.vit.forward_features(images)[:, 1:], encoder(images))  # handed back to timm
    keep = subsets(2, 9, patches=30)
    close(other(images, keep=keep), encoder(images, keep=keep))


# Training and keeping


@everything
def test_a_step_of_ijepa_trains_the_tables_and_moves_the_target_encoder(kind: str) -> None:
    encoder = encoder_of(kind)
    method = IJEPA(encoder, Predictor(32, (4, 4), dim=16, depth=1, heads=2))
    everything = subsets(2 * 2, 16).view(2, 2, 16)
    context, targets = everything[:, :, :6], everything[:, :, None, 6:10]
    keys = sample_keys(0, torch.arange(4)).view(2, 2)
    prediction = method(numbers(2, 3, 32, 32), context, targets, keys)
    assert torch.isfinite(prediction.loss)
    prediction.loss.backward()
    tables = [name for name, _ in encoder.named_parameters() if name.endswith("relative_position_bias_table")]
    trained = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    assert len(tables) == {"one table": 1, "no final norm": 1, "both": 4}.get(kind, 3)
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in trained.values())
    assert all(trained[name].abs().sum() > 0 for name in tables)
    with torch.no_grad():
        encoder.get_parameter(tables[0]).add_(1.0)
    before = method.target_encoder.get_parameter(tables[0]).clone()
    method.update_target_encoder(0.75)
    close(method.target_encoder.get_parameter(tables[0]), before + 0.25)


@everything
def test_gradients_through_a_subset_are_those_of_timm(kind: str) -> None:
    """All patches, but said one by one, so that they go through the gathering."""
    encoder, images = encoder_of(kind), numbers(2, 3, 32, 32)
    weights = numbers(2, 16, 32, seed=4)
    ours = torch.autograd.grad(
        (encoder(images, keep=torch.arange(16).expand(2, -1)) * weights).sum(), list(encoder.parameters())
    )
    theirs = torch.autograd.grad(
        (encoder.vit.forward_features(images)[:, 1:] * weights).sum(), list(encoder.parameters())
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@everything
@torch.no_grad()
def test_an_encoder_comes_back_from_its_file(kind: str, tmp_path: Path) -> None:
    spec = EncoderSpec("beit_base_patch16_224", (24, 40), 8, "relative", True, SMALL | KINDS[kind])
    encoder, images = encoder_of(kind, (24, 40)), numbers(2, 3, 24, 40)
    save_encoder(tmp_path / "encoder.safetensors", encoder, spec, "target encoder")
    loaded, found, *_ = read_encoder(tmp_path / "encoder.safetensors")
    assert found == spec and isinstance(loaded, RelativeEncoder) and loaded.positions == "relative"
    assert torch.equal(loaded(images), encoder(images))


def test_a_new_encoder_starts_as_timms_does() -> None:
    encoder = build_encoder("beit_base_patch16_224", (32, 32), 8, "relative", class_token=True, options=SMALL)
    last = encoder.vit.blocks[-1].attn.proj.weight
    assert 0.8 < last.std() / (0.02 / 6**0.5) < 1.2, "branches of block l are divided by √(2l) once, not twice"
    assert not encoder.vit.blocks[0].attn.relative_position_bias_table.any()
    facts = model_facts("beitv2_large_patch16_224")
    assert (facts.dim, facts.depth, facts.heads, facts.relative) == (1024, 24, 16, True)
    assert not model_facts("vit_tiny_patch16_224").relative


@pytest.mark.parametrize(
    ("model", "positions", "class_token", "options", "words"),
    [
        ("beit_base_patch16_224", "sincos", True, {}, "encoder_positions=relative"),
        ("beit_base_patch16_224", "relative", False, {}, "class_token=true"),
        ("vit_tiny_patch16_224", "relative", True, {}, "no relative positions"),
        ("beit_base_patch16_224", "relative", True, {"use_rel_pos_bias": False}, "tables of relative positions"),
    ],
)
def test_positions_that_a_model_does_not_have_are_refused(
    model: str, positions: Any, class_token: bool, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        build_encoder(model, (32, 32), 8, positions, class_token, options=SMALL | options)


def test_each_encoder_refuses_the_others_models() -> None:
    beit, vit = (timm.create_model(name, img_size=32, patch_size=8, **SMALL) for name in (
        "beit_base_patch16_224", "vit_tiny_patch16_224"))  # fmt: skip
    with pytest.raises(UserError, match="Beit is not a plain vision transformer"):
        Encoder(beit)
    with pytest.raises(UserError, match="VisionTransformer is not a vision transformer with tables"):
        RelativeEncoder(vit)
