"""Recipes from YAML files and Python values, by the same rules."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError, did_you_mean
from flexpredict.runs.run_folder import read_yaml
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.typed_values import typed_values, with_dataclasses

_SHIPPED = Path(__file__).parents[1] / "recipes"
_OTHER_WAY = {"noise_std": "noise_to_signal", "noise_to_signal": "noise_std"}


def make_recipe(values: Mapping[str, Any], config: str | Path | None = None) -> Recipe:
    """A recipe from Python values (nested dictionaries or dataclasses) over those of a YAML file."""
    below = {} if config is None else checked_values(read_yaml(recipe_file(config)), config)
    return Recipe(**with_dataclasses(Recipe, merge(below, typed_values(Recipe, values))))


def checked_values(values: Mapping[str, Any], file: str | Path) -> dict[str, Any]:
    """Values of a recipe, converted to their types; errors name the file."""
    try:
        return typed_values(Recipe, values)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def choose_length(recipe: Recipe, given: Collection[str]) -> Recipe:
    """Settle between minutes and epochs: the one that was given overrides the other one in the recipe file.

    given: names of settings given outside that file. With minutes, the file's epochs stay, because its warm-up
    refers to them.
    """
    if recipe.minutes is None or recipe.epochs is None:
        return recipe
    if ("minutes" in given) == ("epochs" in given):
        raise UserError(
            f"minutes={recipe.minutes:g} and epochs={recipe.epochs:g} both say how long the run is. Give one of them."
        )
    return recipe if "minutes" in given else dataclasses.replace(recipe, minutes=None)


def recipe_file(config: str | Path) -> Path:
    """The file of a recipe that is named by its path or, if it is built in, by its name."""
    shipped = {file.stem: file for file in sorted(_SHIPPED.glob("*.yaml"))}
    path = Path(config) if Path(config).is_file() else shipped.get(str(config))
    if path is None:
        hint = did_you_mean(str(config), shipped)
        raise UserError(f"There is no recipe file {config}.{hint} Built-in recipes: {', '.join(shipped)}.")
    return path


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dictionaries; `above` wins.

    A noise_std in `above` replaces a noise_to_signal in `below`, and the reverse. Single values of the augmentation
    change a preset.
    """
    replaced = {_OTHER_WAY[name] for name in above if name in _OTHER_WAY} - set(above)
    merged = {name: value for name, value in below.items() if name not in replaced}
    for name, value in above.items():
        old = merged.get(name)
        if name == "augmentation" and isinstance(old, str):
            old = vars(PRESETS[old])
        merged[name] = merge(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged
