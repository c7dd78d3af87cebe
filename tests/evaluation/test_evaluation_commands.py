"""Commands that evaluate: nothing is overwritten or mixed up, and what is wrong is said before the work."""

import csv
import json
import os
import shutil
from pathlib import Path

import pytest
from ranks import two_ranks

from flexpredict.api.pretraining import Run
from flexpredict.cli import main
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.evaluation.davis import DavisSettings
from flexpredict.evaluation.probe import ProbeSettings
from flexpredict.reports.views.films import small_films
from flexpredict.runs.run_record import read_run

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


def test_results_of_a_run_go_where_its_page_finds_them_and_others_here(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "mine", symlinks=True)
    options = ["--train", TRAIN, "--test", TEST, "--labels", "1", "--neighbors", "0", "--accelerator", "cpu"]
    assert main(["probe", "mine", *options]) == 0
    (file,) = Path("mine", "results").iterdir()
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {file}"
    assert main(["evaluate", "davis", "mine", "--data", "scenes:1,size=32,frames=4", "--height", "32"]) == 0
    assert "Written: mine/davis/result.json" in capsys.readouterr().out
    shown = read_run(Path("mine")).results
    assert {name.partition(",")[0] for name in shown} == {"probe", "davis"} and len(small_films(Path("mine"))) == 1
    assert main(["probe", "mine/encoder.safetensors", *options]) == 0
    (other,) = Path("results").iterdir()
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {other}"


def test_what_is_no_run_by_its_name_or_may_only_be_read_has_its_results_here(
    finished: Path, encoder: ViTEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path("results")

    def place(encoder: object, **more: str | None) -> Path | None:
        return ProbeSettings(encoder, TRAIN, TEST, **more).place  # type: ignore[arg-type]

    assert place(str(finished)) == place(finished) == place(Run(finished, 18, True)) == finished / "results"
    assert place(encoder) == place("timm:vit_tiny_patch16_224") == place("mine") == here
    assert place(finished, out="there") == Path("there") and place(finished, out=None) is None
    assert DavisSettings(str(finished), data="d").place == finished / "davis"
    assert DavisSettings(encoder, data="d").place == here / "davis"
    assert DavisSettings(str(finished), data="d", score_only="masks").place == here / "davis"
    monkeypatch.setattr(os, "access", lambda path, mode: path != finished)
    assert place(finished) == here


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
