"""Signs of collapse are seen, and numbers reach every logger."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from flexpredict.errors import UserError
from flexpredict.model.predictor import Predictor
from flexpredict.progress import duration
from flexpredict.runs.metrics import keep_until, open_loggers, read_records
from flexpredict.settings.positions import Positions
from flexpredict.training.health import Watch, effective_rank, feature_health, position_health
from flexpredict.training.progress import TrainingProgress


@pytest.mark.parametrize("rank", [1, 3, 16])
def test_effective_rank_counts_equal_directions(rank: int) -> None:
    orthogonal = torch.linalg.qr(torch.randn(200, 16))[0][:, :rank]
    features = orthogonal @ torch.linalg.qr(torch.randn(16, 16))[0][:rank]
    assert effective_rank(features) == pytest.approx(rank, rel=1e-3)


def test_collapsed_features_have_no_spread_and_rank_one() -> None:
    health = feature_health(torch.randn(24).expand(4, 3, 50, 24))
    assert health["target_spread"] == pytest.approx(0.0, abs=1e-6)
    assert health["target_rank"] == pytest.approx(1.0, abs=0.01)
    assert feature_health(torch.randn(4, 3, 50, 24))["target_rank"] > 20


def test_position_health_measures_the_predictors_own_matrix() -> None:
    predictor = Predictor(24, (8, 8), 16, 2, 2, Positions("stochastic", noise_to_signal=0.5))
    health = position_health(predictor, 3)
    assert health["A_norm"] == pytest.approx(float(predictor.projection.weight.detach().norm()))
    assert health["noise_to_signal"] == pytest.approx(0.5, rel=0.1)
    quiet = position_health(Predictor(24, (8, 8), 16, 2, 2, Positions("sincos")), 3)
    assert (quiet["noise_to_signal"], quiet["location_blur"], quiet["location_kept"]) == (0.0, 0.0, 1.0)


def test_a_fall_of_rank_or_of_the_projection_warns_once_in_words() -> None:
    watch = Watch()
    assert watch.look({"target_rank": 40.0, "A_norm": 2.0, "loss": 0.2}) == []
    assert watch.look({"target_rank": 20.0, "A_norm": 1.0}) == []
    (warning,) = watch.look({"target_rank": 5.0, "A_norm": 1.0})
    assert "effective rank fell from 40.0 to 5.0" in warning and "learning rate" in warning
    (other,) = watch.look({"target_rank": 4.0, "A_norm": 0.1})
    assert "‖A‖ is falling toward zero" in other
    assert watch.look({"target_rank": 3.0, "A_norm": 0.05}) == []


def test_features_that_come_to_tell_little_but_the_place_warn_once() -> None:
    watch = Watch()
    shares = (0.65, 0.62, 0.3, 0.55, 0.61, 0.7, 0.8)  # it begins high, untrained, and falls before it drifts
    warnings = [watch.look({"location_share": share}) for share in shares]
    assert [len(given) for given in warnings] == [0, 0, 0, 0, 1, 0, 0]
    (warning,) = warnings[4]
    assert "location share rose from 30% to 61%" in warning
    assert "positions.kind=stochastic" in warning and "positions.noise_to_signal" in warning


def test_features_that_never_change_their_high_share_do_not_drift() -> None:
    watch = Watch()
    assert [watch.look({"location_share": share}) for share in (0.7, 0.65, 0.72, 0.68)] == [[], [], [], []]


def test_the_progress_line_shows_the_location_share_of_methods_that_have_one() -> None:
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    progress = TrainingProgress(console, steps=2)
    record = {"loss": 0.25, "images_per_second": 300.0, "data_wait": 0.01}
    progress.numbers({**record, "location_share": 0.174})
    progress.step(2)
    progress.numbers(record)
    progress.step(2)
    with_share, without = console.export_text().splitlines()
    assert "loss 0.2500 · location share 17% · 300 images/s" in with_share
    assert "loss 0.2500 · 300 images/s" in without


def test_what_was_logged_after_the_checkpoint_is_dropped_and_a_torn_line_too(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(1, 6)) + '{"step": 6, "lo')
    keep_until(path, 3)
    assert [record["step"] for record in read_records(path)] == [1, 2, 3]
    keep_until(tmp_path / "missing.jsonl", 3)
    assert not (tmp_path / "missing.jsonl").exists()


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loggers = open_loggers([], tmp_path, tmp_path / "metrics.jsonl", {}, step=0)
    for logger in loggers:
        logger.log(10, {"loss": 0.5})
        logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(10, 0.5)]
    assert read_records(tmp_path / "metrics.jsonl") == [{"step": 10, "loss": 0.5}]


def test_optional_loggers_are_fed_or_their_absence_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'flexpredict\[wandb\]'"):
        open_loggers(["wandb"], tmp_path, tmp_path / "metrics.jsonl", {}, step=0)

    seen: list[Any] = []
    run = SimpleNamespace(
        log=lambda record, step: seen.append((step, record)), finish=lambda: seen.append("finished")
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: run))
    mlflow = SimpleNamespace(
        set_experiment=lambda name: None,
        start_run=lambda run_name: None,
        log_params=seen.append,
        log_metrics=lambda record, step: seen.append((step, record)),
        end_run=lambda: seen.append("ended"),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    loggers = open_loggers(["wandb", "mlflow"], tmp_path, tmp_path / "metrics.jsonl", {"seed": 1}, step=0)
    for logger in loggers:
        logger.log(4, {"loss": 0.25})
        logger.close()
    assert seen == [{"seed": "1"}, (4, {"loss": 0.25}), "finished", (4, {"loss": 0.25}), "ended"]


def test_runs_share_a_name_but_no_id_in_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **options: begun.append(options)))
    for place, step in (("first", 0), ("second", 0), ("first", 8)):
        folder = tmp_path / place / "mine"
        folder.mkdir(parents=True, exist_ok=True)
        open_loggers(["wandb"], folder, folder / "metrics.jsonl", {}, step)
    first, second, resumed = (options["id"] for options in begun)
    assert first == resumed != second
    assert [(options["name"], options["resume"]) for options in begun] == 3 * [("mine", "allow")]


def test_durations_are_said_as_people_say_them() -> None:
    assert [duration(seconds) for seconds in (4.4, 75, 3725)] == ["4 s", "1 min 15 s", "1 h 2 min"]
