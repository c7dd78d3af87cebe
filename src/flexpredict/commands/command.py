"""A command of the shell, made of a function: its parameters are the options, its docstring is the help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from flexpredict.commands.arguments import read_arguments
from flexpredict.settings.declarations import REQUIRED, Setting, declared
from flexpredict.settings.typed_values import typed_values


@dataclass(frozen=True)
class Command:
    """How a function of `flexpredict.api` is called from the shell."""

    function: str  # its name
    summary: str  # half a line for the list of commands
    examples: tuple[str, ...]  # complete command lines, the most usual first
    # Parameters with a default that may be given without their names; those without one always may.
    unnamed: tuple[str, ...] = ()
    # Headings of the help page, and the parameters below each.
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folded: tuple[str, ...] = ()  # those headings that the help page names without their options, unless asked for
    interrupted: str = ""  # what is kept if a signal ends it, and how to go on

    def load(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module("flexpredict.api"), self.function)
        return function

    def settings(self) -> Mapping[str, Setting]:
        return declared(self.load())

    def positional(self) -> list[str]:
        """Names of the parameters that may be given without their names, in the order of the function's."""
        return [
            name for name, setting in self.settings().items() if setting.default is REQUIRED or name in self.unnamed
        ]

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """What the function is to be called with; what the words do not give is left to its defaults."""
        return typed_values(self.load(), read_arguments(words, self.settings(), self.positional()))
