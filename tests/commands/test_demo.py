"""The demo runs from end to end and leaves what it promises."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from flexpredict import demo


def test_the_demo_compares_three_encoders_and_saves_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "TRAIN", 1200)
    monkeypatch.setattr(demo, "TEST", 200)
    monkeypatch.setitem(demo.RECIPE, "data", "scenes:1200")
    console = Console(record=True, width=120)
    saved = demo.run_demo(tmp_path / "demo", steps=6, console=console)
    text = console.export_text()
    for word in ("untrained", "sin-cos", "StoP", "counting", "results.json", "StoP is ahead of sin-cos in"):
        assert word in text
    assert json.loads((tmp_path / "demo" / "results.json").read_text()) == saved
    for arm in ("sin-cos", "StoP"):
        assert (tmp_path / "demo" / arm / "encoder.safetensors").is_file()
        assert (tmp_path / "demo" / arm / "report.html").is_file()
    assert set(saved["accuracy_percent"]) == {"untrained", "sin-cos", "StoP"}
    for accuracies in saved["accuracy_percent"].values():
        assert accuracies.keys() == demo.COLUMNS.keys() and all(0 <= value <= 100 for value in accuracies.values())
    # Running it again replaces its own runs.
    demo.run_demo(tmp_path / "demo", steps=2, console=Console(quiet=True))
