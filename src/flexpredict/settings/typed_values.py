"""Converts values to the types that their settings declare, whether from a command line, a YAML file or Python."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache, reduce
from os import PathLike, fspath
from typing import Any, Union

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from flexpredict.errors import UserError, closest, did_you_mean, printable
from flexpredict.settings.declarations import Setting, alternatives, declared, in_words

_WRONG_VALUE = (ArgumentError, TypeError, ValueError, OverflowError)
_PLAIN = (str, int, float, list, tuple, dict, PathLike, type(None))
_LONGEST = 200  # characters of a value that a message shows


def typed_values(source: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Check values against the types of their settings; turn text into numbers and so on.

    Args:
        source: the function or dataclass that declares the settings.
        values: some of its settings by name; those of a nested group are in a dictionary, or in its dataclass.
    """
    settings, result = declared(source), dict[str, Any]()
    for name, value in _leaves(values, settings):
        *groups, last = name.split(".")
        inner = reduce(lambda group, key: group.setdefault(key, {}), groups, result)
        inner[last] = _converted(settings[name], value)
    return result


def with_dataclasses(source: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the dictionary of each nested group into its dataclass.

    A dictionary stays one if its setting allows that: it has some values of a group whose others are not known yet.
    """
    settings, made = declared(source), dict(values)
    for name, value in values.items():
        group = settings[name].group
        if isinstance(value, Mapping) and group is not None:
            whole = group(**value)  # even if it is not used: this checks the values
            made[name] = value if settings[name].may_be_mapping else whole
    return made


def unknown_name(name: str, known: Mapping[str, Setting], mark: str = "") -> str:
    """The message about an unknown name. mark: the prefix of names, -- on a command line."""
    # A name without its group, such as noise_std, also gets a hint, even if it is misspelled.
    by_last_part = {setting.rpartition(".")[2]: setting for setting in reversed(list(known))}
    near = closest(name, known) or by_last_part.get(closest(name.rpartition(".")[2], by_last_part) or "")
    hint = f" Did you mean '{mark}{near}'?" if near else ""
    return f"There is no {'option' if mark else 'setting'} '{mark}{name}'.{hint}"


def _leaves(
    values: Mapping[str, Any], settings: Mapping[str, Setting], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Each value with the full name of its setting; groups are split into single settings."""
    for key, value in values.items():
        name = f"{prefix}{key}".replace("-", "_")
        if name not in settings:
            raise UserError(unknown_name(name, settings))
        group = _as_group(settings[name], value)
        if group is None:
            yield name, value
        else:
            yield from _leaves(group, settings, f"{name}.")


def _as_group(setting: Setting, value: Any) -> Mapping[str, Any] | None:
    """The values of a nested group, which may be written as text: {lr: 0.001}. None if the setting is not a group."""
    if setting.group is None or value in setting.choices:
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError(_refusal(setting, value)) from None
    if not isinstance(value, Mapping | None):
        raise UserError(_refusal(setting, value))
    return value or {}


def _converted(setting: Setting, value: Any) -> Any:
    if str in alternatives(setting.kind) and not isinstance(value, _PLAIN):
        return value  # Python callers may pass an object instead of its name: an encoder, opened images
    value = [_as_text(one) for one in value] if isinstance(value, list | tuple) else _as_text(value)
    if setting.is_list and isinstance(value, str | int | float) and str not in alternatives(setting.kind):
        value = _as_list(value)
    try:
        converted = _convert(setting.kind, value)
    except _WRONG_VALUE as error:
        raise UserError(_refusal(setting, value)) from error
    if converted is None and type(None) not in alternatives(setting.kind, with_none=True):
        raise UserError(_refusal(setting, value))
    return converted


def _as_text(value: Any) -> Any:
    """Turn paths, and objects that act as paths, such as a `Run`, into text."""
    return fspath(value) if isinstance(value, PathLike) else value


def _as_list(value: str | int | float) -> Any:
    """Wrap the single value of a list setting: [value], unless it is text that is itself a list, or null."""
    is_list = isinstance(value, str) and (value[:1] == "[" or value == "null")
    return value if is_list else [value]


def _convert(kind: Any, value: Any) -> Any:
    # A copy, because the parser converts lists in place.
    return _parser(kind).parse_object({"value": copy.deepcopy(value)}, defaults=False).value


@cache
def _parser(kind: Any) -> ArgumentParser:
    """A parser for one value of this type. Groups were split before: here, one can only be a preset's name."""
    kinds = [one for one in alternatives(kind, with_none=True) if not dataclasses.is_dataclass(one)]
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=Union[tuple(kinds)])  # noqa: UP007 (of any number of types)
    return parser


def _refusal(setting: Setting, value: Any) -> str:
    if isinstance(value, list):
        value = next((one for one in value if setting.is_list and not _fits(setting.kind, [one])), value)
    shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    hint = did_you_mean(shown, setting.choices, most=1)
    return f"{setting.name}={printable(shown[:_LONGEST])} does not work: it takes {in_words(setting.kind)}.{hint}"


def _fits(kind: Any, value: Any) -> bool:
    try:
        _convert(kind, value)
    except _WRONG_VALUE:
        return False
    return True
