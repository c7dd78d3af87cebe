"""Opens the model of a run at one of its checkpoints, or of a published checkpoint, for analysis."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from flexpredict.encoders.names import resolve_name
from flexpredict.errors import UserError, printable
from flexpredict.methods.choosing import build_method, settle_method
from flexpredict.methods.method import MaskedTokens, Method
from flexpredict.model.building import model_facts
from flexpredict.runs.checkpoint import load_model, newest_checkpoint, read_state
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import Recipe, parse_image_sizes
from flexpredict.training.initial_weights import initial_weights
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.starting_weights import adopted, start_from


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model in evaluation mode."""

    name: str  # as given by the user
    recipe: Recipe
    model: Method  # with the weights of the checkpoint
    step: int | None  # of the checkpoint; None for published ones
    noise_std: float  # at that step
    new_matrix: Tensor  # d_p d_n, `matrix` before training

    @property
    def label(self) -> str:
        """A short name for legends."""
        return printable(Path(self.name).resolve().name)

    @property
    def tokens(self) -> MaskedTokens:
        return self.model.masked_tokens

    @property
    def positions(self) -> Tensor:
        """ψ, N d_p."""
        return self.tokens.positions.detach().float()

    @property
    def matrix(self) -> Tensor:
        """The matrix that projects the noise, d_p d_n: A, unless the recipe says otherwise."""
        return self.tokens.stochastic.noise_matrix.detach().float()

    @property
    def image_size(self) -> tuple[int, int]:
        assert self.recipe.image_size
        return parse_image_sizes(self.recipe.image_size)[0]

    def level(self, noise_std: float | None) -> float:
        """The given noise level, by default the run's own."""
        if noise_std is None:
            return self.noise_std
        if not 0 <= noise_std < math.inf:
            raise UserError(f"noise_std={noise_std:g} must be a standard deviation: 0 or more, and finite.")
        return noise_std


def open_model(name: str | Path, step: int | None = None, heads: int | None = None) -> OpenedModel:
    """Open a run folder at its last checkpoint (or another that was kept), or a checkpoint of I-JEPA or StoP.

    heads: attention heads of a published checkpoint, if they cannot be derived from its width.
    """
    resolved = resolve_name(name)
    if resolved.kind == "run" or (resolved.kind == "checkpoint" and resolved.path.is_dir()):
        return _run(RunFolder(resolved.path), str(name), step)
    if step is not None:
        raise UserError(f"step={step} chooses a checkpoint of a run folder, but {printable(str(name))} is not one.")
    return _published(str(name), heads)


def run_config(folder: RunFolder) -> Recipe:
    """The recipe that a run was made with."""
    if not folder.config.is_file():
        raise UserError(
            f"{printable(str(folder.path))} is not a run folder: it has no config.yaml. Give the folder of a run."
        )
    return make_recipe(folder.load_config())


def _run(folder: RunFolder, name: str, step: int | None) -> OpenedModel:
    recipe = run_config(folder)
    checkpoint = newest_checkpoint(folder.checkpoints) if step is None else _kept(folder.checkpoints, step)
    step = int(read_state(checkpoint)["step"])  # in a copy without links its name may be "last"
    model, new_matrix = _new(recipe)
    load_model(checkpoint, model)
    # The level may follow a schedule or be predicted from the context, so prefer the log to the recipe.
    known = (record for record in read_records(folder.metrics) if "noise_std" in record)
    logged = [record["noise_std"] for record in known if record.get("step", step + 1) <= step]
    level = logged[-1] if logged else model.masked_tokens.stochastic.noise_std
    return OpenedModel(name, recipe, model.eval(), step, float(level), new_matrix)


def _kept(checkpoints: Path, step: int) -> Path:
    path = checkpoints / f"step-{step}"
    if not (path / "state.json").is_file():
        steps = sorted(int(other.name.removeprefix("step-")) for other in checkpoints.glob("step-*"))
        raise UserError(
            f"There is no checkpoint of step {step} in {checkpoints}; available steps: "
            f"{', '.join(map(str, steps)) or 'none'}. Choose one, or train with keep_every to keep more."
        )
    return path


def _published(name: str, heads: int | None) -> OpenedModel:
    recipe = Recipe(init_from=name, model_options={} if heads is None else {"num_heads": heads})
    initial = initial_weights(recipe)
    if not initial.rest:
        raise UserError(
            f"{printable(name)} has an encoder but no predictor of I-JEPA or StoP, so it has no A to analyze. Give "
            "a run folder, or a complete published checkpoint (.pth.tar)."
        )
    if initial.settings["convention"] != "released":
        recipe = replace(recipe, positions=replace(recipe.positions, kind="sincos"))  # I-JEPA's
    recipe = adopted(recipe, initial)
    assert recipe.model
    recipe = settle_method(recipe, model_facts(recipe.model, recipe.model_options))
    model, new_matrix = _new(recipe)
    start_from(model, initial)
    return OpenedModel(name, recipe, model.eval(), None, model.masked_tokens.stochastic.noise_std, new_matrix)


def _new(recipe: Recipe) -> tuple[Method, Tensor]:
    """The model before training, and the matrix that projects its noise."""
    spec = EncoderSpec.of_config(asdict(recipe))
    model = build_method(recipe, spec.build(recipe.seed))
    with torch.no_grad():
        return model, model.masked_tokens.stochastic.noise_matrix.float().clone()
