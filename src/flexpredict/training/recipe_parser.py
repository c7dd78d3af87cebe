"""Recipes from YAML files, command lines and Python arguments, all by the same rules."""

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace

from flexpredict.errors import UserError, did_you_mean
from flexpredict.settings.recipe import Recipe


def add_recipe(parser: ArgumentParser) -> None:
    """Options of a recipe: --config FILE, and one for each field."""
    parser.add_argument(
        "--config", action="config", help="a recipe in YAML, such as configs/laptop.yaml; what follows overrides it"
    )
    parser.add_class_arguments(Recipe)


def make_recipe(values: dict[str, Any], config: str | Path | None = None) -> Recipe:
    """A recipe from Python values (nested dictionaries or dataclasses) over those of a YAML file."""
    parser = ArgumentParser(exit_on_error=False)
    add_recipe(parser)
    merged = read_yaml(Path(config)) if config is not None else {}
    merged = merge(merged, {name: _as_values(value) for name, value in values.items()})
    with friendly_errors():
        return instantiate(parser, parser.parse_object(merged))


def instantiate(parser: ArgumentParser, namespace: Namespace) -> Recipe:
    built = parser.instantiate(namespace)
    return Recipe(**{field.name: built[field.name] for field in dataclasses.fields(Recipe)})


def choose_length(recipe: Recipe, given: Collection[str]) -> Recipe:
    """Whoever gives minutes or epochs overrides the other one of a recipe file.

    given: names of options that were given beside that file. The file's epochs stay with minutes, because its warm-up
    belongs to them.
    """
    if recipe.minutes is None or recipe.epochs is None:
        return recipe
    if ("minutes" in given) == ("epochs" in given):
        raise UserError(
            f"minutes={recipe.minutes:g} and epochs={recipe.epochs:g} both say how long the run is. Give one of them."
        )
    return recipe if "minutes" in given else dataclasses.replace(recipe, minutes=None)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file."""
    if not path.is_file():
        raise UserError(f"There is no recipe file {path}. The recipes that come along are in configs/.")
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise UserError(f"{path} must hold a mapping of option: value, but holds {type(loaded).__name__}.")
    return loaded


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, `above` winning."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    return merged


class friendly_errors:  # noqa: N801 (used like a function)
    """Turn the parser's errors into a `UserError`; where a name is unknown, suggest the nearest."""

    def __init__(self, command: str = "pretrain", settings: type = Recipe) -> None:
        self.command, self.settings = command, settings

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (ArgumentError, TypeError, ValueError)) and not isinstance(error, UserError):
            raise UserError(_in_words(str(error), self.command, option_names(self.settings))) from error


def _in_words(message: str, command: str, options: list[str]) -> str:
    message = re.sub(r"\s*\n\s*", " ", message).strip()
    unknown = re.search(r"unrecognized arguments?: --([\w.]+)", message)
    unknown = unknown or re.search(r"(?:does not accept option|Option) '([\w.]+)'", message)
    if unknown is None:
        return f"{message}. `flexpredict {command} --help` lists the options."
    name, group = unknown.group(1), re.search(r"Group '([\w.]+)'", message)
    full = f"{group.group(1)}.{name}" if group else name
    suggestion = did_you_mean(full, options) or did_you_mean(
        full.split(".")[-1], [option.split(".")[-1] for option in options]
    )
    return f"There is no option '{full}'.{suggestion} `flexpredict {command} --help` lists them all."


def option_names(settings: type = Recipe) -> list[str]:
    """Every option of a recipe (or of other settings), nested ones with dots."""
    names = []
    for name, kind in get_type_hints(settings).items():
        names.append(name)
        for one in (kind, *get_args(kind)):
            if dataclasses.is_dataclass(one):
                names += [f"{name}.{inner.name}" for inner in dataclasses.fields(one)]
    return names


def _as_values(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
