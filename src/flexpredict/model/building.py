"""Builds encoders from timm model names, and finds what a name implies."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flexpredict.errors import UserError, did_you_mean
from flexpredict.model.encoder import Encoder, heads_of, norm_eps_of
from flexpredict.model.relative_encoder import RelativeEncoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import stream_key
from flexpredict.settings.recipe import EncoderPositions

_MOST_PATCHES = 2**16  # of an image: with more, attention and the check of masks would fill any memory
_MOST_BLOCKS = 1000  # of an encoder: each takes time to build before anything is checked


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
        patch_size: side of a patch; by default the model's own.
        positions: "sincos" (fixed) or "learned"; "relative" for models of BEiT's kind, and for them only.
        class_token: keep the class token of models that have one (the paper's have none); BEiT's kind needs it.
        seed: the initial weights are a function of it alone.
        options: further arguments of timm's constructor, for example {"embed_dim": 96, "depth": 4}, and norm_eps,
            the ε of layer norms if it is not timm's.
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
    """Refuse an image that is smaller than a patch, that patches do not fill, or that has too many of them."""
    patches = (image_size[0] // patch_size) * (image_size[1] // patch_size)
    if patches > _MOST_PATCHES:
        raise UserError(
            f"Image size {image_size[0]}x{image_size[1]} makes {patches:,} patches of {patch_size}, but at most "
            f"{_MOST_PATCHES:,} are possible. Give a smaller image_size or a larger patch_size."
        )
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
    """Set the ε of all layer norms: other libraries train with another one than timm's 1e-6."""
    for module in vit.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = eps


def rescale_residual_branches(blocks: nn.Sequential) -> None:
    """Divide the output of the l-th block's two branches by √(2l), as I-JEPA does, to keep deep encoders stable."""
    with torch.no_grad():
        for layer, block in enumerate(blocks, start=1):
            for branch, output in (("attn", "proj"), ("mlp", "fc2")):
                weight = getattr(getattr(getattr(block, branch, None), output, None), "weight", None)
                if weight is not None:
                    weight.div_((2.0 * layer) ** 0.5)


def scale_embedding(encoder: Encoder, scale: float) -> None:
    """Make patch embeddings larger or smaller against the positions that are added to them."""
    with torch.no_grad():
        for parameter in encoder.vit.patch_embed.proj.parameters():
            parameter.mul_(scale)


def _create(model: str, arguments: dict[str, Any]) -> Any:
    try:
        return timm.create_model(known_model(model), pretrained=False, **arguments)
    except (TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"timm's '{model}' cannot be built with {arguments}: {reason}. Choose a plain ViT such as "
            "vit_small_patch16_224, or correct model_options."
        ) from error


def known_model(model: str) -> str:
    """The name without a tag; refused if timm has no such model."""
    name = model.split(".")[0]
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise UserError(f"timm has no model named '{model}'.{near} `timm.list_models()` lists them all.")
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


_facts: dict[str, ModelFacts] = {}  # by the model and its options


def model_facts(model: str, options: dict[str, Any] | None = None) -> ModelFacts:
    """Sizes of a timm model, without allocating its weights."""
    asked = repr((model, options))
    if asked not in _facts:
        _facts[asked] = _find_facts(model, options)
    return _facts[asked]


def _find_facts(model: str, options: dict[str, Any] | None) -> ModelFacts:
    with torch.device("meta"):
        vit = _create(model, {"num_classes": 0, **_timm_options(options)})
    kind = _kind(vit)
    kind.check(vit)
    patch_size, relative = vit.patch_embed.patch_size[0], kind is not Encoder
    return ModelFacts(vit.embed_dim, len(vit.blocks), heads_of(vit), patch_size, relative, norm_eps_of(vit))


def _kind(vit: nn.Module) -> type[Any]:
    """The encoder class for a timm model."""
    return RelativeEncoder if type(vit) is timm.models.beit.Beit else Encoder


def _check_positions(model: str, facts: ModelFacts, positions: EncoderPositions, class_token: bool) -> None:
    if facts.relative and not (positions == "relative" and class_token):
        raise UserError(
            f"timm's '{model}' has relative positions and always a class token, but {positions} positions "
            f"{'with' if class_token else 'without'} a class token are set. Use "
            "encoder_positions=relative and class_token=true, or a plain ViT such as vit_base_patch16_224."
        )
    if positions == "relative" and not facts.relative:
        raise UserError(
            f"timm's '{model}' has no relative positions. Use encoder_positions=sincos or learned, or a model that "
            "has them, such as beit_base_patch16_224."
        )


def _timm_options(options: dict[str, Any] | None) -> dict[str, Any]:
    """The options of timm's own constructor. Those that would load weights are refused."""
    given = options or {}
    fetching = [name for name in given if name in ("checkpoint_path", "cache_dir") or name.startswith("pretrained")]
    if fetching:
        raise UserError(
            f"model_options.{fetching[0]} would load weights. Leave it out; init_from loads them instead."
        )
    depth = given.get("depth", 1)
    if not isinstance(depth, int) or not 1 <= depth <= _MOST_BLOCKS:
        raise UserError(f"model_options.depth={depth} must be a whole number from 1 to {_MOST_BLOCKS}.")
    return {name: value for name, value in given.items() if name != "norm_eps"}
