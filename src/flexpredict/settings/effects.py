"""Refuses settings that would have no effect in a run."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

from flexpredict.errors import UserError
from flexpredict.settings.masking import Kind
from flexpredict.settings.recipe import MethodName, Recipe

MASKING: dict[MethodName, Kind] = {"ijepa": "multiblock", "mae": "random", "data2vec": "blocks"}  # the defaults

_METHODS: dict[str, tuple[tuple[MethodName, ...], str]] = {
    "targets.resolution": (("ijepa",), "it resizes the features that I-JEPA predicts"),
    "targets.standardize": (("ijepa",), "it rescales the features that I-JEPA predicts"),
    "targets.norm": (("ijepa",), "data2vec averages layers that are layer-normed, and mae predicts pixels"),
    "targets.layers": (("ijepa", "data2vec"), "mae predicts pixels"),
    "embedding_scale": (("ijepa", "mae"), "data2vec's noise goes through the patch embedding"),
    "normalize_pixels": (("mae",), "only it predicts pixels"),
}
# Recipe files and the config.yaml of runs have these for any method, so they are refused only if given explicitly.
_METHODS_WHEN_GIVEN: dict[str, tuple[tuple[MethodName, ...], str]] = {
    f"optimizer.{name}": (("ijepa", "data2vec"), "mae has no target encoder")
    for name in ("ema_momentum", "final_ema_momentum", "ema_by_steps")
}
_KINDS_OF_MASKS: dict[str, tuple[Kind, ...]] = {
    "targets": ("multiblock", "published"),
    "target_scale": ("multiblock", "published", "blocks"),
    "target_aspect": ("multiblock", "published", "blocks"),
    "context_scale": ("multiblock", "published"),
    "min_context": ("multiblock",),
    "mask_ratio": ("random", "blocks"),
}


def refuse_settings_of_others(recipe: Recipe) -> None:
    """Refuse settings that the method of this recipe does not use, wherever they come from."""
    _refuse_of_methods(recipe, _METHODS, {name: attrgetter(name)(recipe) for name in _METHODS})
    if recipe.method != "ijepa" and recipe.positions.convention == "released":
        raise UserError(
            f"positions.convention=released reproduces the authors' code for I-JEPA, but the method is "
            f"{recipe.method}. Leave it out, or use method=ijepa."
        )


def refuse_without_effect(recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Refuse settings given beside the recipe file (as nested dictionaries) that would change nothing in this run.

    A group with all its values is not checked: it comes from a record, such as a run's config.yaml.
    """
    values = dict(_leaves(given))
    _refuse_of_methods(recipe, _METHODS_WHEN_GIVEN, values)
    kind = recipe.masking.kind or MASKING[recipe.method]
    for last_part, kinds in _KINDS_OF_MASKS.items():
        name = f"masking.{last_part}"
        if kind not in kinds and _is_changed(name, values):
            value = list(values[name]) if isinstance(values[name], tuple) else values[name]
            raise UserError(
                f"{name}={value} has no effect with masking.kind={kind}, only with {' or '.join(kinds)}. "
                "Leave it out, or use another masking.kind."
            )
    if recipe.optimizer.kind == "adamw" and _is_changed("optimizer.muon_lr", values):
        raise UserError(
            f"optimizer.muon_lr={values['optimizer.muon_lr']:g} has no effect with optimizer.kind=adamw. Use "
            "optimizer.lr, or optimizer.kind=muon."
        )
    if recipe.probe_every is None and recipe.probe_data is None and _is_changed("keep_best", values):
        raise UserError(
            "keep_best=True has no effect: it keeps the checkpoint that probed best, and this run does not probe. "
            "Leave it out, or name labeled images with probe_data, or give probe_every."
        )


def _refuse_of_methods(
    recipe: Recipe, owners: Mapping[str, tuple[tuple[MethodName, ...], str]], values: Mapping[str, Any]
) -> None:
    for name, (methods, reason) in owners.items():
        if recipe.method not in methods and _is_changed(name, values):
            raise UserError(
                f"{name}={values[name]} belongs to method {' or '.join(methods)}: {reason}. Leave it out, or use "
                f"method={methods[0]} instead of {recipe.method}."
            )


def _is_changed(name: str, values: Mapping[str, Any]) -> bool:
    usual = attrgetter(name)(Recipe())
    return bool(values.get(name, usual) != usual)


def _leaves(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    usual = Recipe()
    for name, value in given.items():
        group = getattr(usual, name)
        if not (isinstance(value, Mapping) and is_dataclass(group)):
            yield name, value
        elif not value.keys() >= {field.name for field in fields(group)}:
            yield from ((f"{name}.{key}", part) for key, part in value.items())
