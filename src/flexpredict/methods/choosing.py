"""Chooses the method of a recipe. What is specific to a method is in `settle` and `build` of its module."""

from dataclasses import replace
from typing import Protocol

from flexpredict.errors import UserError
from flexpredict.methods import data2vec, ijepa, mae
from flexpredict.methods.method import Method
from flexpredict.model.building import ModelFacts
from flexpredict.model.encoder import Encoder
from flexpredict.settings.effects import MASKING, refuse_settings_of_others
from flexpredict.settings.recipe import EncoderPositions, MethodName, Recipe
from flexpredict.sizes import Grid


class _MethodModule(Protocol):
    """The functions that every method's module provides."""

    def settle(self, recipe: Recipe, facts: ModelFacts) -> Recipe: ...

    def build(self, recipe: Recipe, encoder: Encoder) -> Method: ...


_METHODS: dict[MethodName, _MethodModule] = {"ijepa": ijepa, "mae": mae, "data2vec": data2vec}


def settle_method(recipe: Recipe, facts: ModelFacts) -> Recipe:
    """The recipe with the defaults of its method filled in; raises if its settings contradict each other."""
    recipe.positions.check()
    positions: EncoderPositions = "learned" if recipe.positions.kind == "learned" else "sincos"
    if facts.relative:
        positions = "relative"
    settled = replace(
        recipe,
        positions=replace(recipe.positions, convention=recipe.positions.convention or "paper"),
        encoder_positions=recipe.encoder_positions or positions,
        masking=recipe.masking.settled(MASKING[recipe.method]),
    )
    refuse_settings_of_others(settled)
    recipe.targets.check(facts.depth)
    return _METHODS[recipe.method].settle(settled, facts)


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
    return _METHODS[recipe.method].build(recipe, encoder)
