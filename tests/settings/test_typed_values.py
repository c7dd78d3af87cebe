"""Settings as declared by signatures and docstrings, and values in their types."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from flexpredict import UserError
from flexpredict.settings.declarations import REQUIRED, declared, in_words
from flexpredict.settings.parameters import takes_fields_of, takes_some_fields_of
from flexpredict.settings.typed_values import typed_values, unknown_name, with_dataclasses


@dataclass
class Inner:
    """A group.

    Args:
        rate: how fast,
            in two lines.
        pair: two numbers.
    """

    rate: float = 0.5
    pair: tuple[float, float] = (1.0, 2.0)


@dataclass(kw_only=True)
class Base:
    """What all have.

    Args:
        seed: a seed.
        inner: the group.
        style: a word, or a group.
    """

    seed: int = 0
    inner: Inner = field(default_factory=Inner)
    style: Inner | Literal["plain", "rich"] = "plain"


@dataclass(kw_only=True)
class Settings(Base):
    """What these have besides.

    Args:
        name: a name.
        sizes: numbers.
        free: anything.
    """

    name: str | None = field(default=None, kw_only=False)
    sizes: list[int] | None = None
    free: dict[str, Any] = field(default_factory=dict)


@takes_some_fields_of(Settings)
def call(given: dict[str, Any]) -> dict[str, Any]:
    """Do it."""
    return given


@takes_fields_of(Settings)
def call_with_all(asked: Settings) -> Settings:
    """Do it."""
    return asked


def test_a_function_of_settings_gets_checked_values_and_defaults() -> None:
    asked = call_with_all(Path("x"), seed="3", style={"rate": 1})  # type: ignore[arg-type]
    assert asked == Settings("x", seed=3, style=Inner(rate=1.0))
    with pytest.raises(UserError, match=r"There is no setting 'nmae'. Did you mean 'name'\?"):
        call_with_all(nmae=3)  # type: ignore[call-arg]


def test_things_may_be_given_in_place_of_their_names() -> None:
    thing = object()
    assert call_with_all(thing).name is thing  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"seed=.* does not work"):
        call_with_all(seed=thing)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [Settings, call, call_with_all])
def test_a_dataclass_and_a_function_with_its_fields_declare_the_same(source: Any) -> None:
    settings = declared(source)
    assert {"name", "seed", "inner.rate", "inner.pair", "style", "style.rate"} <= settings.keys()
    assert settings["inner.rate"].description == "how fast, in two lines."
    assert settings["name"].description == "a name." and settings["seed"].default == 0
    assert settings["style"].choices == ["plain", "rich"] and settings["inner"].group is Inner


def test_what_has_no_default_is_required() -> None:
    def function(must: int, may: int = 1) -> None:
        """Do it.

        Args:
            must: one.
            may: two.
        """

    settings = declared(function)
    assert settings["must"].default is REQUIRED and settings["may"].default == 1


def test_a_function_gets_what_was_given_and_nothing_else() -> None:
    assert call("x", seed=3) == {"name": "x", "seed": 3}
    assert call() == {}
    assert call(nmae=3) == {"nmae": 3}, "the function says what was meant"  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        call("x", 3)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "typed"),
    [
        ({"seed": "3", "name": Path("x")}, {"seed": 3, "name": "x"}),
        ({"inner": {"rate": "1e-3"}}, {"inner": {"rate": 0.001}}),
        ({"inner": "{rate: 2, pair: [3, 4]}"}, {"inner": {"rate": 2.0, "pair": (3.0, 4.0)}}),
        ({"inner": Inner(rate=3)}, {"inner": {"rate": 3.0, "pair": (1.0, 2.0)}}),
        ({"inner": None}, {}),
        ({"style": "rich"}, {"style": "rich"}),
        ({"style": {"rate": 1}}, {"style": {"rate": 1.0}}),
        ({"sizes": ("1", 2)}, {"sizes": [1, 2]}),
        ({"sizes": None, "name": None}, {"sizes": None, "name": None}),
        ({"free": {"a": [1, "b"]}}, {"free": {"a": [1, "b"]}}),
        ({"seed": 10**400}, {"seed": 10**400}),
    ],
)
def test_values_get_their_types(values: dict[str, Any], typed: dict[str, Any]) -> None:
    assert typed_values(Settings, values) == typed
    assert typed_values(Settings, typed_values(Settings, values)) == typed


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sede": 3}, "There is no setting 'sede'. Did you mean 'seed'?"),
        ({"inner": {"rat": 3}}, "There is no setting 'inner.rat'. Did you mean 'inner.rate'?"),
        ({"pari": 3}, "There is no setting 'pari'. Did you mean 'inner.pair'?"),
        ({"seed": None}, "seed=None does not work: it takes a whole number."),
        ({"seed": "null"}, "seed=null does not work: it takes a whole number."),
        ({"sizes": [1, "x"]}, "sizes=x does not work: it takes one or more whole numbers."),
        ({"inner": [1]}, "inner=1 does not work: it takes a mapping such as {name: value}."),
        ({"inner": {"pair": [1]}}, "inner.pair=1 does not work: it takes two numbers."),
        ({"style": "rch"}, "style=rch does not work: it takes plain, rich or a mapping such as {name: value}. Did"),
    ],
)
def test_wrong_values_are_told_in_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        typed_values(Settings, values)
    assert str(refused.value).startswith(message)


def test_values_that_are_given_stay_as_they_are() -> None:
    given = {"sizes": ["1", "2"], "inner": {"pair": ["1", "2"]}}
    typed_values(Settings, given)
    assert given == {"sizes": ["1", "2"], "inner": {"pair": ["1", "2"]}}


def test_groups_become_dataclasses() -> None:
    built = with_dataclasses(Settings, {"inner": {"rate": 1.0}, "style": "rich", "free": {"a": 1}})
    assert built == {"inner": Inner(rate=1.0), "style": "rich", "free": {"a": 1}}


def test_names_on_a_command_line_have_their_mark() -> None:
    assert unknown_name("rate", declared(Settings), "--").endswith("Did you mean '--inner.rate'?")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int | None, "a whole number"),
        (float, "a number"),
        (bool, "true or false"),
        (Literal["a", "b", "c"], "a, b or c"),
        (list[float] | None, "one or more numbers"),
        (list[Literal["a", "b"]], "a or b"),
        (tuple[float, float], "two numbers"),
        (str | list[str], "text"),
        (Inner | Literal["x"], "x or a mapping such as {name: value}"),
    ],
)
def test_types_in_words(kind: Any, words: str) -> None:
    assert in_words(kind) == words


def test_one_value_stands_for_a_list_of_one_and_paths_for_their_names(tmp_path: Path) -> None:
    assert typed_values(Settings, {"sizes": 3, "name": tmp_path}) == {"sizes": [3], "name": str(tmp_path)}
    assert typed_values(Settings, {"sizes": "[1, 2]"}) == {"sizes": [1, 2]}
    assert typed_values(Settings, {"sizes": "null"}) == {"sizes": None}
