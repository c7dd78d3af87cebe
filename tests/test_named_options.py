"""Options behind a name: told from commas in file names, and refused where they are not known."""

from pathlib import Path

import pytest

from flexpredict.errors import UserError
from flexpredict.named_options import number, parse_options, split_options, whole_number

KNOWN = ("heads", "grid")


def test_options_are_split_from_the_name_in_any_order() -> None:
    assert split_options("x.pth", KNOWN) == ("x.pth", {})
    assert split_options("x.pth,heads=12,grid=4x16", KNOWN) == ("x.pth", {"heads": "12", "grid": "4x16"})
    assert split_options("x.pth,grid=4x16,heads=12", KNOWN) == ("x.pth", {"heads": "12", "grid": "4x16"})
    assert split_options("x.pth,heads=1,heads=2", KNOWN) == ("x.pth", {"heads": "2"}), "the last one counts"


@pytest.mark.parametrize("name", ["odd,heads=3.pth", "a,b.pth", "x=1,y"])
def test_a_comma_in_the_name_of_a_file_is_no_option(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert split_options(str(tmp_path / name), KNOWN) == (str(tmp_path / name), {})
    assert split_options(f"{tmp_path / name},heads=2", KNOWN) == (str(tmp_path / name), {"heads": "2"})


def test_a_comma_before_something_else_than_an_option_stays_in_the_name() -> None:
    assert split_options("shards-{0,1}.tar", KNOWN) == ("shards-{0,1}.tar", {})
    assert split_options("x" * 5000, KNOWN) == ("x" * 5000, {}), "too long to be a file"


def test_unknown_options_are_refused_and_the_nearest_is_suggested() -> None:
    for refused in (
        lambda: split_options("x.pth,head=3", KNOWN),
        lambda: parse_options("head=3", KNOWN, "x.pth,head=3"),
    ):
        with pytest.raises(UserError, match=r"'head' in x.pth,head=3 .*Did you mean 'heads'\? Options: heads, grid"):
            refused()


def test_a_leading_value_sets_the_first_option() -> None:
    known = ("count", "size")
    assert parse_options("", known, "scenes", first="count") == {}
    assert parse_options("500,size=64", known, "scenes", first="count") == {"count": "500", "size": "64"}
    assert parse_options("size=64,count=500", known, "scenes", first="count") == {"count": "500", "size": "64"}
    with pytest.raises(UserError, match="'500' in scenes is not an option"):
        parse_options("size=64,500", known, "scenes", first="count")
    with pytest.raises(UserError, match=r"size in scenes has no value. Write size=VALUE"):
        parse_options("5,size", known, "scenes", first="count")


def test_numbers_are_checked() -> None:
    assert whole_number("12", "heads", "x") == 12 and number("0.5", "where", "x") == 0.5
    for text in ("", "-1", "1.5", "many", "²", "0"):
        with pytest.raises(UserError, match="in x must be a whole number of at least 1"):
            whole_number(text, "heads", "x", least=1)
    with pytest.raises(UserError, match="where=abc in x must be a number"):
        number("abc", "where", "x")
