"""What a person sees while a run goes on, and when it saves."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from flexpredict.training import checkpoint_timer, progress
from flexpredict.training.checkpoint_timer import CheckpointTimer
from flexpredict.training.progress import TrainingProgress, fitting


def test_at_80_columns_the_line_keeps_steps_time_left_and_loss() -> None:
    parts = ["step 12,345 of 100,000", "2 h 41 min left", "loss 0.4211", "location share 18%", "312 images/s"]
    line = fitting(parts, 80)
    assert len(line) <= 80 - 9 and line == " · ".join(parts[:3])
    assert fitting(parts, 200) == " · ".join(parts)
    assert fitting(parts, 10) == parts[0]


def test_a_terminal_of_80_columns_shows_the_time_left_at_once() -> None:
    console = Console(record=True, width=80, force_terminal=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with TrainingProgress(console, steps=100_000) as shown:
        shown.numbers({"loss": 0.4211, "images_per_second": 312.0, "data_wait": 0.01, "location_share": 0.18})
        shown.step(1)
    text = console.export_text()
    assert " left · loss 0.4211" in text


def test_a_run_of_many_hours_is_said_once_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    shown = TrainingProgress(console, steps=10_000, advice="Give minutes.")
    for step in range(1, 20):
        now += 2.0
        shown.step(step)
    assert console.export_text().count("This run takes about 5 h 33 min here. Give minutes.") == 1


def test_checkpoints_come_every_two_minutes_or_cost_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(checkpoint_timer, "time", SimpleNamespace(monotonic=lambda: now))
    timer = CheckpointTimer()
    now = 119.0
    assert not timer.due()
    now = 120.0
    assert timer.due()
    with timer.writing():
        now += 30.0
    now += 599.0
    assert not timer.due()
    now += 1.0
    assert timer.due()
