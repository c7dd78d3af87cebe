"""Functions whose parameters are the fields of a dataclass: written once, and still known to editors and mypy."""

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from flexpredict.settings.declarations import REQUIRED, descriptions
from flexpredict.settings.typed_values import typed_values, with_dataclasses

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def takes_fields_of(settings: Callable[P, S]) -> Callable[[Callable[[S], T]], Callable[P, T]]:
    """Decorate a function that takes a `settings` object: it is then called with that dataclass's parameters."""

    def make(given: dict[str, Any]) -> S:
        make_settings: Callable[..., S] = settings
        return make_settings(**with_dataclasses(settings, typed_values(settings, given)))

    return functools.partial(_called_like, settings, make)


def takes_some_fields_of(settings: Callable[P, Any]) -> Callable[[Callable[[dict[str, Any]], T]], Callable[P, T]]:
    """Like `takes_fields_of`, but the function takes a dictionary of given values, unchecked, without defaults."""
    return functools.partial(_called_like, settings, dict)


def _called_like(
    settings: Callable[P, Any], make: Callable[[dict[str, Any]], Any], function: Callable[[Any], T]
) -> Callable[P, T]:
    signature = inspect.signature(settings)
    returns = inspect.signature(function).return_annotation
    required = [name for name, one in signature.parameters.items() if one.default is REQUIRED]

    @functools.wraps(function)
    def call(*positional: P.args, **named: P.kwargs) -> T:
        given = {**signature.bind_partial(*positional).arguments, **named}
        missing = [name for name in required if name not in given]
        if missing:
            raise TypeError(f"{function.__name__}() needs {' and '.join(missing)}")
        return function(make(given))

    call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    described = descriptions(settings)
    lines = [f"{name}: {described.get(name, '')}" for name in signature.parameters]
    wrap = textwrap.TextWrapper(116, "    ", " " * 8, break_on_hyphens=False)
    fields = map(wrap.fill, lines)
    call.__doc__ = "\n".join([f"{inspect.getdoc(function)}\n\nArgs:", *fields])
    return call
