"""Probes of a run while it trains: the first before training, and the best encoder is kept."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures

from flexpredict import pretrain, pretraining
from flexpredict.errors import UserError
from flexpredict.model.encoder import Encoder
from flexpredict.reports.answers import answers
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_record import read_run
from flexpredict.training.loop import Training


@pytest.fixture
def labeled(tmp_path: Path) -> str:
    for name in ("cat", "dog"):
        write_pictures(tmp_path / "labeled" / name, 24)
    return str(tmp_path / "labeled")


def test_the_online_probe_needs_labels_and_reports_accuracy(pictures: str, labeled: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs labels"):
        pretrain(pictures, tmp_path / "refused", **RECIPE, probe_every=1)
    assert not (tmp_path / "refused").exists()
    pretrain(labeled, tmp_path / "run", **RECIPE, probe_every=1)
    probed = [record for record in read_records(tmp_path / "run" / "metrics.jsonl") if "knn_accuracy" in record]
    assert [record["step"] for record in probed] == [0, 6, 12, 18], "the first before training"
    assert all(0.0 <= record[key] <= 1.0 for record in probed for key in ("knn_accuracy", "linear_accuracy"))


def test_labeled_images_of_any_kind_switch_the_probe_on(pictures: str, labeled: str, tmp_path: Path) -> None:
    run = pretrain(pictures, tmp_path / "run", **RECIPE, probe_data=labeled)
    probed = [record["step"] for record in run.metrics() if "knn_accuracy" in record]
    assert len(probed) == 11 and probed[-1] == 18, "ten times in a run, and before it"
    with pytest.raises(UserError, match=r"probe_data=.* needs labels"):
        pretrain(pictures, tmp_path / "refused", **RECIPE, probe_data=pictures)


def test_the_encoder_that_probed_best_is_kept_whatever_comes_after(
    labeled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def probe(encoder: Encoder) -> dict[str, float]:
        seen.append({name: tensor.clone() for name, tensor in encoder.vit.state_dict().items()})
        return {"knn_accuracy": [0.1, 0.3, 0.6, 0.5][len(seen) - 1]}

    monkeypatch.setattr(pretraining, "online_probe", lambda *_: probe)
    pretrain(labeled, tmp_path / "run", **RECIPE, probe_every=1)
    best = load_file(tmp_path / "run" / "encoder_best.safetensors")
    assert all(torch.equal(best[name], seen[2][name]) for name in best)
    assert not all(torch.equal(best[name], seen[3][name]) for name in best)


def test_a_run_that_learns_nothing_is_told_from_its_untrained_encoder(
    labeled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [0.6, 0.45, 0.5, 0.55]

    def probe(encoder: Encoder) -> dict[str, float]:
        return {"knn_accuracy": 0.9, "linear_accuracy": found.pop(0)}

    monkeypatch.setattr(pretraining, "online_probe", lambda *_: probe)
    run = pretrain(labeled, tmp_path / "run", **RECIPE, probe_every=1)
    assert not (tmp_path / "run" / "encoder_best.safetensors").exists(), "none was better than untrained"
    assert "linear 60.0% → 55.0%" in capsys.readouterr().out
    (shown,) = (list(column.cells) for column in run.table().columns if column.header == "linear accuracy")
    assert shown == ["55.0%"]
    (learning,) = (
        one for one in answers(read_run(tmp_path / "run")) if one.section == "learning" and not one.question
    )
    assert learning.short == "Hardly"
    assert learning.text == "Its linear accuracy went from 60.0% before training to 55.0%."


def test_the_probe_before_training_is_taken_once_however_often_a_run_begins(
    labeled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = pretrain(labeled, tmp_path / "once", **RECIPE, probe_every=1, on_nan="rollback")
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Training, "_take_step", Mock(side_effect=MemoryError))
        pretrain(labeled, tmp_path / "run", **RECIPE, probe_every=1, on_nan="rollback")
    assert [record["step"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [0]
    run = pretrain(out=tmp_path / "run", resume=True)
    assert [record["step"] for record in run.metrics()] == [record["step"] for record in once.metrics()]
    assert run.metrics()[0] == once.metrics()[0] and run.metrics()[0]["epoch"] == 0
