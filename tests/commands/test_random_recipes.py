"""Whatever a recipe file and a command line say together: a plan is made, or they are refused in one paragraph."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import RECIPE

from flexpredict import pretraining
from flexpredict.cli import main
from flexpredict.data.sources.opening import ArraySource
from flexpredict.settings.declarations import Setting, declared
from flexpredict.settings.recipe import Recipe
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe_parser import merge

SETTINGS = {name: one for name, one in declared(Recipe).items() if name != "data"}
JUNK = st.one_of(
    st.sampled_from(["", "-1", "null", "true", "[", "[1, 2]", "{a: 1}", "1e400", "nan", "224,96", "9x"]),
    st.sampled_from([-1, 0, 10**5, 10**30, 0.5, 1e300, float("nan"), float("inf")]),
    st.sampled_from([None, True, [], {}, [1, "a"], {"a": 1}, [0.5, 0.1]]),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)
IMAGES = ArraySource("images", torch.zeros(1, 40, 40, 3, dtype=torch.uint8).expand(48, -1, -1, -1))


def plausible(setting: Setting) -> st.SearchStrategy[Any]:
    """Values that are likely to get past the check of types, so that what comes behind it is tried too."""
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.name == "model":
        return st.sampled_from(["vit_tiny_patch16_224", "beit_base_patch16_224", "resnet18", "nothing"])
    if setting.name == "model_options":
        keys = st.sampled_from(["embed_dim", "depth", "num_heads", "reg_tokens", "mlp_ratio", "drop_rate", "wings"])
        return st.dictionaries(keys, st.sampled_from([0, 1, 2, 4, 24, 0.5, "x"]), max_size=2)
    number = st.one_of(st.sampled_from([1, 2, 3, 4, 8, 16, 32, 48]), st.floats(0, 1))
    if "tuple" in str(setting.kind):
        return st.lists(number, min_size=2, max_size=2)
    return number


@st.composite
def some_values(draw: st.DrawFn, most: int) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(list(SETTINGS)), max_size=most, unique=True))
    return {name: draw(st.one_of(plausible(SETTINGS[name]), plausible(SETTINGS[name]), JUNK)) for name in names}


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """optimizer.lr below optimizer, as a recipe file has it."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, inner = name.partition(".")
        result = merge(result, {group: {inner: value}} if dot else {name: value})
    return result


@pytest.fixture
def only_plan(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pre-training that stops when its plan is made. Returns the lengths of the plans."""
    steps: list[int] = []

    def run(recipe: Recipe, out: Path, **_: Any) -> Any:
        steps.append(make_plan(recipe, IMAGES, torch.device("cpu"), 1).steps)
        return SimpleNamespace(steps=steps[-1], finished=True, signal=None)

    monkeypatch.setattr(pretraining, "run", run)
    return steps


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], int]:
    """Runs a command line, and checks what it says about an error."""

    def run(words: list[str]) -> int:
        code = main(words)
        said = capsys.readouterr().err
        assert code in (0, 2)
        if code == 2:
            assert said.startswith("flexpredict: ") and said.count("\n") == 1 and len(said) < 900
            assert all(word not in said for word in ("Traceback", "Union", "typing.", "<class", "Parser"))
        return code

    return run


MANY = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(written=some_values(4), words=some_values(2))
def test_any_recipe_makes_a_plan_or_is_refused_in_one_paragraph(
    written: dict[str, Any],
    words: dict[str, Any],
    tmp_path: Path,
    only_plan: list[int],
    typed: Callable[[list[str]], int],
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(merge(RECIPE, nested(written))), encoding="utf-8")
    options = [f"--{name}={value}" for name, value in words.items()]
    planned = len(only_plan)
    code = typed(["pretrain", "images", "--config", str(file), "--out", str(tmp_path / "run"), *options])
    assert (len(only_plan) > planned) == (code == 0)
    assert not (tmp_path / "run").exists()


@settings(MANY, max_examples=100)
@given(text=st.one_of(st.text(), st.binary(), st.sampled_from(["[", "a: b: c", "- 1", "1", "? [a]", "&a [*a]"])))
def test_any_file_is_a_recipe_or_is_refused_in_one_paragraph(
    text: str | bytes, tmp_path: Path, only_plan: list[int], typed: Callable[[list[str]], int]
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_bytes(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    typed(["pretrain", "images", "--config", str(file), "--out", str(tmp_path / "run")])
