"""Names that carry options: `scenes:5000,size=64`, `weights.pth,heads=12`, `timm:resnet18,pretrained=no`."""

import os
import re
from collections.abc import Collection

from flexpredict.errors import UserError, did_you_mean


def split_options(name: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """`weights.pth,heads=12` -> `weights.pth` and its options. Commas in the name of an existing file do not count.

    known: the allowed options.
    """
    rest, options = name, dict[str, str]()
    while not os.path.exists(os.path.expanduser(rest)):  # noqa: PTH110, PTH111 (Path.exists raises for a long name)
        found = re.fullmatch(r"(.*),(\w+)=([^,]*)", rest, re.DOTALL)
        if found is None:
            break
        rest, key, value = found.groups()
        _require_known(key, known, name)
        options.setdefault(key, value)
    return rest, options


def parse_options(text: str, known: Collection[str], name: str, *, first: str | None = None) -> dict[str, str]:
    """`5000,size=64` -> {"count": "5000", "size": "64"}.

    Args:
        text: what follows the name.
        known: the allowed options.
        name: the whole name, for messages.
        first: the option that a leading value without a key sets.
    """
    options: dict[str, str] = {}
    for position, option in enumerate(filter(None, text.split(","))):
        key, equals, value = option.partition("=")
        if not equals and position == 0 and first is not None:
            key, value = first, option
        elif not equals and key in known:
            raise UserError(f"{key} in {name} has no value. Write {key}=VALUE.")
        _require_known(key, known, name)
        options[key] = value
    return options


def whole_number(value: str, key: str, name: str, least: int = 0) -> int:
    """The value of an option that counts something."""
    if not value.isdecimal() or int(value) < least:
        raise UserError(f"{key}={value} in {name} must be a whole number of at least {least}.")
    return int(value)


def number(value: str, key: str, name: str) -> float:
    """The value of an option that measures something."""
    try:
        return float(value)
    except ValueError as error:
        raise UserError(f"{key}={value} in {name} must be a number.") from error


def _require_known(key: str, known: Collection[str], name: str) -> None:
    if key not in known:
        raise UserError(f"'{key}' in {name} is not an option.{did_you_mean(key, known)} Options: {', '.join(known)}.")
