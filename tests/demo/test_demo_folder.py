"""What an earlier demo is good for."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from flexpredict.demo.recipe import ARMS, RECIPE, Protocol
from flexpredict.demo.running import demo_settings, open_folder, plan_runs
from flexpredict.errors import UserError


def opened(out: Path, steps: int = 10, *, overwrite: bool = False) -> str:
    """What is said."""
    console = Console(record=True, width=1000)
    open_folder(out, demo_settings(steps, Protocol()), overwrite, console)
    return console.export_text()


def test_the_same_demo_goes_on_where_it_is(tmp_path: Path) -> None:
    assert opened(tmp_path / "demo") == ""
    (tmp_path / "demo" / "something").touch()
    assert opened(tmp_path / "demo") == ""
    assert (tmp_path / "demo" / "something").exists()


def test_another_recipe_other_steps_or_other_software_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo"
    opened(out)
    assert "steps=10 (now 11)" in opened(out, steps=11)
    monkeypatch.setitem(RECIPE, "patch_size", 32)
    assert "recipe.patch_size=" in opened(out, steps=11)
    monkeypatch.delitem(RECIPE, "patch_size")
    assert "Starting over" in opened(out, steps=11)
    monkeypatch.setitem(ARMS, "StoP", {"kind": "stochastic", "noise_to_signal": 77.0})
    assert "(now 77.0)" in opened(out, steps=11)
    monkeypatch.setattr("flexpredict.demo.running.__version__", "99")
    assert "software.flexpredict=" in opened(out, steps=11)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["demo", "demo.1", "demo.2", "demo.3", "demo.4", "demo.5"]
    assert json.loads((tmp_path / "demo.1" / "demo.json").read_text())["steps"] == 10


def test_who_asks_to_start_over_gets_it_and_loses_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "demo")
    (tmp_path / "demo" / "mine").touch()
    assert "as asked" in opened(tmp_path / "demo", overwrite=True)
    assert (tmp_path / "demo.1" / "mine").exists() and not (tmp_path / "demo" / "mine").exists()


def test_a_damaged_record_is_said_and_can_be_left_behind(tmp_path: Path) -> None:
    opened(tmp_path / "demo")
    (tmp_path / "demo" / "demo.json").write_text("{")
    with pytest.raises(UserError, match=r"damaged.*overwrite=True"):
        opened(tmp_path / "demo")
    assert "as asked" in opened(tmp_path / "demo", overwrite=True)


def test_arms_of_a_seed_are_paired_and_a_second_seed_adds_to_the_first(tmp_path: Path) -> None:
    one, both = (plan_runs(tmp_path, 10, seeds, Protocol()) for seeds in ([0], [0, 1]))
    folders = {run.folder for own in one.values() for run in own}
    added = [run.name for own in both.values() for run in own if run.folder not in folders]
    assert added == ["sin-cos-seed=1", "StoP-seed=1"]
    # Nothing but positions differs.
    sincos, stop = ({**both[arm][1].plan.describe(), "positions": None} for arm in ("sin-cos", "StoP"))
    assert sincos == stop and both["StoP"][1].steps == 10
    assert [both[row][0].steps for row in ("untrained", "raw pixels")] == [0, 0]
