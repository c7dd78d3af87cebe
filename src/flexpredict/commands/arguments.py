"""Matches the words of a command line to settings. Types are checked later, in one place."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, get_origin

import yaml

from flexpredict.errors import UserError
from flexpredict.settings.declarations import REQUIRED, Setting, in_words
from flexpredict.settings.typed_values import unknown_name


def read_arguments(
    words: Sequence[str], settings: Mapping[str, Setting], positional: Sequence[str]
) -> dict[str, Any]:
    """Values as text by the names of their settings; those of a group are in a dictionary of their own.

    Understands `--epochs 3`, `--epochs=3`, `--image-size` for `--image_size`, `--resume` for `--resume true`,
    `--data A B` for a list, `--optimizer.betas 0.9 0.95` for a pair, and `--model_options.depth 4` for a mapping.

    Args:
        words: what follows the name of the command.
        settings: all settings of the command.
        positional: names of those whose values may be given without a name, in their order.
    """
    # Report a wrong name before anything that follows from it, such as a missing value.
    for word in takewhile(lambda word: word != "--", words):
        if _is_option(word):
            _setting(_name(word), settings)
    named: list[tuple[str, Any]] = []
    unnamed: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            unnamed += left
            break
        if not _is_option(word):
            unnamed.append(word)
            continue
        setting = _setting(_name(word), settings)
        taken = [word.partition("=")[2]] if "=" in word else _take_values(setting, left)
        named.append((setting.name, _value(setting, taken)))
    values: dict[str, Any] = {}
    for name, value in sorted(named, key=lambda one: one[0].count(".")):  # groups before their parts
        _put(values, name, value)
    values |= _assign(unnamed, [settings[name] for name in positional if name not in values])
    for name, setting in settings.items():
        if setting.default is REQUIRED and name not in values:
            raise UserError(f"--{name} is missing: {setting.description}")
    return values


def _is_option(word: str) -> bool:
    """Whether a word begins with a dash; a negative number is a value."""
    return re.match(r"--?[^\W\d]", word) is not None


def _name(word: str) -> str:
    return word.partition("=")[0].lstrip("-").replace("-", "_")


def _setting(name: str, settings: Mapping[str, Setting]) -> Setting:
    if name in settings:
        return settings[name]
    mapping, _, key = name.partition(".")
    if key and mapping in settings and get_origin(settings[mapping].kind) is dict:
        return Setting(name, Any, None, "")
    raise UserError(unknown_name(name, settings, mark="--"))


def _take_values(setting: Setting, left: list[str]) -> list[str]:
    """Remove the values of this setting from the remaining words, and return them."""
    values = list(takewhile(lambda word: word != "--" and not _is_option(word), left))
    if setting.is_switch:
        values = [word for word in values[:1] if word in ("true", "false")] or ["true"]
        if left[:1] != values:
            return values
    elif not values:
        raise UserError(f"--{setting.name} needs a value: {in_words(setting.kind)}.")
    elif not setting.is_list:
        values = values[: 2 if setting.is_pair and values[0][:1] not in "[(" else 1]
    del left[: len(values)]
    return values


def _value(setting: Setting, taken: list[str]) -> Any:
    if setting.kind is Any:
        return _loaded(taken[0])
    return taken if len(taken) > 1 else taken[0]


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    """Store a value in nested dictionaries. A group that was given as a whole keeps what is not overridden."""
    *groups, last = name.split(".")
    for group in groups:
        whole = values.get(group)
        whole = _loaded(whole) if isinstance(whole, str) else whole
        if isinstance(whole, str):
            raise UserError(
                f"--{group} {whole} sets the whole {group}, and --{name} a part of it. Give one or the other."
            )
        values[group] = whole if isinstance(whole, dict) else {}
        values = values[group]
    values[last] = value


def _loaded(text: str) -> Any:
    """The value as YAML reads it: a number, a word, a mapping."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _assign(words: list[str], positional: list[Setting]) -> dict[str, Any]:
    """Assign words to positional settings, one each; if there are more, the only list among these takes them."""
    surplus = len(words) - len(positional)
    lists = [setting.name for setting in positional if setting.is_list]
    if surplus > 0 and len(lists) != 1:
        wanted = " ".join(setting.name.upper() for setting in positional)
        raise UserError(
            f"'{words[-1]}' is one word too many{f' after {wanted}' if wanted else ''}. Name the option that it "
            "belongs to, or leave it out."
        )
    values: dict[str, Any] = {}
    for setting in positional:
        if not words:
            break
        count = 1 + (max(0, surplus) if [setting.name] == lists else 0)
        values[setting.name] = _value(setting, words[:count])
        words = words[count:]
    return values
