"""Commands that evaluate: nothing is overwritten or mixed up, and what is wrong is said before the work."""

import csv
import json
from pathlib import Path

import pytest
from ranks import two_ranks

from flexpredict.cli import main

pytestmark = pytest.mark.usefixtures("few_penalties")

TRAIN, TEST = "scenes:120,size=32", "scenes:60,size=32,split=test"


def columns(table: Path) -> list[str]:
    with table.open(newline="") as file:
        return next(csv.reader(file))


def test_davis_at_other_settings_is_another_column(finished: Path, tmp_path: Path) -> None:
    for height in ("32", "64"):
        options = ["--data", "scenes:1,size=32,frames=4", "--height", height, "--overlays", "none"]
        table = ["--out", str(tmp_path / height), "--table", str(tmp_path / "t.csv")]
        assert main(["evaluate", "davis", str(finished), *options, *table]) == 0
    named = [name for name in columns(tmp_path / "t.csv") if name.endswith("J&F")]
    assert [any(f"height {height}" in name for name in named) for height in (32, 64)] == [True, True]


def test_fine_tuning_for_longer_is_another_column(finished: Path, tmp_path: Path) -> None:
    for epochs in ("1", "2"):
        options = ["--train", TRAIN, "--test", TEST, "--epochs", epochs, "--accelerator", "cpu", "--devices", "1"]
        table = ["--out", str(tmp_path / epochs), "--table", str(tmp_path / "t.csv")]
        assert main(["finetune", str(finished), *options, *table]) == 0
    assert len([name for name in columns(tmp_path / "t.csv") if name.endswith("accuracy")]) == 2


def test_the_context_encoder_does_not_overwrite_the_target_encoder(finished: Path, tmp_path: Path) -> None:
    for which in ("target", "context"):
        data = ["--train", TRAIN, "--test", TEST, "--labels", "1", "--neighbors", "0"]
        assert main(["probe", str(finished), *data, "--which", which, "--out", str(tmp_path / "results")]) == 0
    written = [json.loads(path.read_text())["encoder"] for path in (tmp_path / "results").iterdir()]
    assert sorted(words.split()[0] for words in written) == ["context", "target"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["finetune", "RUN", "--train", TRAIN, "--test", TEST, "--table", "notes.txt"], "not a table of results"),
        (["finetune", "RUN", "--train", TRAIN, "--test", TEST, "--devices", "two"], "--devices two"),
        (["probe", "RUN", "--train", TRAIN, "--test", TEST, "--accelerator", "foo"], "--accelerator foo"),
        (["probe", "RUN", "--train", TRAIN, "--test", TEST, "--workers", "-1"], "--workers -1"),
        (["probe", "RUN", "--train", TRAIN, "--test", TEST, "--layers", "9"], "which has 2"),
        (["transfer", "RUN", "--datasets", TRAIN, "B=scenes:20,size=32", "--labels", "0.1"], "fewer than its"),
        (["evaluate", "dabis", "RUN"], "Did you mean 'evaluate davis'?"),
        (["evaluate", "davis", "--data", "scenes"], "as --score_only"),
    ],
)
def test_what_is_wrong_is_said_before_the_work(
    arguments: list[str],
    said: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    assert main([str(finished) if word == "RUN" else word for word in arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "cache" / "features").exists() or not any(
        (tmp_path / "cache" / "features").rglob("*.safe*")
    )
    assert not (tmp_path / "runs").exists() and not (tmp_path / "results").exists()


@pytest.mark.slow
def test_torchrun_decides_how_many_share_the_work(finished: Path, tmp_path: Path) -> None:
    data = ["--train", TRAIN, "--test", TEST, "--labels", "1", "--neighbors", "0", "--accelerator", "cpu"]
    done = two_ranks("probe", str(finished), *data, "--out", str(tmp_path / "results"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written:") == 1
