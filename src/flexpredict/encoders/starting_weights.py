"""Pre-training that starts from other weights: a run of ours, anyone's checkpoint, a model of timm or of the hub."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.checkpoints.finding import Found, find
from flexpredict.encoders.checkpoints.predictors import PublishedPredictor, published_predictor
from flexpredict.encoders.checkpoints.timm_models import found_in_timm
from flexpredict.encoders.libraries import open_timm
from flexpredict.errors import UserError, in_a_line
from flexpredict.model.timm_parts import resample_abs_pos_embed
from flexpredict.named_options import split_options, whole_number
from flexpredict.runs.checkpoint import newest_checkpoint
from flexpredict.runs.encoder_file import EncoderSpec, is_own, read_encoder
from flexpredict.settings.recipe import Recipe, parse_image_sizes
from flexpredict.training.recipe_parser import read_yaml

_ENCODERS = ("context_encoder", "target_encoder")


@dataclass
class InitialWeights:
    """Where pre-training starts.

    Args:
        name: as it was asked for.
        spec: of the encoder.
        context, target: weights of both encoders under timm's names; the same where there was but one.
        rest: the other weights of the method (predictor, decoder) under the names of our model; none: they are new.
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
    name = recipe.init_from
    assert name is not None
    kind, colon, rest = name.partition(":")
    if colon and kind == "timm":
        return _foreign(_timm(name, rest), recipe)
    path, options = (_downloaded(rest), {}) if colon and kind == "hf" else _with_options(name)
    if not path.exists():
        raise UserError(
            f"There is nothing to start from at '{name}' (looked for in {Path.cwd()}). Give --init_from a run "
            "folder, a checkpoint, timm:NAME or hf:NAME."
        )
    if path.is_dir() and (path / "checkpoints").is_dir():
        return _run(path, recipe)
    if is_own(path):
        return _own_file(path, name)
    return _foreign(find(path, **{"heads": recipe.model_options.get("num_heads"), **options}), recipe)


def adopted(recipe: Recipe, initial: InitialWeights) -> Recipe:
    """The recipe with the architecture of the weights wherever it says nothing of its own."""
    spec = initial.spec
    if recipe.model is None:
        recipe = dataclasses.replace(
            recipe,
            model=spec.model,
            model_options={**spec.options, **recipe.model_options},
            class_token=spec.class_token,
            patch_size=recipe.patch_size or spec.patch_size,
        )
    elif "norm_eps" in spec.options:
        options = {"norm_eps": spec.options["norm_eps"], **recipe.model_options}
        recipe = dataclasses.replace(recipe, model_options=options)
    if spec.positions != "sincos":  # sines and cosines may stay or be trained on, as the recipe likes
        positions = recipe.encoder_positions or spec.positions
        recipe = dataclasses.replace(recipe, encoder_positions=positions)
    size = f"{spec.image_size[0]}x{spec.image_size[1]}"
    predictor = initial.settings.get("predictor", {})
    open_sizes = {key: value for key, value in predictor.items() if getattr(recipe.predictor, key) is None}
    recipe = dataclasses.replace(
        recipe,
        image_size=recipe.image_size or size,
        predictor=dataclasses.replace(recipe.predictor, **open_sizes),
    )
    if recipe.positions.convention is None and recipe.positions.kind == "stochastic":
        convention = initial.settings.get("convention")
        recipe = dataclasses.replace(recipe, positions=dataclasses.replace(recipe.positions, convention=convention))
    return recipe


def start_from(model: nn.Module, initial: InitialWeights) -> list[str]:
    """Give a new model these weights; what had to be said about it, in sentences."""
    for part in _ENCODERS:
        encoder = getattr(model, part, None)
        if encoder is not None:
            tensors = initial.context if part == "context_encoder" else initial.target
            _load_encoder(encoder, tensors, initial)
    own = {name: tensor for name, tensor in model.state_dict().items() if name.split(".")[0] not in _ENCODERS}
    if not initial.rest:
        return [f"The encoder alone is taken from there: the rest of the model ({len(own)} tensors) is new."]
    # Parameters that only some kinds of noise have are new where the weights come from another kind.
    optional = {name for name in own if ".stochastic." in name}
    rest = {name: _resized(tensor, own.get(name), model, initial) for name, tensor in initial.rest.items()}
    problems = [f"{name} is missing" for name in own if name not in rest and name not in optional]
    problems += [f"{name} is left over" for name in rest if name not in own and ".stochastic." not in name]
    problems += [
        f"{name} is {list(rest[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in rest and rest[name].shape != tensor.shape
    ]
    if problems:
        raise UserError(
            f"The predictor of {initial.name} does not fit the recipe: {', '.join(problems[:4])}. Leave predictor "
            "and positions as they were there, or start from its encoder alone (the encoder.safetensors of a run)."
        )
    model.load_state_dict({name: tensor for name, tensor in rest.items() if name in own}, strict=False)
    return []


def _with_options(name: str) -> tuple[Path, dict[str, Any]]:
    """FILE,heads=12,grid=4x16: what a checkpoint does not tell."""
    file, given = split_options(name, ("heads", "grid"))
    options: dict[str, Any] = {}
    if "heads" in given:
        options["heads"] = whole_number(given["heads"], "heads", name, least=1)
    if "grid" in given:
        options["grid"] = parse_image_sizes(given["grid"])[0]
    return Path(file).expanduser(), options


def _load_encoder(encoder: Any, tensors: dict[str, Tensor], initial: InitialWeights) -> None:
    _refuse_another_meaning(encoder, initial)
    if initial.spec.grid != encoder.grid:
        # Built as it was, so that it can bring its positions to another grid itself.
        before = initial.spec.build()
        _strictly(before, tensors, initial.name)
        tensors = before.resized(encoder.grid).vit.state_dict()
    _strictly(encoder, tensors, initial.name)


def _refuse_another_meaning(encoder: Any, initial: InitialWeights) -> None:
    """What fits by its shapes and would still compute something else."""
    spec = initial.spec
    if spec.positions != encoder.positions and spec.positions != "sincos":
        raise UserError(
            f"{initial.name} has {spec.positions} positions, and the recipe asks for {encoder.positions} ones in the "
            "encoder. Leave encoder_positions out."
        )
    heads = getattr(encoder.vit.blocks[0].attn, "num_heads", None)
    if heads is not None and spec.options.get("num_heads", heads) != heads:
        raise UserError(
            f"{initial.name} has {spec.options['num_heads']} attention heads, and the recipe's model has {heads}. "
            "Leave model and model_options out: they are then taken from there."
        )


def _strictly(encoder: Any, tensors: dict[str, Tensor], name: str) -> None:
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


def _run(path: Path, recipe: Recipe) -> InitialWeights:
    """The last checkpoint of a run, with the optimiser afresh."""
    config = read_yaml(path / "config.yaml")
    tensors = load_file(newest_checkpoint(path / "checkpoints") / "model.safetensors")

    def below(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    height, width = (int(side) for side in str(config["image_size"]).split(",")[0].split("x"))
    learned = config["positions"]["kind"] == "learned"  # as runs were written before encoder_positions had a name
    spec = EncoderSpec(
        config["model"],
        (height, width),
        config["patch_size"],
        config.get("encoder_positions") or ("learned" if learned else "sincos"),
        config["class_token"],
        config["model_options"],
    )
    context = below("context_encoder.vit.")
    same = config.get("method", "ijepa") == recipe.method
    rest = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in _ENCODERS}
    settings = {"predictor": config["predictor"], "convention": config["positions"].get("convention")}
    return InitialWeights(
        str(path),
        spec,
        context,
        below("target_encoder.vit.") or context,
        rest if same else {},
        settings if same else {},
    )


def _own_file(path: Path, name: str) -> InitialWeights:
    encoder, spec, _ = read_encoder(path)
    tensors = dict(encoder.vit.state_dict())
    return InitialWeights(name, spec, tensors, tensors)


def _foreign(found: Found, recipe: Recipe) -> InitialWeights:
    name = recipe.init_from or ""
    predictor = published_predictor(found.everything, found.spec.grid, name, found.decoder_heads)
    if predictor is not None and predictor.method != recipe.method:
        predictor = None
    heads = found.spec.options["num_heads"]
    return InitialWeights(
        name,
        found.spec,
        _for_our_pixels(found.context or found.tensors, found),
        _for_our_pixels(found.tensors, found),
        _rest(predictor, recipe) if predictor else {},
        _settings(predictor, heads) if predictor else {},
        (f"{found.format}: {found.architecture()}", _taken(found, predictor), *found.notes),
    )


def _taken(found: Found, predictor: PublishedPredictor | None) -> str:
    parts = "context and target encoder" if found.context else f"{found.which} (as context and target encoder)"
    if predictor is not None:
        what = "decoder" if predictor.method == "mae" else "predictor"
        released = ", A's bias with the noise as in the released code" if predictor.convention == "released" else ""
        parts += f", {what} of {predictor.depth} layers of {predictor.dim}{released}"
    return f"Taken: {parts}"


def _rest(predictor: PublishedPredictor, recipe: Recipe) -> dict[str, Tensor]:
    tensors = dict(predictor.tensors)
    released = predictor.convention == "released"
    if released and (recipe.positions.convention == "paper" or recipe.positions.kind != "stochastic"):
        # Where StoP's code adds b to a masked token, the paper adds m̃: with m̃ = b both predict the same.
        tensors["mask_token"] = tensors["projection.bias"].clone()
    return {f"predictor.{name}": tensor for name, tensor in tensors.items()}


def _settings(predictor: PublishedPredictor, heads: int) -> dict[str, Any]:
    sizes = {"dim": predictor.dim, "depth": predictor.depth, "heads": predictor.heads or heads}
    return {"predictor": sizes, "convention": predictor.convention}


def _for_our_pixels(tensors: dict[str, Tensor], found: Found) -> dict[str, Tensor]:
    """Pixels are normalised by ImageNet's statistics here. Others are put into the embedding of patches: the same."""
    if (found.mean, found.std) == (MEAN, STD):
        return tensors
    weight, bias = tensors["patch_embed.proj.weight"], tensors.get("patch_embed.proj.bias")
    if bias is None:
        raise UserError(
            f"{found.format} was trained with mean {found.mean} and deviation {found.std} of the pixels, and has no "
            "bias in its embedding of patches that could take up the difference to ImageNet's. It can be evaluated, "
            "but not trained further."
        )
    theirs = torch.tensor(found.std).view(1, 3, 1, 1)
    scale = torch.tensor(STD).view(1, 3, 1, 1) / theirs
    shift = (torch.tensor(MEAN) - torch.tensor(found.mean)).view(1, 3, 1, 1) / theirs
    return {
        **tensors,
        "patch_embed.proj.weight": weight * scale,
        "patch_embed.proj.bias": bias + (weight * shift).sum(dim=(1, 2, 3)),
    }


def _timm(name: str, rest: str) -> Found:
    encoder = open_timm(name, rest)
    return found_in_timm(encoder.model, f"timm's {rest}", encoder.image_size)


def _downloaded(name: str) -> Path:
    """The folder of a model on the hub: weights and what describes them, never code."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # a missing network has many names
        raise UserError(
            f"hf:{name} could not be fetched: {in_a_line(error)} Check the name; the first time, "
            "the network is needed."
        ) from error
