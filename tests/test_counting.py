"""Lines of progress where there is no terminal."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from flexpredict import progress
from flexpredict.progress import Counting


def test_the_time_left_is_told_until_all_steps_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with Counting(console, "runs", "steps", 100) as counting:
        for steps, note in ((50, "training"), (50, "measuring a"), (0, "measuring b")):
            now += 20.0
            counting.add(steps, note)
    assert console.export_text().splitlines() == [
        "runs: 50 of 100 steps · 2/s · 20 s left · training",
        "runs: 100 of 100 steps · measuring a",
        "runs: 100 of 100 steps · measuring b",
    ]
