"""The encoder is timm's, on any subset of its patches."""

import pytest
import torch

from flexpredict.errors import UserError
from flexpredict.model.blocks import block_at
from flexpredict.model.building import build_encoder, model_facts
from flexpredict.model.encoder import Encoder
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import Block, timm

SMALL = {"embed_dim": 32, "depth": 3, "num_heads": 2}
# With and without class token, registers, layer scale, norm before the blocks, parallel blocks, position of prefix.
MODELS = [
    "vit_tiny_patch16_224",
    "vit_base_patch14_reg4_dinov2",
    "vit_base_patch16_clip_224",
    "deit3_small_patch16_224",
    "vit_base_patch16_siglip_gap_224",
    "vit_base_patch16_xp_224",
    "vit_betwixt_patch16_reg4_gap_256",
]


def shake(model: torch.nn.Module) -> None:
    """Random values everywhere, so that no bias, token or scale can hide at zero or one."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def timm_model(name: str, size: tuple[int, int], **options: object) -> torch.nn.Module:
    model = timm.create_model(
        name, num_classes=0, global_pool="", fc_norm=False, img_size=size, patch_size=8, **SMALL, **options
    ).eval()
    shake(model)
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_all_patches_give_plain_timms_output(name: str, size: tuple[int, int]) -> None:
    model = timm_model(name, size)
    images = torch.randn(2, 3, *size)
    expected = model.forward_features(images)[:, model.num_prefix_tokens :]
    encoder = Encoder(model)
    torch.testing.assert_close(encoder(images), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoder.last_layers(images)[-1], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layers_are_timms_intermediates(name: str) -> None:
    model = timm_model(name, (32, 32))
    images = torch.randn(2, 3, 32, 32)
    expected = model.forward_intermediates(images, indices=2, norm=True, output_fmt="NLC", intermediates_only=True)
    for ours, theirs in zip(Encoder(model).last_layers(images, 2), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_subset_equals_timm_with_the_other_patches_cut_out(name: str) -> None:
    """Independent of our own embedding code: timm's tokens after positions, cut by hand, through timm's blocks."""
    model = timm_model(name, (32, 32))
    images = torch.randn(3, 3, 32, 32)
    keep = torch.stack([torch.randperm(16)[:5] for _ in range(3)])
    prefix = model.num_prefix_tokens
    tokens = model._pos_embed(model.patch_embed(images))
    cut = torch.stack([torch.cat((row[:prefix], row[prefix:][kept])) for row, kept in zip(tokens, keep, strict=True)])
    expected = model.norm(model.blocks(model.norm_pre(cut)))[:, prefix:]
    torch.testing.assert_close(Encoder(model)(images, keep=keep), expected, atol=1e-5, rtol=1e-4)


def test_hidden_patches_cannot_influence_the_features_of_the_kept() -> None:
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL).eval()
    images = torch.randn(1, 3, 32, 32)
    keep = torch.tensor([[0, 1, 6]])
    before = encoder(images, keep=keep)
    images[:, :, 24:, :] += 10.0
    assert torch.equal(encoder(images, keep=keep), before)
    images[:, :, :8, :8] += 10.0
    assert not torch.allclose(encoder(images, keep=keep), before)


@pytest.mark.parametrize("name", MODELS)
def test_reading_some_patches_equals_reading_all_and_choosing(name: str) -> None:
    encoder = Encoder(timm_model(name, (32, 32)))
    images, read = torch.randn(2, 3, 32, 32), torch.tensor([[3, 3, 15], [0, 7, 2]])
    everything = encoder(images)
    expected = torch.stack([row[chosen] for row, chosen in zip(everything, read, strict=True)])
    torch.testing.assert_close(encoder(images, read=read), expected, atol=1e-5, rtol=1e-4)


def test_several_masks_of_one_image_equal_the_image_repeated() -> None:
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL)
    images = torch.randn(2, 3, 32, 32)
    keep = torch.stack([torch.randperm(16)[:5] for _ in range(6)])
    torch.testing.assert_close(encoder(images, keep=keep), encoder(images.repeat_interleave(3, dim=0), keep=keep))


def test_a_block_where_it_is_read_equals_the_whole_block_and_its_gradients() -> None:
    torch.manual_seed(0)
    block = Block(32, 4, qkv_bias=True, qk_norm=True, init_values=0.1)
    tokens = torch.randn(2, 9, 32, requires_grad=True)
    whole = block(tokens)[:, 4:]
    part = block_at(block, tokens, slice(4, None))
    torch.testing.assert_close(part, whole)
    weights = torch.randn_like(whole)
    for ours, theirs in zip(
        torch.autograd.grad((part * weights).sum(), [tokens, *block.parameters()]),
        torch.autograd.grad((whole * weights).sum(), [tokens, *block.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_base_patch14_reg4_dinov2"])
@pytest.mark.parametrize("class_token", [True, False])
def test_sincos_positions_fill_timms_own_table_and_are_not_trained(name: str, class_token: bool) -> None:
    encoder = build_encoder(name, (24, 40), 8, class_token=class_token, options=SMALL)
    table = encoder.vit.pos_embed
    patches = table[0, -15:]
    assert torch.equal(patches, sincos_positions((3, 5), 32))
    assert not table[0, :-15].any() and not table.requires_grad
    reloaded = timm.create_model(
        name, num_classes=0, global_pool="", fc_norm=False, img_size=(24, 40), patch_size=8, class_token=class_token,
        **SMALL,
    )  # fmt: skip
    reloaded.load_state_dict(encoder.vit.state_dict())
    images = torch.randn(2, 3, 24, 40)
    expected = reloaded.eval().forward_features(images)[:, reloaded.num_prefix_tokens :]
    torch.testing.assert_close(encoder.eval()(images), expected, atol=1e-5, rtol=1e-4)


def test_another_image_size_computes_sincos_anew_and_interpolates_learned() -> None:
    images = torch.randn(1, 3, 48, 64)
    small = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL).eval()
    large = build_encoder("vit_tiny_patch16_224", (48, 64), 8, options=SMALL).eval()
    weights = {name: value for name, value in small.vit.state_dict().items() if name != "pos_embed"}
    large.vit.load_state_dict(weights, strict=False)
    torch.testing.assert_close(small(images), large(images))

    learned = timm_model("vit_tiny_patch16_224", (32, 32), dynamic_img_size=True)
    expected = learned.forward_features(images)[:, 1:]
    torch.testing.assert_close(Encoder(learned)(images), expected, atol=1e-5, rtol=1e-4)


def test_initial_weights_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(5)
    first = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL, seed=3).state_dict()
    global_state = torch.random.get_rng_state()
    torch.manual_seed(6)
    second = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL, seed=3).state_dict()
    other = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL, seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["vit.blocks.0.attn.qkv.weight"], other["vit.blocks.0.attn.qkv.weight"])
    torch.manual_seed(5)
    assert torch.equal(torch.random.get_rng_state(), global_state), "the global generator is left alone"


def test_model_facts_are_read_without_building_the_weights() -> None:
    facts = model_facts("vit_huge_patch14_224")
    assert (facts.dim, facts.depth, facts.heads, facts.patch_size) == (1280, 32, 16, 14)


@pytest.mark.parametrize(
    ("name", "size", "patch", "words"),
    [
        ("vit_tiny_patch16_225", (64, 64), 8, "Did you mean 'vit_tiny_patch16_224'"),
        ("resnet50", (64, 64), 8, "not a plain vision transformer"),
        ("vit_small_r26_s32_224", (224, 224), None, "not a plain vision transformer"),
        ("vit_tiny_patch16_224", (60, 64), 8, "does not divide"),
        ("vit_tiny_patch16_224", (4, 4), 8, "smaller than a patch"),
    ],
)
def test_what_cannot_be_built_is_refused_in_words(
    name: str, size: tuple[int, int], patch: int | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        build_encoder(name, size, patch)


def test_asking_for_more_layers_than_there_are_is_refused() -> None:
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=SMALL)
    with pytest.raises(UserError, match="Ask for 1 to 3"):
        encoder.last_layers(torch.zeros(1, 3, 32, 32), 4)
    with pytest.raises(UserError, match="cannot be cut into patches"):
        encoder(torch.zeros(1, 3, 33, 32))
