"""The functions behind the commands: light to import, documented, and of one mind about the arguments they share."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import pytest
from docstring_parser import parse
from jsonargparse import ArgumentParser

from flexpredict.evaluation.clevr import evaluate_clevr
from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.depth import evaluate_depth
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.location import evaluate_location
from flexpredict.evaluation.probe import probe
from flexpredict.evaluation.segmentation import evaluate_segmentation
from flexpredict.evaluation.transfer import transfer
from flexpredict.features.embed import embed
from flexpredict.features.similar import similar
from flexpredict.settings.dense import DepthMeasuring, Segmenting
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.finetuning import Finetuning
from flexpredict.settings.probing import Probing

DENSE = (evaluate_segmentation, evaluate_depth)
FUNCTIONS = (probe, transfer, evaluate_clevr, evaluate_davis, evaluate_location, finetune, embed, similar, *DENSE)
FROZEN = (probe, transfer, evaluate_clevr, evaluate_location, embed, similar)  # these use frozen features
SHARED = ("which", "heads", "grid", "partial", "accelerator")
SHARED_BY_FROZEN = (*SHARED, "layers", "pooling", "image_size", "batch_size", "workers", "precision", "devices")


def described(function: Callable[..., Any]) -> dict[str, str]:
    return {
        entry.arg_name: " ".join((entry.description or "").split()) for entry in parse(function.__doc__ or "").params
    }


def declared(function: Callable[..., Any], name: str) -> tuple[Any, Any, str]:
    """The type, the default and the description of an argument."""
    parameter = inspect.signature(function).parameters[name]
    return parameter.annotation, parameter.default, described(function)[name]


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


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_same_argument_means_the_same_everywhere(function: Callable[..., Any]) -> None:
    for name in SHARED_BY_FROZEN if function in FROZEN else SHARED:
        assert declared(function, name) == declared(probe, name), name


@pytest.mark.parametrize("function", [transfer, evaluate_clevr])
def test_probes_of_several_tasks_have_the_settings_of_one(function: Callable[..., Any]) -> None:
    for name in ("subsets", "label_list", "l2", "seed", "table"):
        assert declared(function, name) == declared(probe, name), name


@pytest.mark.parametrize(("settings", "renamed"), [(Extraction, {}), (Probing, {"label_lists": "label_list"})])
def test_defaults_are_those_of_the_settings(settings: type, renamed: dict[str, str]) -> None:
    for field in fields(settings):
        parameter = inspect.signature(probe).parameters[renamed.get(field.name, field.name)]
        assert (parameter.default or None) == (field.default or None), field.name


@pytest.mark.parametrize(
    ("function", "settings"), [(evaluate_segmentation, Segmenting), (evaluate_depth, DepthMeasuring)]
)
def test_defaults_of_dense_tasks_are_those_of_their_settings(function: Callable[..., Any], settings: type) -> None:
    for field in fields(settings):
        assert inspect.signature(function).parameters[field.name].default == field.default, field.name


def test_the_settings_of_fine_tuning_are_arguments_of_one_type_with_their_defaults_in_one_place() -> None:
    parameters = inspect.signature(finetune).parameters
    for field in fields(Finetuning):
        assert parameters[field.name].annotation == field.type, field.name
        assert field.default is MISSING
