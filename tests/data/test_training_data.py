"""Runs on every kind of source: resumed without the change of a bit, whole on two ranks, past what is broken."""

import io
import json
import os
import shutil
import signal
import sys
import tarfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import yaml
from hostile.corpus import write_corpus
from pictures import CLASSES, picture, png, write_shards
from ranks import OPTIONS, two_ranks, warm_processes
from safetensors.torch import load_file
from tiny import RECIPE

from flexpredict import pretrain, pretraining
from flexpredict.cli import main
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.settings.augmentation import PRESETS
from flexpredict.training.progress import TrainingProgress

COUNT = 30
SHORT = RECIPE | {"epochs": 2, "epoch_size": COUNT, "batch_size": 6, "image_size": 32, "checkpoint_every": 100}
SOURCES = ["folder", "shards", "tables", "saved", "scenes", "joined"]
STREAMS = ["stream", "streamed tables"]
WRITE_REPORT = pretraining.write_report


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | list[str]]:
    """The same thirty pictures, stored in each way."""
    root = tmp_path_factory.mktemp("data")
    for number in range(COUNT):
        place = root / "folder" / CLASSES[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        picture(number).save(place / f"{number:03}.png")
    write_shards(root / "shards", COUNT, 7)
    rows = {"image": [picture(number) for number in range(COUNT)], "label": [number % 3 for number in range(COUNT)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    whole = datasets.Dataset.from_dict(rows, features=features)
    whole.to_parquet(root / "t.parquet", batch_size=6)
    whole.save_to_disk(root / "saved")
    return {
        "folder": str(root / "folder"),
        "shards": str(root / "shards" / "s-{000..004}.tar"),
        "tables": str(root / "t.parquet"),
        "saved": str(root / "saved"),
        "scenes": f"scenes:{COUNT},size=32",
        "joined": [str(root / "folder" / "ant"), str(root / "shards"), "scenes:10,size=40"],
        "stream": f"stream:{root / 'shards'}",
        "streamed tables": f"stream:{root / 't.parquet'}",
    }


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a third of the time of so short a run."""
    monkeypatch.setattr(pretraining, "write_report", lambda runs, source: None)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "last" / "model.safetensors")


def skipped(run: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (run / "skipped.jsonl").read_text().splitlines()]
    names = [line["path"] for line in lines]
    assert len(names) == len(set(names)), "each is listed once"
    return {line["path"]: line["reason"] for line in lines}


def stop_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to stop arrives while this step is being done."""
    proceed = TrainingProgress.step

    def step_and_stop(self: TrainingProgress, done: int) -> None:
        proceed(self, done)
        if done == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TrainingProgress, "step", step_and_stop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """Runs that nobody stopped."""
    return defaultdict(lambda: tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("kind", [*SOURCES, *STREAMS])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_stopped_goes_on_without_the_change_of_a_bit(
    kind: str,
    workers: int,
    data: dict[str, Any],
    whole: dict[Any, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = SHORT | {"workers": workers, "augmentation": "stop"}
    not_stopped = whole[kind if kind in SOURCES else (kind, workers)]  # of a source, workers do not matter
    assert not_stopped.exists() or pretrain(data[kind], not_stopped, **how).finished
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        outcome = pretrain(data[kind], tmp_path / "parts", **how)
        assert outcome.steps == 4 and not outcome.finished
    assert pretrain(None, tmp_path / "parts", resume=True).finished
    expected, found = weights(not_stopped), weights(tmp_path / "parts")
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


@pytest.mark.parametrize("kind", SOURCES)
def test_two_ranks_see_every_image_once_an_epoch(kind: str, data: dict[str, Any]) -> None:
    source = open_source(data[kind])
    per_epoch = len(source)
    seen = []
    for step in range(per_epoch):
        for rank in range(2):
            options: dict[str, Any] = {"first_step": step, "last_step": step + 1, "rank": rank, "world_size": 2}
            (batch,) = training_batches(source, PRESETS["none"], [(8, 8)], seed=3, batch_size=2, **options)
            assert not batch.skipped
            seen += batch.indices.tolist()
    assert sorted(seen[:per_epoch]) == sorted(seen[per_epoch:]) == list(range(per_epoch))


def test_images_of_a_source_are_the_same_however_they_are_stored(data: dict[str, Any]) -> None:
    """But for the order of the folder, which is by class."""
    images = {}
    for kind in ("shards", "tables", "saved"):
        (batch,) = training_batches(
            open_source(data[kind]), PRESETS["stop"], [(16, 16)], seed=0, batch_size=8, first_step=2, last_step=3
        )
        images[kind] = batch.images
    assert torch.equal(images["shards"], images["tables"]) and torch.equal(images["shards"], images["saved"])


def test_hostile_files_do_not_stop_a_run_and_each_is_listed_once_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "write_report", WRITE_REPORT)
    hostile = write_corpus(tmp_path / "data" / "hostile")
    listed_as_folder = {entry.path for entry in hostile if (tmp_path / "data" / "hostile" / entry.path).is_dir()}
    for number in range(100):
        (tmp_path / "data" / "good").mkdir(exist_ok=True)
        picture(number).save(tmp_path / "data" / "good" / f"{number}.png")
    how = SHORT | {"epoch_size": None, "batch_size": 20, "max_skipped": 1.0, "workers": 1}
    assert pretrain(str(tmp_path / "data"), tmp_path / "run", **how).finished
    listed = skipped(tmp_path / "run")
    root = tmp_path / "data" / "hostile"
    expected = {
        f"{root}/{entry.path}" for entry in hostile if not entry.readable and entry.path not in listed_as_folder
    }
    assert set(listed) == expected
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert record["skipped"] == len(expected) > 200
    assert "could not be read" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("workers", [0, 1])
def test_too_many_broken_images_stop_the_run_and_it_can_be_told_to_go_on(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.png").write_bytes(b"broken" if number in (3, 17, 29) else png(number))
    how = SHORT | {"workers": workers, "epoch_size": None}
    with pytest.raises(
        UserError, match=r"3 of the first 40 .*more than 5%.*skipped\.jsonl.*resume=True and max_skipped=0\.2"
    ):
        pretrain(str(folder), tmp_path / "run", **how)
    assert len(skipped(tmp_path / "run")) == 3
    assert pretrain(None, tmp_path / "run", resume=True, max_skipped=0.2).finished
    assert len(skipped(tmp_path / "run")) == 3


def test_a_run_is_not_resumed_on_other_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        (tmp_path / "data").mkdir(exist_ok=True)
        picture(number).save(tmp_path / "data" / f"{number:02}.png")
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        pretrain(str(tmp_path / "data"), tmp_path / "run", **SHORT | {"epoch_size": 12})
    (tmp_path / "data" / "03.png").rename(tmp_path / "data" / "13.png")
    with pytest.raises(UserError, match=r"not those that the run .*12, now there are 12, with other names"):
        pretrain(None, tmp_path / "run", resume=True)
    (tmp_path / "data" / "13.png").rename(tmp_path / "data" / "03.png")
    assert pretrain(None, tmp_path / "run", resume=True).finished


def test_a_signal_to_all_processes_saves_and_leaves(tmp_path: Path) -> None:
    """As a cluster sends it: the processes that read images get it too."""
    for number in range(12):
        (tmp_path / "data").mkdir(exist_ok=True)
        picture(number).save(tmp_path / "data" / f"{number:02}.png")
    options = [f"--{name}={value}" for name, value in OPTIONS.items() if name != "epochs"]
    out = tmp_path / "run"
    words = ["pretrain", "--data", str(tmp_path / "data"), "--out", str(out), *options]
    words += ["--epochs=100000", "--workers=2", "--log_every=1"]
    process = warm_processes().Process(target=_leader, args=(tmp_path / "said", words))
    process.start()
    assert process.pid is not None
    metrics = out / "metrics.jsonl"
    while not (metrics.is_file() and metrics.stat().st_size) and process.is_alive():
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    process.join(60)
    said = (tmp_path / "said").read_text()
    assert process.exitcode == 75 and "everything is saved" in said, said
    assert (out / "checkpoints" / "last").exists()


def _leader(said: Path, words: list[str]) -> None:
    """A command in a group of processes of its own, as a shell starts it."""
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    torch.set_num_threads(1)
    sys.exit(main(words))


def test_what_was_broken_in_the_listing_is_listed_as_well(data: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(Path(str(data["shards"])).parent, tmp_path / "shards")
    with (tmp_path / "shards" / "s-000.tar").open("ab") as shard:
        shard.truncate(4000)
    pretrain(str(tmp_path / "shards"), tmp_path / "run", **SHORT | {"max_skipped": 0.2})
    assert {Path(name).name for name in skipped(tmp_path / "run")} == {"s-000.tar", "00000.png"}


def test_several_resolutions_and_shapes_are_trained_at_once(data: dict[str, Any], tmp_path: Path) -> None:
    for kind in ("stochastic", "learned"):
        how = SHORT | {"image_size": "32,24x40,16x32", "positions": {"kind": kind}, "epochs": 4}
        assert pretrain(data["folder"], tmp_path / kind, **how).finished
        encoder = read_encoder(tmp_path / kind).encoder
        assert encoder.grid == (8, 8)
        assert encoder(torch.zeros(1, 3, 24, 40)).shape == (1, 60, 24)
    config = yaml.safe_load((tmp_path / "learned" / "config.yaml").read_text())
    assert config["image_size"] == "32x32,24x40,16x32"
    with pytest.raises(UserError, match="does not divide image size 30x32"):
        pretrain(data["folder"], tmp_path / "odd", **SHORT | {"image_size": "32,30x32"})


def test_a_stream_of_unknown_length_needs_to_be_told_its_epoch(data: dict[str, Any], tmp_path: Path) -> None:
    how = {name: value for name, value in SHORT.items() if name != "epoch_size"}
    with pytest.raises(UserError, match=r"is unknown until.*epoch_size="):
        pretrain(data["stream"], tmp_path / "run", **how)
    assert pretrain(data["stream"], tmp_path / "run", **how | {"epoch_size": 12}).steps == 4
    with pytest.raises(UserError, match=r"probe_every=1 .*is a stream.*flexpredict pack"):
        pretrain(data["stream"], tmp_path / "probe", **how | {"epoch_size": 12, "probe_every": 1})


@pytest.mark.slow
def test_two_ranks_share_an_uneven_stream_and_list_what_is_broken_once(tmp_path: Path) -> None:
    """Pieces of very different lengths, and the same broken picture met again and again by either rank."""
    write_shards(tmp_path / "shards", 40, 23)
    (tmp_path / "folder").mkdir()
    for number in range(24):
        (tmp_path / "folder" / f"{number:02}.png").write_bytes(b"broken" if number % 12 == 3 else png(number))
    given = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    given += ["--devices", "2", "--max-skipped", "0.2", "--workers", "1", "--epochs", "3"]
    for data, extra in ((f"stream:{tmp_path}/shards", ["--epoch-size", "40"]), (str(tmp_path / "folder"), [])):
        out = tmp_path / f"run {len(extra)}"
        done = two_ranks("pretrain", "--data", data, "--out", str(out), *given, *extra)
        assert done.returncode == 0, done.stderr
        assert (out / "encoder.safetensors").is_file()
    assert {Path(name).name for name in skipped(tmp_path / "run 0")} == {"03.png", "15.png"}


@pytest.mark.slow
def test_a_rank_without_images_ends_both_in_words(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", 20, 20)
    with tarfile.open(tmp_path / "shards" / "broken.tar", "w") as archive:
        for number in range(20):
            info = tarfile.TarInfo(f"{number}.png")
            info.size = 6
            archive.addfile(info, io.BytesIO(b"broken"))
    given = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    given += ["--devices", "2", "--max-skipped", "1", "--epochs", "5", "--epoch-size", "40", "--log-every", "4"]
    done = two_ranks("pretrain", "--data", f"stream:{tmp_path}/shards", "--out", str(tmp_path / "run"), *given)
    assert done.returncode != 0
    assert done.stderr.count("none could be read; the last was") == 2, done.stderr
    assert "Connection closed" not in done.stderr and "UserError" not in done.stderr
