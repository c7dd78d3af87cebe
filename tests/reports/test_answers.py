"""Answers on the page, each of which follows from the numbers of the run."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from written_runs import make_run

from flexpredict.reports.answers import Answer, answers
from flexpredict.runs.run_record import STOPPED, read_run


def answer(folder: Path, section: str, question: str = "", **values: Sequence[float]) -> Answer | None:
    """What the page says of a run that logged these values."""
    rows = zip(*values.values(), strict=True)
    run = make_run(folder, [{"step": 10 * i, **dict(zip(values, row, strict=True))} for i, row in enumerate(rows, 1)])
    return next((a for a in answers(read_run(run)) if (a.section, a.question) == (section, question)), None)


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [([0.1, 0.3, 0.4], "good"), ([0.1, 0.5, 0.3], "watch"), ([0.3, 0.3, 0.3], "bad"), ([0.1], "open")],
)
def test_accuracy_says_whether_it_learns(tmp_path: Path, accuracies: list[float], verdict: str) -> None:
    found = answer(tmp_path, "learning", loss=[1.0] * len(accuracies), knn_accuracy=accuracies)
    assert found is not None and found.verdict == verdict


def test_without_labels_the_loss_alone_is_not_taken_for_learning(tmp_path: Path) -> None:
    found = answer(tmp_path, "learning", loss=[1.0, 0.5, 0.1])
    assert found is not None and found.verdict == "open" and "`probe_data`" in found.text and "--" not in found.text


LOSS = [0.1, 0.05, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("rank", "verdict"), [([2, 3, 5, 8, 9], "good"), ([9, 8, 5, 3, 2], "bad"), ([1, 2, 2, 2, 3], "bad")]
)
def test_a_rising_loss_is_judged_by_what_became_of_the_targets(
    tmp_path: Path, rank: list[float], verdict: str
) -> None:
    found = answer(tmp_path, "learning", "Why does my loss rise?", loss=LOSS, target_rank=rank)
    assert found is not None and found.verdict == verdict
    assert "from 0.0500 at step 20 to 0.300" in found.text


def test_targets_are_called_richer_only_if_their_rank_has_risen(tmp_path: Path) -> None:
    for last, short in ((20.0, "Harder targets"), (9.9, "Other targets")):
        rank = [10.0, 10.0, last, last, last]
        found = answer(tmp_path, "learning", "Why does my loss rise?", loss=LOSS, target_rank=rank)
        assert found is not None and found.short == short and ("richer" in found.text) == (last > 10)


def test_a_single_low_value_in_a_noisy_log_is_no_rise(tmp_path: Path) -> None:
    loss = [0.3 - 0.0001 * i for i in range(100)]
    loss[80] = 0.25
    assert answer(tmp_path, "learning", "Why does my loss rise?", loss=loss) is None


def test_a_loss_that_falls_raises_no_question(tmp_path: Path) -> None:
    assert answer(tmp_path, "learning", "Why does my loss rise?", loss=sorted(LOSS, reverse=True)) is None


@pytest.mark.parametrize(("last", "verdict"), [(18.0, "good"), (8.0, "watch"), (2.0, "bad")])
def test_collapse_is_told_by_the_best_that_the_rank_has_been(tmp_path: Path, last: float, verdict: str) -> None:
    found = answer(tmp_path, "collapse", target_rank=[5.0, 20.0, last, last, last], target_spread=[0.5] * 5)
    assert found is not None and found.verdict == verdict and "spread is 0.500, 100% of its best" in found.text


def test_features_that_never_had_more_than_a_direction_have_collapsed(tmp_path: Path) -> None:
    found = answer(tmp_path, "collapse", target_rank=[1.8, 2.5, 2.9, 2.9])
    assert found is not None and (found.verdict, found.short) == ("bad", "Probably")


def test_a_run_that_was_stopped_for_its_loss_broke_down_unless_it_went_on(tmp_path: Path) -> None:
    warning = {"step": 4, "text": f"The loss of step 3 is not a number, {STOPPED}. Try something else."}
    (tmp_path / "warnings.jsonl").write_text(json.dumps(warning) + "\n")
    for steps, short in (([2], "It broke down"), ([2, 10], "Not known")):
        run = make_run(tmp_path, [{"step": step, "loss": 1.0} for step in steps])
        assert answers(read_run(run))[0].short == short


def test_a_loss_that_ends_not_finite_is_not_called_learning(tmp_path: Path) -> None:
    found = answer(tmp_path, "learning", loss=[0.5, 0.4, math.nan], linear_accuracy=[0.1, 0.2, 0.3])
    assert found is not None and (found.verdict, found.short) == ("bad", "It broke down")


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "good"), (0.4, "watch"), (0.8, "bad")])
def test_location_share_says_whether_features_only_tell_where(tmp_path: Path, share: float, verdict: str) -> None:
    found = answer(tmp_path, "place", location_share=[share] * 3)
    assert found is not None and found.verdict == verdict and f"{100 * share:.1f}%" in found.text


def test_the_best_encoder_is_named_where_the_last_one_is_worse(tmp_path: Path) -> None:
    question = "Which encoder do I take?"
    assert answer(tmp_path, "learning", question, knn_accuracy=[0.1, 0.5, 0.3]) is None, "there is none yet"
    for name in ("encoder.safetensors", "encoder_best.safetensors"):
        (tmp_path / name).touch()
    best = answer(tmp_path, "learning", question, knn_accuracy=[0.9, 0.2, 0.2], linear_accuracy=[0.1, 0.5, 0.3])
    assert best is not None and best.short == "encoder_best.safetensors" and "at step 20 with" in best.text
    last = answer(tmp_path, "learning", question, knn_accuracy=[0.1, 0.3, 0.5])
    assert last is not None and last.short == "encoder.safetensors"


def test_the_noise_is_described_by_what_it_does_to_places(tmp_path: Path) -> None:
    values = {"noise_to_signal": [0.5], "location_kept": [0.6], "location_blur": [0.7]}
    found = answer(tmp_path, "noise", **values)
    assert found is not None and found.verdict == "good" and "60.0%" in found.text and "0.700 patches" in found.text
    silent = answer(tmp_path, "noise", noise_to_signal=[0.0], location_kept=[1.0], location_blur=[0.0])
    assert silent is not None and silent.short == "There is none"


def test_gradient_spikes_and_waiting_are_told(tmp_path: Path) -> None:
    spiky = answer(tmp_path, "optimization", grad_norm=[0.1] * 20 + [5.0] * 4)
    assert spiky is not None and spiky.verdict == "watch" and "at 4 points" in spiky.text
    waiting = answer(tmp_path, "speed", images_per_second=[100.0], data_wait=[0.4])
    assert waiting is not None and waiting.verdict == "watch" and "40.0%" in waiting.text
