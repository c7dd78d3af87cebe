"""Settings that differ from those of a folder are named, all of them, and no others."""

from pathlib import Path

import pytest

from flexpredict.errors import UserError
from flexpredict.same_settings import changed_settings, read_settings, require_same_settings

RECORDED = {"size": 16, "optimizer": {"lr": 0.1, "betas": [0.9, 0.999]}, "data": "a", "workers": 2}


def test_equal_settings_pass_and_so_do_those_that_are_free() -> None:
    require_same_settings(Path("runs/a"), RECORDED, dict(RECORDED), "Go away.")
    require_same_settings(Path("runs/a"), RECORDED, RECORDED | {"workers": 8}, "Go away.", free=("workers",))


def test_every_difference_is_named_with_both_values_and_the_remedy_follows() -> None:
    asked = {"size": 24, "optimizer": {"lr": 0.1, "betas": [0.8, 0.999]}, "data": "a", "workers": 2, "crop": "none"}
    with pytest.raises(UserError) as refused:
        require_same_settings(Path("runs/a"), RECORDED, asked, "Use another folder.")
    assert str(refused.value) == (
        "runs/a was started with size=16 (now 24), optimizer.betas=[0.9, 0.999] (now [0.8, 0.999]), crop=None (now "
        "none). Use another folder."
    )


def test_a_group_in_place_of_a_value_is_a_difference() -> None:
    assert changed_settings({"crop": "none"}, {"crop": {"flip": 1}}) == ["crop=none (now {'flip': 1})"]
    assert changed_settings({"crop": {"flip": 1}}, {"crop": "none"}) == ["crop={'flip': 1} (now none)"]


def test_what_is_recorded_but_not_asked_for_does_not_matter() -> None:
    assert changed_settings(RECORDED, {"size": 16}) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe"])
def test_a_damaged_record_is_refused_with_the_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(UserError, match=r"state.json is damaged.* Delete it\."):
        read_settings(tmp_path / "state.json", "Delete it.")
