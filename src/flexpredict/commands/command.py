"""A command of the shell, made from a function: its parameters are the options, its docstring is the help."""

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

    name: str  # one or two words, joined by _ in the name of the function
    summary: str  # half a line for the list of commands
    example_arguments: tuple[str, ...]  # of complete command lines, the most common first
    # Optional parameters that may be given without their names; required ones always may.
    unnamed: str = ""
    # Headings of the help page, and the parameters below each.
    groups: Mapping[str, str] = field(default_factory=dict)
    folded: tuple[str, ...] = ()  # headings whose options the help page explains only if asked for
    interrupted: str = ""  # printed if a signal ends the command: what is kept, and how to continue

    @property
    def examples(self) -> list[str]:
        return [f"flexpredict {self.name} {words}".rstrip() for words in self.example_arguments]

    def load(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module("flexpredict.api"), self.name.replace(" ", "_"))
        return function

    def settings(self) -> Mapping[str, Setting]:
        return declared(self.load())

    def positional(self) -> list[str]:
        """The parameters that may be given without their names, in the function's order."""
        unnamed = self.unnamed.split()
        return [name for name, one in self.settings().items() if one.default is REQUIRED or name in unnamed]

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """The arguments of the function that these words give; the others keep their defaults."""
        return typed_values(self.load(), read_arguments(words, self.settings(), self.positional()))
