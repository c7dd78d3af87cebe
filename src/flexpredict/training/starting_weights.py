"""Pre-training that starts from other weights: the recipe adopts their settings, and the model loads them."""

import dataclasses
import math
from typing import Any

from torch import Tensor, nn

from flexpredict.data.sources.opening import ImageSource, ImageStream
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import resample_abs_pos_embed
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.settings.recipe import Recipe
from flexpredict.sizes import FEWEST_PATCHES
from flexpredict.training.initial_weights import ENCODERS, InitialWeights
from flexpredict.training.plan import usual_image_size

_STATISTICS = "standardization."  # of targets


def adopted(recipe: Recipe, initial: InitialWeights, source: ImageSource | ImageStream | None = None) -> Recipe:
    """The recipe with the architecture of the weights where it does not name one of its own.

    source: the images to train on, which may be too small for the size of the weights.
    """
    spec = initial.spec
    if recipe.embedding_scale != 1:
        raise UserError(
            f"embedding_scale={recipe.embedding_scale:g} is for new patch embeddings, and those of {initial.name} "
            "are trained. Leave it out."
        )
    recipe = dataclasses.replace(recipe, positions=recipe.positions.of(recipe.method))
    if recipe.class_token and recipe.model is None and not spec.class_token:
        raise UserError(f"class_token=True, but {initial.name} has no class token. Leave it out.")
    if recipe.model is None:
        recipe = dataclasses.replace(
            recipe,
            model=spec.model,
            model_options={**spec.options, **recipe.model_options},
            class_token=spec.class_token,
            patch_size=recipe.patch_size or spec.patch_size,
        )
    else:
        names = ("norm_eps", "global_pool") if recipe.class_token else ("norm_eps",)
        kept = {name: spec.options[name] for name in names if name in spec.options}
        recipe = dataclasses.replace(recipe, model_options={**kept, **recipe.model_options})
    if spec.positions != "sincos":  # sines and cosines may stay fixed or be trained, as the recipe says
        positions = recipe.encoder_positions or spec.positions
        recipe = dataclasses.replace(recipe, encoder_positions=positions)
    predictor = initial.settings.get("predictor", {})
    open_sizes = {key: value for key, value in predictor.items() if getattr(recipe.predictor, key) is None}
    recipe = dataclasses.replace(
        recipe,
        image_size=recipe.image_size or _training_size(spec, source),
        predictor=dataclasses.replace(recipe.predictor, **open_sizes),
    )
    if recipe.positions.convention is None and recipe.positions.stochastic:
        convention = initial.settings.get("convention")
        recipe = dataclasses.replace(recipe, positions=dataclasses.replace(recipe.positions, convention=convention))
    return _with_its_predictor(recipe, initial) if initial.rest else recipe


def _with_its_predictor(recipe: Recipe, initial: InitialWeights) -> Recipe:
    """With a trained predictor: no warm-up for it, and by default the targets and noise that it was trained with."""
    optimizer, positions, targets = recipe.optimizer, recipe.positions, recipe.targets
    if optimizer.predictor_warmup_epochs is None:
        optimizer = dataclasses.replace(optimizer, predictor_warmup_epochs=0.0)
    if positions.stochastic and (positions.noise_std, positions.noise_to_signal) == (None, None):
        positions = dataclasses.replace(positions, **initial.settings.get("noise", {"noise_std": 0.25}))
    if recipe.method == "ijepa" and targets.standardize is None:
        targets = dataclasses.replace(targets, standardize=initial.settings.get("standardize", "none"))
    return dataclasses.replace(recipe, optimizer=optimizer, positions=positions, targets=targets)


def _training_size(spec: EncoderSpec, source: ImageSource | ImageStream | None) -> str:
    """The image size of the weights, but at most the default size for these images, in whole patches.

    DINOv2's 518 pixels would be 20 times the work of 112, and show nothing more of small images. Fewer than 8 patches
    a side leave little to mask.
    """
    height, width = spec.image_size
    if source is not None:
        usual = max(usual_image_size(source) // spec.patch_size, FEWEST_PATCHES) * spec.patch_size
        scale = min(1.0, usual / min(height, width))
        height, width = (round(side * scale / spec.patch_size) * spec.patch_size for side in (height, width))
    return f"{height}x{width}"


def start_from(model: nn.Module, initial: InitialWeights) -> list[str]:
    """Load these weights into a new model. Returns sentences for the user."""
    for part in ENCODERS:
        encoder = getattr(model, part, None)
        if encoder is not None:
            tensors = initial.context if part == "context_encoder" else initial.target
            _load_encoder(encoder, tensors, initial)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.split(".")[0] not in ENCODERS}
    if not initial.rest:
        return [f"Only the encoder is taken from there: the rest of the model ({len(own)} tensors) is new."]
    rest = {name: _resized(tensor, own.get(name), model, initial) for name, tensor in initial.rest.items()}
    rest = {name: tensor for name, tensor in rest.items() if not _is_optional(name) or _fits(tensor, own.get(name))}
    statistics = [name for name in initial.rest if name.startswith(_STATISTICS)]
    if not all(name in rest for name in statistics):  # one of them is useless without the others
        rest = {name: tensor for name, tensor in rest.items() if name not in statistics}
    problems = [f"{name} is missing" for name in own if name not in rest and not _is_optional(name)]
    problems += [f"{name} is left over" for name in rest if name not in own]
    problems += [
        f"{name} is {list(rest[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in rest and not _fits(rest[name], tensor)
    ]
    if problems:
        raise UserError(
            f"The predictor of {initial.name} does not fit the recipe: {', '.join(problems[:4])}. Set predictor "
            "and positions as in its training, or start from its encoder alone (the encoder.safetensors of a run)."
        )
    model.load_state_dict(rest, strict=False)
    return []


def _is_optional(name: str) -> bool:
    """Whether a tensor belongs to some kinds of noise only, or to target statistics: new if the recipe has others."""
    return ".stochastic." in name or name.startswith(_STATISTICS)


def _fits(tensor: Tensor, own: Tensor | None) -> bool:
    return own is not None and tensor.shape == own.shape


def _load_encoder(encoder: Any, tensors: dict[str, Tensor], initial: InitialWeights) -> None:
    _refuse_another_meaning(encoder, initial)
    if initial.spec.grid != encoder.grid:
        # Built at its own size, so that it can resize its positions itself.
        before = initial.spec.build()
        _load_strictly(before, tensors, initial.name)
        tensors = before.resized(encoder.grid).vit.state_dict()
    _load_strictly(encoder, tensors, initial.name)


def _refuse_another_meaning(encoder: Any, initial: InitialWeights) -> None:
    """Refuse weights whose shapes fit, but which would compute something else."""
    spec = initial.spec
    if spec.positions != encoder.positions and spec.positions != "sincos":
        raise UserError(
            f"{initial.name} has {spec.positions} positions, and the recipe asks for encoder_positions="
            f"{encoder.positions}. Leave encoder_positions out."
        )
    heads = getattr(encoder.vit.blocks[0].attn, "num_heads", None)
    if heads is not None and spec.options.get("num_heads", heads) != heads:
        raise UserError(
            f"{initial.name} has {spec.options['num_heads']} attention heads, and the recipe's model has {heads}. "
            "Leave model and model_options out: they are then taken from there."
        )


def _load_strictly(encoder: Any, tensors: dict[str, Tensor], name: str) -> None:
    try:
        encoder.vit.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"The weights of {name} do not fit the encoder of the recipe: {str(error).splitlines()[1].strip()} Leave "
            "model, model_options, patch_size and class_token out: they are then taken from there."
        ) from error


def _resized(tensor: Tensor, own: Tensor | None, model: Any, initial: InitialWeights) -> Tensor:
    """Learned positions of a predictor, for another grid."""
    before, now = initial.spec.grid, model.context_encoder.grid
    if own is None or tensor.shape == own.shape or now == before or tensor.shape[0] != math.prod(before):
        return tensor
    resampled: Tensor = resample_abs_pos_embed(tensor[None], list(now), list(before), num_prefix_tokens=0)[0]
    return resampled
