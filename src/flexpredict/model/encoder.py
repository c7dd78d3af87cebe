"""A timm vision transformer that can run on a subset of its patches.

Any plain ViT that timm knows by name, with or without class and register tokens, any patch size, any grid; and those
of BEiT's kind (see relative_encoder). Its weights stay in timm's own layout (`encoder.vit`), so it can be handed back
to timm as it is.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flexpredict.errors import UserError, did_you_mean
from flexpredict.model.partial_block import block_at, pick
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import PatchEmbed, VisionTransformer, resample_abs_pos_embed, timm
from flexpredict.randomness import stream_key
from flexpredict.settings.recipe import EncoderPositions
from flexpredict.sizes import Grid


class Encoder(nn.Module):
    """f_θ: images -> patch features, of all patches or of those asked for.

    Args:
        vit: a timm VisionTransformer; its class token, registers and head stay with it.
        positions: "sincos" replaces its position embedding by fixed sines and cosines (zero on prefix tokens);
            "learned" keeps and trains the one it has. ("relative" is what a RelativeEncoder has.)
    """

    def __init__(self, vit: VisionTransformer, positions: EncoderPositions = "learned") -> None:
        super().__init__()
        self.check(vit)
        self.vit = vit
        self.positions = positions
        self.grid: Grid = tuple(vit.patch_embed.grid_size)
        self.patch_size: tuple[int, int] = tuple(vit.patch_embed.patch_size)
        self.dim: int = vit.embed_dim
        self.depth = len(vit.blocks)
        # Positions of the class and register tokens stand before those of the patches, unless timm leaves them out.
        self._prefix_positions = 0 if getattr(vit, "no_embed_class", False) else vit.num_prefix_tokens
        if positions == "sincos":
            patches = sincos_positions(self.grid, self.dim)
            prefix = torch.zeros(self._prefix_positions, self.dim)
            vit.pos_embed = nn.Parameter(torch.cat((prefix, patches))[None], requires_grad=False)

    def forward(self, images: Tensor, keep: Tensor | None = None, read: Tensor | None = None) -> Tensor:
        """Features of the last layer. images: B C H W (normalized).

        keep: B N indices of the patches that the transformer sees (all by default); with (B·C) N, each image is
            seen through C different masks in turn.
        read: B R indices, into what it sees, of the patches whose features are returned (all by default).
        """
        x = self.embed(images, keep)
        *blocks, last = self.blocks_on(self.grid_of(images), keep)
        for block in blocks:
            x = block(x)
        if read is None:
            x = last(x)[:, self.vit.num_prefix_tokens :]
        else:
            x = block_at(last, x, read + self.vit.num_prefix_tokens)
        return self.vit.norm(x)  # type: ignore[no-any-return]

    def last_layers(self, images: Tensor, count: int = 1) -> list[Tensor]:
        """Patch features after each of the last `count` blocks, final norm applied to each: B N D each."""
        return [tokens[:, self.vit.num_prefix_tokens :] for tokens in self.last_tokens(images, count)]

    def last_tokens(self, images: Tensor, count: int = 1, normed: bool = True) -> list[Tensor]:
        """The same with class and register tokens, which come first: B (prefix + N) D each.

        normed: apply the final norm, as everybody does; without it tokens keep their lengths.
        """
        if not 1 <= count <= self.depth:
            raise UserError(
                f"Features of the last {count} layers were asked of an encoder of {self.depth}. "
                f"Ask for 1 to {self.depth}."
            )
        x = self.embed(images, keep=None)
        layers = []
        for index, block in enumerate(self.blocks_on(self.grid_of(images))):
            x = block(x)
            if index >= self.depth - count:
                layers.append(self.vit.norm(x) if normed else x)
        return layers

    def blocks_on(self, grid: Grid, keep: Tensor | None = None) -> Sequence[Callable[[Tensor], Tensor]]:
        """The blocks in their order, for tokens of these patches of this grid (all by default), prefix tokens first.

        B (prefix + N) D -> the same, each.
        """
        return self.vit.blocks  # type: ignore[no-any-return]

    def resized(self, grid: Grid) -> "Encoder":
        """A copy whose own grid is another one: sines and cosines computed anew, learned positions interpolated."""
        other = copy.deepcopy(self)
        other.vit.patch_embed.set_input_size(img_size=(grid[0] * self.patch_size[0], grid[1] * self.patch_size[1]))
        if self.vit.pos_embed is not None:
            with torch.no_grad():
                positions = torch.cat(self.positions_on(grid))[None].clone()
            other.vit.pos_embed = nn.Parameter(positions, requires_grad=self.vit.pos_embed.requires_grad)
        other.grid = grid
        return other

    def grid_of(self, images: Tensor) -> Grid:
        """Rows and columns of patches in images of this size."""
        return images.shape[2] // self.patch_size[0], images.shape[3] // self.patch_size[1]

    @staticmethod
    def check(vit: nn.Module) -> None:
        """Refuse models that masking cannot be done with."""
        if type(vit) is not VisionTransformer or type(vit.patch_embed) is not PatchEmbed or vit.pos_embed is None:
            raise UserError(
                f"{type(vit).__name__} is not a plain vision transformer: masking needs one that cuts the image into "
                "separate patches and adds a position to each (timm's VisionTransformer, for example "
                "vit_small_patch16_224, vit_base_patch14_reg4_dinov2 or deit3_small_patch16_224) or has tables of "
                "relative ones (timm's Beit, for example beit_base_patch16_224)."
            )

    def embed(self, images: Tensor, keep: Tensor | None) -> Tensor:
        """Tokens with positions, prefix tokens first: B (prefix + N) D."""
        vit = self.vit
        grid = self.grid_of(images)
        prefix_positions, patch_positions = self.positions_on(grid)
        patches = self._patchify(images, grid)
        if keep is not None:
            patches = pick(patches, keep.reshape(len(images), -1)).view(*keep.shape, -1)
        projection = vit.patch_embed.proj
        x = vit.patch_embed.norm(F.linear(patches, projection.weight.flatten(1), projection.bias))
        x = x + (patch_positions if keep is None else patch_positions[keep])
        prefix = [token for token in (vit.cls_token, vit.reg_token) if token is not None]
        if prefix:
            prefix_tokens = torch.cat(prefix, dim=1)
            if self._prefix_positions:
                prefix_tokens = prefix_tokens + prefix_positions
            x = torch.cat((prefix_tokens.expand(x.shape[0], -1, -1), x), dim=1)
        return vit.norm_pre(vit.pos_drop(x))  # type: ignore[no-any-return]

    def _patchify(self, images: Tensor, grid: Grid) -> Tensor:
        """B C H W -> B N (C p q): so that only the patches that are kept get embedded."""
        height, width = self.patch_size
        if images.shape[2] != grid[0] * height or images.shape[3] != grid[1] * width:
            raise UserError(
                f"An image of {images.shape[2]}x{images.shape[3]} cannot be cut into patches of {height}x{width}. "
                f"Resize it to a multiple, for example {max(grid[0], 1) * height}x{max(grid[1], 1) * width}."
            )
        x = images.reshape(images.shape[0], images.shape[1], grid[0], height, grid[1], width)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(images.shape[0], grid[0] * grid[1], -1)

    def positions_on(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Positions of prefix tokens and of the patches of this grid; for another grid than the encoder's own,
        sines and cosines are computed anew and learned ones interpolated."""
        embedding, split = self.vit.pos_embed, self._prefix_positions
        if grid == self.grid:
            return embedding[0, :split], embedding[0, split:]
        if self.positions == "sincos":
            return embedding[0, :split], sincos_positions(grid, self.dim).to(embedding)
        embedding = resample_abs_pos_embed(embedding, list(grid), list(self.grid), num_prefix_tokens=split)
        return embedding[0, :split], embedding[0, split:]


def build_encoder(
    model: str,
    image_size: tuple[int, int],
    patch_size: int | None = None,
    positions: EncoderPositions = "sincos",
    class_token: bool = False,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Encoder:
    """A new encoder from a timm name.

    Args:
        model: a timm ViT, for example vit_base_patch16_224; sizes in the name are only defaults.
        image_size: height and width of the images.
        patch_size: side of a patch; the name's own where not given.
        positions: "sincos" (fixed) or "learned"; "relative" for models of BEiT's kind, and for them only.
        class_token: keep the class token of models that have one (the paper's have none); BEiT's kind needs it.
        seed: the initial weights are a function of it alone.
        options: further arguments of timm's constructor, for example {"embed_dim": 96, "depth": 4}, and norm_eps,
            the ε of layer norms where it is not timm's.
    """
    facts = model_facts(model, options)
    _check_positions(model, facts, positions, class_token)
    arguments = {"num_classes": 0, "global_pool": "", "img_size": image_size}
    if not facts.relative:
        arguments["fc_norm"] = False
    arguments |= _timm_options(options)
    if patch_size is not None:
        arguments["patch_size"] = patch_size
    if not class_token:
        arguments["class_token"] = False
    check_patches(image_size, patch_size or facts.patch_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(seed, "encoder weights"))
        vit = _create(model, arguments)
        encoder = _kind(vit)(vit) if facts.relative else Encoder(vit, positions)
    if options and "norm_eps" in options:
        set_norm_eps(vit, float(options["norm_eps"]))
    if facts.relative:  # timm has rescaled the branches already
        vit.fc_norm = nn.Identity()  # with global_pool="avg" it belongs to the head
    else:
        rescale_residual_branches(vit.blocks)
    return encoder


def check_patches(image_size: tuple[int, int], patch_size: int) -> None:
    """Refuse an image that is smaller than a patch or that patches do not fill."""
    for side in image_size:
        if side < patch_size:
            raise UserError(
                f"Image size {image_size[0]}x{image_size[1]} is smaller than a patch of {patch_size}. "
                f"Give a larger image_size or a smaller patch_size."
            )
        if side % patch_size:
            low = side - side % patch_size
            raise UserError(
                f"Patch size {patch_size} does not divide image size {image_size[0]}x{image_size[1]}. "
                f"Use image_size={low} or {low + patch_size}, or another patch_size."
            )


def set_norm_eps(vit: nn.Module, eps: float) -> None:
    """Checkpoints of other libraries were trained with another ε than timm's 1e-6."""
    for module in vit.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = eps


def rescale_residual_branches(blocks: nn.Sequential) -> None:
    """Divide the output of the l-th block's two branches by √(2l), as I-JEPA does, so that depth does not blow up."""
    with torch.no_grad():
        for layer, block in enumerate(blocks, start=1):
            for branch, output in (("attn", "proj"), ("mlp", "fc2")):
                weight = getattr(getattr(getattr(block, branch, None), output, None), "weight", None)
                if weight is not None:
                    weight.div_((2.0 * layer) ** 0.5)


def _create(model: str, arguments: dict[str, Any]) -> Any:
    try:
        return timm.create_model(_known(model), pretrained=False, **arguments)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"timm's '{model}' cannot be built with {arguments}: {reason}. Choose a plain ViT such as "
            "vit_small_patch16_224, or mend model_options."
        ) from error


def _known(model: str) -> str:
    name = model.split(".")[0]
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise UserError(f"timm has no model named '{model}'.{near} `timm.list_models('vit*')` lists them all.")
    return name


@dataclass(frozen=True)
class ModelFacts:
    """What a timm name implies."""

    dim: int
    depth: int
    heads: int
    patch_size: int
    relative: bool = False  # whether it is of BEiT's kind, with relative positions and a class token
    norm_eps: float = 1e-6


def model_facts(model: str, options: dict[str, Any] | None = None) -> ModelFacts:
    """Sizes of a timm model, without allocating its weights."""
    with torch.device("meta"):
        vit = _create(model, {"num_classes": 0, **_timm_options(options)})
    kind = _kind(vit)
    kind.check(vit)
    heads = getattr(getattr(vit.blocks[0], "attn", None), "num_heads", 1)
    eps = getattr(getattr(vit.blocks[0], "norm1", None), "eps", 1e-6)
    return ModelFacts(vit.embed_dim, len(vit.blocks), heads, vit.patch_embed.patch_size[0], kind is not Encoder, eps)


def _kind(vit: nn.Module) -> type[Any]:
    """The encoder for a model of timm's."""
    from flexpredict.model.relative_encoder import RelativeEncoder  # which builds on this file

    return RelativeEncoder if type(vit) is timm.models.beit.Beit else Encoder


def _check_positions(model: str, facts: ModelFacts, positions: EncoderPositions, class_token: bool) -> None:
    if facts.relative and not (positions == "relative" and class_token):
        raise UserError(
            f"timm's '{model}' has relative positions and always a class token, but {positions} positions "
            f"{'with' if class_token else 'without'} a class token were asked for. Use "
            "encoder_positions=relative and class_token=true, or a plain ViT such as vit_base_patch16_224."
        )
    if positions == "relative" and not facts.relative:
        raise UserError(
            f"timm's '{model}' has no relative positions. Use encoder_positions=sincos or learned, or a model that "
            "has them, such as beit_base_patch16_224."
        )


def _timm_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """Those that timm's constructor takes itself. Weights come from elsewhere, and never by way of an option."""
    given = options or {}
    fetching = [name for name in given if name in ("checkpoint_path", "cache_dir") or name.startswith("pretrained")]
    if fetching:
        raise UserError(
            f"The option {fetching[0]} of a model would read weights. Leave it out; init_from is there for that."
        )
    return {name: value for name, value in given.items() if name != "norm_eps"}
