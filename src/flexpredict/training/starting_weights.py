"""Pre-training that starts from other weights: a run of ours, anyone's checkpoint, a model of timm or of the hub."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.data.sources.opening import ImageSource, ImageStream
from flexpredict.encoders.arguments import EncoderOptions
from flexpredict.encoders.checkpoints.predictors import PublishedPredictor, published_predictor
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.encoders.names import resolve_name
from flexpredict.encoders.opening import load_weights
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import resample_abs_pos_embed
from flexpredict.runs.checkpoint import last_checkpoint, model_tensors
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import Recipe
from flexpredict.sizes import FEWEST_PATCHES
from flexpredict.training.plan import usual_image_size

_ENCODERS = ("context_encoder", "target_encoder")
_STATISTICS = "standardization."  # of targets


@dataclass
class InitialWeights:
    """Where pre-training starts.

    Args:
        name: as it was asked for.
        spec: of the encoder.
        context, target: weights of both encoders under timm's names; the same where there was only one.
        rest: the other weights of the method (predictor, decoder) under the names of our model; empty: they are new.
        settings: of a recipe, that these weights need.
        lines: what was found, in words.
    """

    name: str
    spec: EncoderSpec
    context: dict[str, Tensor]
    target: dict[str, Tensor]
    rest: dict[str, Tensor] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def initial_weights(recipe: Recipe) -> InitialWeights:
    """The weights that `recipe.init_from` names."""
    assert recipe.init_from is not None
    name = resolve_name(recipe.init_from)
    if name.kind == "run" and last_checkpoint(RunFolder(name.path).checkpoints) is not None:
        return _from_run(name.path, recipe)
    heads = None if name.heads else recipe.model_options.get("num_heads")
    return _from_encoder(load_weights(name, EncoderOptions(heads=heads)), recipe)


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
    if spec.positions != "sincos":  # sines and cosines may stay fixed or be trained, as the recipe likes
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
    """A predictor that comes along goes on at once, with the targets and the noise that it has learned with."""
    optimizer, positions, targets = recipe.optimizer, recipe.positions, recipe.targets
    if optimizer.predictor_warmup_epochs is None:
        optimizer = dataclasses.replace(optimizer, predictor_warmup_epochs=0.0)
    if positions.stochastic and (positions.noise_std, positions.noise_to_signal) == (None, None):
        positions = dataclasses.replace(positions, **initial.settings.get("noise", {"noise_std": 0.25}))
    if recipe.method == "ijepa" and targets.standardize is None:
        targets = dataclasses.replace(targets, standardize=initial.settings.get("standardize", "none"))
    return dataclasses.replace(recipe, optimizer=optimizer, positions=positions, targets=targets)


def _training_size(spec: EncoderSpec, source: ImageSource | ImageStream | None) -> str:
    """That of the weights, but no more than new weights would be trained at on these images, in whole patches.

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
    """Give a new model these weights. Returns what to tell the user, in sentences."""
    for part in _ENCODERS:
        encoder = getattr(model, part, None)
        if encoder is not None:
            tensors = initial.context if part == "context_encoder" else initial.target
            _load_encoder(encoder, tensors, initial)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.split(".")[0] not in _ENCODERS}
    if not initial.rest:
        return [f"Only the encoder is taken from there: the rest of the model ({len(own)} tensors) is new."]
    rest = {name: _resized(tensor, own.get(name), model, initial) for name, tensor in initial.rest.items()}
    rest = {name: tensor for name, tensor in rest.items() if not _is_optional(name) or _fits(tensor, own.get(name))}
    statistics = [name for name in initial.rest if name.startswith(_STATISTICS)]
    if not all(name in rest for name in statistics):  # one without the others means nothing
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
            f"The predictor of {initial.name} does not fit the recipe: {', '.join(problems[:4])}. Leave predictor "
            "and positions as they were there, or start from its encoder alone (the encoder.safetensors of a run)."
        )
    model.load_state_dict(rest, strict=False)
    return []


def _is_optional(name: str) -> bool:
    """Parameters that only some kinds of noise have, and statistics of targets; new where the recipe has others."""
    return ".stochastic." in name or name.startswith(_STATISTICS)


def _fits(tensor: Tensor, own: Tensor | None) -> bool:
    return own is not None and tensor.shape == own.shape


def _load_encoder(encoder: Any, tensors: dict[str, Tensor], initial: InitialWeights) -> None:
    _refuse_another_meaning(encoder, initial)
    if initial.spec.grid != encoder.grid:
        # Built as it was, so that it can resize its positions itself.
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


def _from_run(path: Path, recipe: Recipe) -> InitialWeights:
    """The last checkpoint of a run, with a new optimizer."""
    folder = RunFolder(path)
    checkpoint, config = last_checkpoint(folder.checkpoints), folder.load_config()
    assert checkpoint is not None
    context = model_tensors(checkpoint, "context_encoder.vit.")
    initial = InitialWeights(
        str(path),
        EncoderSpec.of_config(config),
        context,
        model_tensors(checkpoint, "target_encoder.vit.") or context,
    )
    if config["method"] == recipe.method:
        tensors = model_tensors(checkpoint)
        initial.rest = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in _ENCODERS}
        noise = {name: config["positions"][name] for name in ("noise_std", "noise_to_signal")}
        initial.settings = {
            "predictor": config["predictor"],
            "convention": config["positions"]["convention"],
            "standardize": config["targets"]["standardize"],
            **({"noise": noise} if config["positions"]["kind"] == "stochastic" else {}),
        }
    return initial


def _from_encoder(loaded: LoadedWeights, recipe: Recipe) -> InitialWeights:
    """An encoder, and the predictor beside it if that is of the recipe's method."""
    name = recipe.init_from or ""
    # An image is one vector in the same way before and after, so that the two can be compared.
    pooled = {"global_pool": "token"} if loaded.pooling == "class" else {}
    spec = dataclasses.replace(loaded.spec, options={**loaded.spec.options, **pooled})
    predictor = published_predictor(loaded.everything, loaded.spec.grid, name, loaded.decoder_heads)
    if predictor is not None and predictor.method != recipe.method:
        predictor = None
    return InitialWeights(
        name,
        spec,
        _for_our_pixels(loaded.context or loaded.tensors, loaded),
        _for_our_pixels(loaded.tensors, loaded),
        _rest(predictor, recipe) if predictor else {},
        _settings(predictor, loaded.spec.options["num_heads"]) if predictor else {},
        (f"{loaded.format or 'flexpredict'}: {loaded.architecture()}", _taken(loaded, predictor), *loaded.notes),
    )


def _taken(loaded: LoadedWeights, predictor: PublishedPredictor | None) -> str:
    parts = "context and target encoder" if loaded.context else f"{loaded.role} (as context and target encoder)"
    if predictor is not None:
        what = "decoder" if predictor.method == "mae" else "predictor"
        parts += f", {what} of {predictor.depth} layers of {predictor.dim}"
        parts += ", A's bias added to the noise as in the released code" if predictor.convention == "released" else ""
    return f"Taken: {parts}"


def _rest(predictor: PublishedPredictor, recipe: Recipe) -> dict[str, Tensor]:
    tensors = dict(predictor.tensors)
    released = predictor.convention == "released"
    if released and (recipe.positions.convention == "paper" or not recipe.positions.stochastic):
        # Where StoP's code adds b to a masked token, the paper adds m̃: with m̃ = b both predict the same.
        tensors["mask_token"] = tensors["projection.bias"].clone()
    return {f"predictor.{name}": tensor for name, tensor in tensors.items()}


def _settings(predictor: PublishedPredictor, heads: int) -> dict[str, Any]:
    sizes = {"dim": predictor.dim, "depth": predictor.depth, "heads": predictor.heads or heads}
    return {"predictor": sizes, "convention": predictor.convention}


def _for_our_pixels(tensors: dict[str, Tensor], loaded: LoadedWeights) -> dict[str, Tensor]:
    """Training normalizes by ImageNet's statistics; those of others are put into the patch embedding: it is exact."""
    if (loaded.mean, loaded.std) == (MEAN, STD):
        return tensors
    weight, bias = tensors["patch_embed.proj.weight"], tensors.get("patch_embed.proj.bias")
    if bias is None:
        raise UserError(
            f"{loaded.format} was trained on pixels of mean {loaded.mean} and standard deviation {loaded.std}, and "
            "has no bias in its embedding of patches to make up for the difference to ImageNet's. It can be "
            "evaluated, but not trained further."
        )
    theirs = torch.tensor(loaded.std).view(1, 3, 1, 1)
    scale = torch.tensor(STD).view(1, 3, 1, 1) / theirs
    shift = (torch.tensor(MEAN) - torch.tensor(loaded.mean)).view(1, 3, 1, 1) / theirs
    return {
        **tensors,
        "patch_embed.proj.weight": weight * scale,
        "patch_embed.proj.bias": bias + (weight * shift).sum(dim=(1, 2, 3)),
    }
