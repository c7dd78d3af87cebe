"""Reads which settings a function or a dataclass declares: by its parameters or fields, and its docstring."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

REQUIRED = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting."""

    name: str  # with dots if it is nested, as in optimizer.lr
    kind: Any  # its type
    default: Any  # the value if it is not given; REQUIRED if it must be given
    description: str  # from the docstring

    @property
    def group(self) -> type | None:
        """The dataclass of its nested settings; None if it is a single value."""
        kinds = (kind for kind in alternatives(self.kind) if isinstance(kind, type))
        return next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)

    @property
    def is_list(self) -> bool:
        return any(get_origin(kind) is list for kind in alternatives(self.kind))

    @property
    def may_be_mapping(self) -> bool:
        return any(get_origin(kind) is dict for kind in alternatives(self.kind))

    @property
    def is_switch(self) -> bool:
        return alternatives(self.kind) == [bool]

    @property
    def is_pair(self) -> bool:
        return all(get_origin(kind) is tuple for kind in alternatives(self.kind))

    @property
    def choices(self) -> list[str]:
        """The allowed words, if only some are allowed."""
        kinds = alternatives(self.kind)
        kinds += [part for kind in kinds if get_origin(kind) is list for part in alternatives(*get_args(kind))]
        return [str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]


@functools.cache
def declared(source: Callable[..., Any]) -> Mapping[str, Setting]:
    """All settings of a function or dataclass by their names, each group before its nested settings."""
    return {setting.name: setting for setting in _declared(source)}


def _declared(source: Callable[..., Any], prefix: str = "") -> Iterator[Setting]:
    described = descriptions(source)
    for name, parameter in inspect.signature(source).parameters.items():
        # Defaults made by a factory are empty, or groups whose settings have defaults of their own.
        default = None if repr(parameter.default) == "<factory>" else parameter.default
        setting = Setting(f"{prefix}{name}", parameter.annotation, default, described.get(name, ""))
        yield setting
        if setting.group is not None:
            yield from _declared(setting.group, f"{prefix}{name}.")


def descriptions(source: Callable[..., Any]) -> dict[str, str]:
    """The text about each parameter below `Args:` in the docstring; for a dataclass, also in those of its bases."""
    documented = reversed(source.__mro__) if isinstance(source, type) else (source,)
    found: dict[str, str] = {}
    for one in documented:
        arguments = (inspect.getdoc(one) or "").partition("Args:\n")[2]
        for entry in re.split(r"\n(?=    \w)", arguments.rstrip()):
            name, _, text = entry.partition(":")
            found[name.strip()] = " ".join(text.split())
    return found


def alternatives(kind: Any, with_none: bool = False) -> list[Any]:
    """The types that a union allows; without None unless `with_none`."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [kind for kind in kinds if with_none or kind is not type(None)]


def in_words(kind: Any) -> str:
    """The values that a setting of this type takes: "a number", "mean or class", "two numbers"."""
    words = list(dict.fromkeys(word for one in sorted(alternatives(kind), key=_is_mapping) for word in _words(one)))
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _words(kind: Any) -> list[str]:
    plain = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        list[int]: "one or more whole numbers",
        list[float]: "one or more numbers",
    }
    if kind in plain:
        return [plain[kind]]
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    if get_origin(kind) is tuple:
        return [f"two {'whole ' if int in get_args(kind) else ''}numbers"]
    if get_origin(kind) is list:
        return [word for one in alternatives(*get_args(kind)) for word in _words(one)]
    return ["a mapping such as {name: value}" if _is_mapping(kind) else "text"]


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is dict or dataclasses.is_dataclass(kind)
