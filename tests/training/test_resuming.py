"""Going on with a run: from elsewhere, for longer, after Ctrl-C, and by itself when a cluster starts it again."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from interrupted import assert_same_weights, send
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.cli import main
from flexpredict.errors import UserError
from flexpredict.methods.ijepa import IJEPA

SHORT = {**RECIPE, "epochs": 0.5}  # three steps


def test_ctrl_c_saves_and_is_not_swallowed(
    finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    send(signal.SIGINT, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="step 7; everything is saved"):
        pretrain(pictures, tmp_path / "run", **RECIPE)
    said = capfd.readouterr()
    assert "Ctrl-C again stops at once" in said.err and "--resume" in said.out
    run = pretrain(out=tmp_path / "run", resume=True)
    assert run.finished
    assert_same_weights(finished, tmp_path / "run")


def test_a_second_ctrl_c_stops_at_once(pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: IJEPA, momentum: float) -> dict[str, float]:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the step went on")

    monkeypatch.setattr(IJEPA, "after_step", twice)
    with pytest.raises(KeyboardInterrupt):
        pretrain(pictures, tmp_path / "run", **RECIPE)
    assert not (tmp_path / "run").exists(), "it had not made a step"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 75), (signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_the_exit_code_tells_a_cluster_to_start_it_again(
    number: int, code: int, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(number, monkeypatch, at=1)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    given = ["pretrain", pictures, "--out", str(tmp_path / "run"), "--config", str(tmp_path / "recipe.yaml")]
    assert main(given) == code
    assert (tmp_path / "run" / "checkpoints" / "step-1").is_dir()


def test_an_unfinished_run_says_so(pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send(signal.SIGTERM, monkeypatch, at=2)
    run = pretrain(pictures, tmp_path / "run", **RECIPE)
    assert not run.finished and run.to_dict()["finished"] is False
    assert "unfinished" in str(list(run.table().columns[0].cells))


def test_images_may_move_and_be_named_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pictures(tmp_path / "here" / "pictures")
    monkeypatch.chdir(tmp_path / "here")
    pretrain("pictures", "../run", **SHORT)
    monkeypatch.chdir(tmp_path)
    assert pretrain(out="run", resume=True).finished, "from another folder"
    shutil.move(tmp_path / "here" / "pictures", tmp_path / "moved")
    with pytest.raises(UserError, match="There is no folder"):
        pretrain(out="run", resume=True)
    assert pretrain("moved", "run", resume=True).finished
    assert pretrain(out="run", resume=True).finished, "it remembers where they are now"
    (tmp_path / "moved" / "000.png").rename(tmp_path / "moved" / "other.png")
    with pytest.raises(UserError, match="not those that the run"):
        pretrain(out="run", resume=True)


def test_a_run_can_be_given_more_epochs(pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    pretrain(pictures, run, **SHORT)
    assert pretrain(out=run, resume=True, epochs=1).steps == 6
    assert "follow the schedules of 1 epochs" in " ".join(capsys.readouterr().out.split())
    assert yaml.safe_load((run / "config.yaml").read_text())["epochs"] == 1
    rates = [json.loads(line)["lr"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rates[-1] > 1e-6, "the last step is one of six, not of three"
    assert pretrain(out=run, resume=True).steps == 6
    with pytest.raises(UserError, match=r"epochs=0\.5 would end the run .* at step 3.*already"):
        pretrain(out=run, resume=True, epochs=0.5)


def test_a_run_without_a_checkpoint_is_not_called_resumed(
    pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(pictures, tmp_path / "run", **SHORT)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    capsys.readouterr()
    assert pretrain(out=tmp_path / "run", resume=True).finished
    said = " ".join(capsys.readouterr().out.split())
    assert "restarted: it had no checkpoint yet" in said and "resumed" not in said


@pytest.mark.parametrize(
    ("job", "count"), [("SLURM_JOB_ID", "SLURM_RESTART_COUNT"), ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")]
)
def test_a_job_that_is_started_again_goes_on_by_itself(
    job: str, count: str, finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: dict[str, Any] = {"data": pictures, "out": tmp_path / "run", **RECIPE}
    monkeypatch.setenv(job, "17")
    monkeypatch.setattr("torch.distributed.is_torchelastic_launched", lambda: False)
    with monkeypatch.context() as patch:
        send(signal.SIGUSR1, patch)
        assert pretrain(**run).steps == 7
    with pytest.raises(UserError, match="already holds a run"):
        pretrain(**run)
    monkeypatch.setenv(count, "1")
    with monkeypatch.context() as other:
        other.setenv(job, "18")
        with pytest.raises(UserError, match="already holds a run"):
            pretrain(**run)
    assert pretrain(**run).finished
    assert_same_weights(finished, tmp_path / "run")
