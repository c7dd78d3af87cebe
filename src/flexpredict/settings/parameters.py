"""A function whose parameters are the fields of a dataclass, written once and still known to editors and mypy."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def takes_fields_of(settings: Callable[P, Any]) -> Callable[[Callable[[dict[str, Any]], T]], Callable[P, T]]:
    """Decorate a function that takes a dictionary: it is then called like the dataclass `settings`.

    The dictionary has what the caller gave, without defaults. Unknown names are in it too, so that the function can
    suggest what was meant.
    """

    def decorate(function: Callable[[dict[str, Any]], T]) -> Callable[P, T]:
        signature = inspect.signature(settings)
        returns = inspect.signature(function).return_annotation

        @functools.wraps(function)
        def call(*positional: P.args, **named: P.kwargs) -> T:
            return function({**signature.bind_partial(*positional).arguments, **named})

        call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
        call.fields_of = settings  # type: ignore[attr-defined]
        call.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n{_documented_fields(settings)}"
        return call

    return decorate


def _documented_fields(settings: Callable[..., Any]) -> str:
    documented = (inspect.getdoc(one) or "" for one in getattr(settings, "__mro__", (settings,)))
    return "\n".join(fields.rstrip() for text in documented if (fields := text.partition("Args:\n")[2]))
