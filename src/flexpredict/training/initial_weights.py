"""The weights that pre-training starts from: a run, a checkpoint of any library, a model of timm or of the hub."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.arguments import EncoderOptions
from flexpredict.encoders.checkpoints.predictors import PublishedPredictor, published_predictor
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.encoders.names import resolve_name
from flexpredict.encoders.opening import load_weights
from flexpredict.errors import UserError
from flexpredict.runs.checkpoint import last_checkpoint, model_tensors
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import Recipe

ENCODERS = ("context_encoder", "target_encoder")


@dataclass
class InitialWeights:
    """Weights that pre-training starts from, and the settings that fit them.

    Args:
        name: as given in `init_from`.
        spec: of the encoder.
        context, target: weights of both encoders under timm's names; the same if there is only one.
        rest: the other weights of the method (predictor, decoder) under our model's names; empty if they are new.
        settings: those of the recipe that these weights need.
        lines: what was loaded, in words.
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
        initial.rest = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in ENCODERS}
        noise = {name: config["positions"][name] for name in ("noise_std", "noise_to_signal")}
        initial.settings = {
            "predictor": config["predictor"],
            "convention": config["positions"]["convention"],
            "standardize": config["targets"]["standardize"],
            **({"noise": noise} if config["positions"]["kind"] == "stochastic" else {}),
        }
    return initial


def _from_encoder(loaded: LoadedWeights, recipe: Recipe) -> InitialWeights:
    """An encoder, and the predictor stored with it if that is of the recipe's method."""
    name = recipe.init_from or ""
    # Images are pooled in the same way before and after training, so that the two can be compared.
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
    """Fold the normalization of these weights into the patch embedding, exactly: training uses ImageNet's."""
    if (loaded.mean, loaded.std) == (MEAN, STD):
        return tensors
    weight, bias = tensors["patch_embed.proj.weight"], tensors.get("patch_embed.proj.bias")
    if bias is None:
        raise UserError(
            f"{loaded.format} was trained on pixels of mean {loaded.mean} and standard deviation {loaded.std}, and "
            "its patch embedding has no bias to absorb the difference to ImageNet's. It can be evaluated, but not "
            "trained further."
        )
    theirs = torch.tensor(loaded.std).view(1, 3, 1, 1)
    scale = torch.tensor(STD).view(1, 3, 1, 1) / theirs
    shift = (torch.tensor(MEAN) - torch.tensor(loaded.mean)).view(1, 3, 1, 1) / theirs
    return {
        **tensors,
        "patch_embed.proj.weight": weight * scale,
        "patch_embed.proj.bias": bias + (weight * shift).sum(dim=(1, 2, 3)),
    }
