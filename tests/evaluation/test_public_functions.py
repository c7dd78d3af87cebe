"""The functions behind the commands: light to import, documented, and of types that a command line can be made of."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from docstring_parser import parse
from jsonargparse import ArgumentParser

from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.dense import evaluate_depth, evaluate_segmentation
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.location import evaluate_location
from flexpredict.evaluation.probe import evaluate_clevr, probe, transfer
from flexpredict.features.embed import embed
from flexpredict.features.similar import similar

DENSE = (evaluate_segmentation, evaluate_depth)
FUNCTIONS = (probe, transfer, evaluate_clevr, evaluate_davis, evaluate_location, finetune, embed, similar, *DENSE)


def described(function: Callable[..., Any]) -> dict[str, str]:
    return {
        entry.arg_name: " ".join((entry.description or "").split()) for entry in parse(function.__doc__ or "").params
    }


def test_they_are_imported_without_torch() -> None:
    modules = sorted({function.__module__ for function in FUNCTIONS})
    code = (
        f"import sys, {', '.join(modules)}; print([m for m in ('torch', 'timm', 'numpy', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_is_described_in_order(function: Callable[..., Any]) -> None:
    names = list(inspect.signature(function).parameters)
    assert list(described(function)) == names
    assert all(text.endswith(".") and "--" not in text for text in described(function).values())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arguments_are_of_plain_types_that_a_command_line_can_be_made_of(function: Callable[..., Any]) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_function_arguments(function)
    needed = [name for name, one in inspect.signature(function).parameters.items() if one.default is one.empty]
    lists = {"query", "datasets"}
    given = [f"--{name}={['a'] if name in lists else 'a'}" for name in needed]
    parsed = parser.parse_args(given)
    assert all(getattr(parsed, name) in ("a", ["a"]) for name in needed)
