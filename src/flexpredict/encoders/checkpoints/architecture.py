"""Infers the architecture of a vision transformer from the shapes of its tensors, which have timm's names."""

import re
from typing import Any

import torch
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.model.positions import sincos_positions
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.sizes import Grid

# The usual models and their heads, by width and depth. Shapes do not tell the number of heads.
_USUAL = {
    (192, 12): ("vit_tiny_patch16_224", 3),
    (384, 12): ("vit_small_patch16_224", 6),
    (768, 12): ("vit_base_patch16_224", 12),
    (1024, 24): ("vit_large_patch16_224", 16),
    (1280, 32): ("vit_huge_patch14_224", 16),
    (1408, 40): ("vit_giant_patch14_224", 16),
    (1664, 48): ("vit_gigantic_patch14_224", 16),
}
_RELATIVE = {(768, 12): "beit_base_patch16_224", (1024, 24): "beit_large_patch16_224"}
_OTHER, _OTHER_RELATIVE = "vit_base_patch16_224", "beit_base_patch16_224"
_GATED = "vit_giant_patch14_dinov2"  # timm's model whose MLPs are SwiGLU
_TABLE = "relative_position_bias_table"
_SHARED, _OWN = f"rel_pos_bias.{_TABLE}", f"blocks.0.attn.{_TABLE}"  # one for all blocks, or one in each
_NEEDED = ("patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight")
_SIDES = dict(zip(("pos_embed", *_NEEDED), (3, 4, 2, 2), strict=True))
_GIVE_GRID = "Give its rows and columns of patches, such as grid=4x16."


def spec_of(
    tensors: dict[str, Tensor],
    where: str,
    *,
    heads: int | None = None,
    grid: Grid | None = None,
    image_size: tuple[int, int] | None = None,
    norm_eps: float = 1e-6,
    mean_pooling: bool = False,
) -> EncoderSpec:
    """How to build the encoder of these weights; arguments that are None are inferred from their shapes.

    Args:
        tensors: under timm's names.
        where: the file they come from, for messages.
        grid: rows and columns of its patches.
        mean_pooling: whether it has no final norm (a BEiT whose head takes the mean).
    """
    absent = [name for name in _NEEDED if name not in tensors]
    if absent:
        raise UserError(
            f"{where} begins like a vision transformer (patch_embed.proj.weight), but has no {', '.join(absent)}: it "
            f"is another architecture, or a part of one. It holds, for example, {', '.join(list(tensors)[:4])}."
        )
    shapes = {name: tensors[name].ndim for name in ("pos_embed", *_NEEDED) if name in tensors}
    odd = [name for name, sides in shapes.items() if sides != _SIDES[name]]
    if odd:
        raise UserError(f"{where} is not a vision transformer: its {odd[0]} has {shapes[odd[0]]} dimensions.")
    width, channels, *patch = tensors["patch_embed.proj.weight"].shape
    if channels != 3 or len(patch) != 2 or patch[0] != patch[1]:
        raise UserError(
            f"{where} cuts images of {channels} channels into patches of {'x'.join(map(str, patch))}. Encoders here "
            "take color images in square patches."
        )
    blocks = {int(found.group(1)) for found in map(_block, tensors) if found}
    depth = len(blocks)
    if max(blocks) != depth - 1:
        raise UserError(f"{where} has {depth} blocks, numbered up to {max(blocks)}: some are missing.")
    table = _relative_table(tensors, where)
    if heads is None:
        heads = _heads(width, depth, where) if table is None else table.shape[-1]
    if heads < 1 or width % heads:
        raise UserError(f"{where} has a width of {width}, which {heads} heads do not divide. Check heads={heads}.")
    fc1, fc2 = tensors["blocks.0.mlp.fc1.weight"], tensors["blocks.0.mlp.fc2.weight"]
    sizes = {"embed_dim": width, "depth": depth, "num_heads": heads, "mlp_ratio": _ratio(fc1.shape[0], width)}
    if image_size is not None and grid is None:
        grid = image_size[0] // patch[0], image_size[1] // patch[0]
    if table is not None:
        grid = _grid_of_table(table, grid, where)
        options = sizes | _relative_options(tensors, norm_eps, mean_pooling)
        model = _RELATIVE.get((width, depth), _OTHER_RELATIVE)
        size = (grid[0] * patch[0], grid[1] * patch[0])
        return EncoderSpec(model, size, patch[0], "relative", class_token=True, options=options)
    class_token, registers = "cls_token" in tensors, tensors.get("reg_token")
    prefix = int(class_token) + (registers.shape[1] if registers is not None else 0)
    grid, with_prefix = _grid(tensors, prefix, grid, where)
    gated = fc1.shape[0] == 2 * fc2.shape[1]
    unusual = {
        "qkv_bias": (True, "blocks.0.attn.qkv.bias" in tensors),
        # Layer scales. In timm, 0 means none and None means the model's default.
        "init_values": (0.0, 1e-5 if "blocks.0.ls1.gamma" in tensors else 0.0),
        "qk_norm": (False, "blocks.0.attn.q_norm.weight" in tensors),
        "pre_norm": (False, "norm_pre.weight" in tensors),
        "reg_tokens": (0, prefix - int(class_token)),
        "no_embed_class": (False, prefix > 0 and not with_prefix),
        "norm_eps": (1e-6, norm_eps),
    }
    options = sizes | {name: value for name, (usual, value) in unusual.items() if gated or value != usual}
    sincos = is_sincos(tensors["pos_embed"], grid, prefix if with_prefix else 0)
    return EncoderSpec(
        model=_GATED if gated else _USUAL.get((width, depth), (_OTHER, heads))[0],
        image_size=(grid[0] * patch[0], grid[1] * patch[1]),
        patch_size=patch[0],
        positions="sincos" if sincos else "learned",
        class_token=class_token,
        options=options,
    )


def _relative_table(tensors: dict[str, Tensor], where: str) -> Tensor | None:
    """The table of relative positions, rows times heads, if this is a BEiT."""
    table = tensors.get(_SHARED, tensors.get(_OWN))
    if table is not None and (table.ndim != 2 or not table.numel()):
        raise UserError(
            f"{where} is damaged: its {_TABLE} has the shape {tuple(table.shape)}, not displacements times heads."
        )
    return table


def _relative_options(tensors: dict[str, Tensor], norm_eps: float, mean_pooling: bool) -> dict[str, Any]:
    """All options of timm's Beit, as the defaults of its models differ."""
    no_norm = "norm.weight" not in tensors and (mean_pooling or "fc_norm.weight" in tensors)
    return {
        "qkv_bias": "blocks.0.attn.q_bias" in tensors,
        "init_values": 0.1 if "blocks.0.gamma_1" in tensors else 0.0,
        "use_abs_pos_emb": "pos_embed" in tensors,
        "use_rel_pos_bias": _OWN in tensors,
        "use_shared_rel_pos_bias": _SHARED in tensors,
        **({"global_pool": "avg"} if no_norm else {}),
        **({"norm_eps": norm_eps} if norm_eps != 1e-6 else {}),
    }


def _block(name: str) -> re.Match[str] | None:
    return re.match(r"blocks\.(\d+)\.", name)


def _heads(width: int, depth: int, where: str) -> int:
    if (width, depth) in _USUAL:
        return _USUAL[width, depth][1]
    if width % 64:
        raise UserError(
            f"{where} is a transformer of {depth} layers of {width} features; its tensors do not tell how many "
            "attention heads it has. Give their number, such as heads=12."
        )
    return width // 64


def _grid(tensors: dict[str, Tensor], prefix: int, known: Grid | None, where: str) -> tuple[Grid, bool]:
    """Rows and columns of patches, and whether class and register tokens have positions too.

    known: the grid, if known.
    """
    if "pos_embed" not in tensors:
        raise UserError(
            f"{where} has no position embedding (pos_embed): its positions are of another kind (relative or rotary), "
            "which encoders here do not have."
        )
    count = tensors["pos_embed"].shape[-2]
    for patches in sorted({count - prefix, count}):
        rectangles = [(rows, patches // rows) for rows in range(1, patches + 1) if patches % rows == 0]
        # Sines and cosines tell which rectangle they belong to.
        by_sines = next((grid for grid in rectangles if is_sincos(tensors["pos_embed"], grid, count - patches)), None)
        square = next((grid for grid in rectangles if grid[0] == grid[1]), None)
        grid = known or by_sines or square
        if grid in rectangles:
            return grid, patches != count or prefix == 0
    asked = f", which do not make a grid of {known[0]}x{known[1]}" if known else ""
    raise UserError(
        f"{where} has {count} positions{asked}: neither a square nor sines and cosines of a rectangle. {_GIVE_GRID}"
    )


def _grid_of_table(table: Tensor, known: Grid | None, where: str) -> Grid:
    """Rows and columns of patches, from the number of displacements between them."""
    count = table.shape[0] - 3  # the class token's
    rectangles = [
        ((rows + 1) // 2, (count // rows + 1) // 2)
        for rows in range(1, count + 1, 2)
        if count % rows == 0 and count // rows % 2
    ]
    grid = known or next((grid for grid in rectangles if grid[0] == grid[1]), None)
    if grid not in rectangles:
        asked = f"{known[0]}x{known[1]}" if known else "a square of"
        raise UserError(
            f"{where} has a table of {table.shape[0]} relative positions, which does not fit {asked} patches. "
            f"{_GIVE_GRID}"
        )
    return grid


def is_sincos(positions: Tensor, grid: Grid, prefix: int) -> bool:
    """Whether the positions after those of the prefix tokens are the sines and cosines of this grid."""
    patches = positions.reshape(-1, positions.shape[-1])[prefix:].float()
    return patches.shape[1] % 4 == 0 and torch.allclose(
        patches, sincos_positions(grid, patches.shape[1]), atol=2e-3, rtol=0
    )


def _ratio(hidden: int, width: int) -> float:
    """The ratio that gives this width of the MLPs in timm, which rounds down."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else (hidden + 0.5) / width
