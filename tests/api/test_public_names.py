"""What `import flexpredict` offers: everything public is named, imported when it is used, typed and documented."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import flexpredict
from flexpredict.commands.table import COMMANDS
from flexpredict.settings.declarations import declared

VERBS = [name.replace(" ", "_") for name in COMMANDS if name != "demo"]


def test_dir_shows_everything_public_and_all_of_it_is_there() -> None:
    named = set(dir(flexpredict))
    assert {*VERBS, "load", "Recipe", "Positions", "Masking", "Optimizer", "Targets", "Augmentation"} <= named
    assert {"StochasticPositions", "Run", "UserError", "__version__"} <= named
    assert all(getattr(flexpredict, name) is not None for name in named)
    everything: dict[str, object] = {}
    exec("from flexpredict import *", everything)
    assert named - {"__version__"} <= everything.keys()
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        flexpredict.pretrian  # noqa: B018


def test_the_verbs_stay_functions_whatever_is_imported() -> None:
    """No package may have the name of a verb: it would take its place as soon as it is imported."""
    code = "import flexpredict, pkgutil, importlib\n"
    code += "names = [module.name for module in pkgutil.iter_modules(flexpredict.__path__) if module.name != 'cli']\n"
    code += "for name in names: importlib.import_module(f'flexpredict.{name}')\n"
    code += f"assert all(callable(getattr(flexpredict, name)) for name in {VERBS}), names"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_typed_and_every_parameter_is_described(name: str) -> None:
    function = getattr(flexpredict, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
    for setting in declared(function).values():
        assert setting.description, setting.name
    assert inspect.getdoc(function).index("Args:") > 40


def test_help_of_pretrain_shows_every_field_of_the_recipe() -> None:
    shown = inspect.signature(flexpredict.pretrain)
    assert list(shown.parameters)[:2] == ["data", "out"]
    assert {"epochs", "positions", "config", "resume", "overwrite"} <= shown.parameters.keys()
    assert "passes over the data" in inspect.getdoc(flexpredict.pretrain)


def test_the_reference_has_every_public_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert {name for name in flexpredict.__all__ if f":: flexpredict.{name}\n" not in page} == set()
