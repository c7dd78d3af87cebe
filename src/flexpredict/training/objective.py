"""What follows from the choice of a method: its defaults, what it cannot do, and the model."""

from dataclasses import replace
from operator import attrgetter

from flexpredict.errors import UserError
from flexpredict.methods.data2vec import Data2Vec
from flexpredict.methods.ijepa import IJEPA
from flexpredict.methods.mae import MAE, patch_values
from flexpredict.methods.method import Method
from flexpredict.model.encoder import Encoder, ModelFacts
from flexpredict.model.positions import Grid
from flexpredict.model.predictor import Predictor
from flexpredict.settings.masking import Kind
from flexpredict.settings.recipe import EncoderPositions, MethodName, PredictorSize, Recipe

_MASKING: dict[MethodName, Kind] = {"ijepa": "multiblock", "mae": "random", "data2vec": "blocks"}


def settle_method(recipe: Recipe, facts: ModelFacts) -> Recipe:
    """The recipe with the defaults of its method filled in; raises where they do not go together."""
    recipe.positions.level(facts.dim)
    positions: EncoderPositions = "learned" if recipe.positions.kind == "learned" else "sincos"
    if facts.relative:
        positions = "relative"
    settled = replace(
        recipe,
        positions=replace(recipe.positions, convention=recipe.positions.convention or "paper"),
        encoder_positions=recipe.encoder_positions or positions,
        masking=recipe.masking.settled(_MASKING[recipe.method]),
    )
    _refuse_options_of_others(settled)
    recipe.targets.check(facts.depth)
    if recipe.method == "data2vec":
        _check_data2vec(settled, positions, facts)
        layers = recipe.targets.layers or max(1, facts.depth // 2)
        return replace(settled, targets=replace(recipe.targets, layers=layers))
    targets = recipe.targets
    if recipe.method == "ijepa":
        targets = replace(targets, layers=targets.layers or 1)
    return replace(settled, targets=targets, predictor=_predictor_size(recipe.predictor, facts))


def check_grid(recipe: Recipe, grid: Grid) -> Grid:
    """The grid on which masks are drawn, for a grid of patches."""
    side = recipe.targets.cell
    if grid[0] % side or grid[1] % side:
        raise UserError(
            f"targets.resolution={recipe.targets.resolution} predicts cells of {side}x{side} patches, and a grid of "
            f"{grid[0]}x{grid[1]} patches does not divide into them. Choose an image_size that makes both sides of "
            "the grid even, or targets.resolution=full."
        )
    return grid[0] // side, grid[1] // side


def build_method(recipe: Recipe, encoder: Encoder) -> Method:
    """The model of a settled recipe."""
    settings, seed = recipe.positions, recipe.seed
    if recipe.method == "data2vec":
        assert recipe.targets.layers
        return Data2Vec(encoder, settings, recipe.targets.layers, seed, settings.l1)
    size = recipe.predictor
    assert size.dim and size.depth and size.heads
    output = patch_values(encoder) if recipe.method == "mae" else None
    predictor = Predictor(encoder.dim, encoder.grid, size.dim, size.depth, size.heads, settings, seed, output)
    if recipe.method == "mae":
        return MAE(encoder, predictor, recipe.normalize_pixels, settings.l1)
    return IJEPA(encoder, predictor, recipe.targets, settings.l1)


def _predictor_size(size: PredictorSize, facts: ModelFacts) -> PredictorSize:
    dim = size.dim or min(384, max(4 * facts.heads, facts.dim // 2 // 4 * 4))
    heads = size.heads or max(h for h in range(1, facts.heads + 1) if dim % h == 0)
    return replace(size, dim=dim, depth=size.depth or max(1, min(12, facts.depth // 2)), heads=heads)


def _refuse_options_of_others(recipe: Recipe) -> None:
    """Options that only one method has."""
    owners: dict[str, tuple[tuple[MethodName, ...], str]] = {
        "targets.resolution": (("ijepa",), "it resizes the features that I-JEPA predicts"),
        "targets.standardize": (("ijepa",), "it rescales the features that I-JEPA predicts"),
        "targets.norm": (("ijepa",), "data2vec averages layers that are layer-normed, and mae predicts pixels"),
        "targets.layers": (("ijepa", "data2vec"), "mae predicts pixels"),
        "normalize_pixels": (("mae",), "only it predicts pixels"),
    }
    for name, (methods, reason) in owners.items():
        value, usual = (attrgetter(name)(settings) for settings in (recipe, Recipe()))
        if recipe.method not in methods and value != usual:
            raise UserError(
                f"{name}={value} belongs to method {' or '.join(methods)}: {reason}. Leave it out, or use "
                f"method={methods[0]} instead of {recipe.method}."
            )
    if recipe.method != "ijepa" and recipe.positions.convention == "released":
        raise UserError(
            f"positions.convention=released is how the authors' code for I-JEPA does it, and the method is "
            f"{recipe.method}. Leave it out, or use --method ijepa."
        )


def _check_data2vec(recipe: Recipe, positions: EncoderPositions, facts: ModelFacts) -> None:
    if facts.relative:
        raise UserError(
            f"{recipe.model} has relative positions, and method data2vec adds those of masked tokens to them. Use "
            "--method ijepa or mae, or a model with positions of its own such as vit_base_patch16_224."
        )
    if recipe.predictor != PredictorSize():
        raise UserError(
            "The size of a predictor is given (predictor.dim, depth or heads), and data2vec has none: its encoder "
            "predicts by itself. Leave them out (null), or use --method ijepa."
        )
    if recipe.masking.kind not in ("blocks", "random"):
        raise UserError(
            f"masking.kind={recipe.masking.kind} leaves patches neither seen nor predicted and predicts some twice, "
            "and data2vec's encoder sees every place once. Use masking.kind=blocks or random."
        )
    if recipe.encoder_positions != positions:
        raise UserError(
            f"encoder_positions={recipe.encoder_positions} contradicts positions.kind={recipe.positions.kind}: "
            "data2vec's masked tokens are in the encoder and have its positions. Leave encoder_positions out."
        )
    if recipe.positions.covariance == "conditional":
        raise UserError(
            "positions.covariance=conditional predicts the noise level from what the encoder makes of the context, "
            "and data2vec adds noise before the encoder. Use another covariance, or --method ijepa or mae."
        )
