"""Nothing is misreported: shared images, other protocols, unfinished encoders, and work that was interrupted."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from interrupted import send
from rich.console import Console
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.cli import main
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation import shared_images
from flexpredict.evaluation.probe import probe
from flexpredict.evaluation.shared_images import overlap, seen_in_pretraining
from flexpredict.runs.run_record import read_run

pytestmark = pytest.mark.usefixtures("few_penalties")
QUIET = Console(quiet=True)
TRAIN, TEST = "scenes:60,size=32", "scenes:30,size=32,split=test"
OUT = ["--out", "results"]  # not into a run that other tests use, too
QUICK = ["--accelerator", "cpu", "--l2", "0.1", "--labels", "1", "--neighbors", "3", *OUT]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_probe_on_its_own_training_images_says_so_everywhere(
    finished: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(finished), "--train", TRAIN, "--test", TRAIN, *QUICK, "--table", "all.csv"]) == 0
    printed = capsys.readouterr().out
    assert "WARNING: All 60 test images are also training images." in printed
    assert "l2 0.1, TESTED ON TRAINING IMAGES" in printed
    (file,) = (here / "results").iterdir()
    written = json.loads(file.read_text())
    assert written["protocol"]["overlap"] == "All 60 test images are also training images."
    assert "do not show how well the encoder does on new images" in written["warnings"][0]
    assert "TESTED ON TRAINING IMAGES" in (here / "all.csv").read_text().splitlines()[0]


def test_a_result_without_shared_images_says_nothing_of_them(encoder: ViTEncoder) -> None:
    result = probe(encoder, TRAIN, TEST, labels=[1.0], l2=0.1, neighbors=0, out=None)
    assert result.protocol["overlap"] == "" and result.warnings == []
    assert "TESTED" not in result.full_title() + result.column()


def test_copies_under_other_names_are_found(tmp_path: Path) -> None:
    train = write_pictures(tmp_path / "train", 12)
    test = tmp_path / "test"
    test.mkdir()
    for number in range(4):
        (test / f"other-{number}.png").write_bytes((train / f"{number:03d}.png").read_bytes())
    write_pictures(tmp_path / "large", 3, size=50)
    for number in range(3):
        (test / f"new-{number}.png").write_bytes((tmp_path / "large" / f"{number:03d}.png").read_bytes())
    sources = open_source(str(train)), open_source(str(test))
    assert overlap(*sources, QUIET) == "4 of 7 test images are also training images."
    (test / "other-0.png").write_bytes(b"")
    assert overlap(*sources, QUIET) == "3 of 7 test images are also training images."


def test_of_large_sets_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_images, "_MOST", 20)
    half, whole = open_source("scenes:50,size=16"), open_source("scenes:100,size=16")
    found = overlap(whole, half, QUIET)
    assert found.startswith("At least ") and "of 20 test images that were compared" in found
    assert overlap(whole, open_source("scenes:100,size=16,split=test"), QUIET) == ""


def test_test_images_that_pretraining_has_seen_are_told(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, folder in ((12, "train"), (6, "test")):
        for name in ("cat", "dog"):
            images = write_pictures(tmp_path / "all" / folder / name, count)
            if folder == "test":  # others than those of the same numbers in train
                for file in images.iterdir():
                    file.write_bytes(file.read_bytes() + f"{name} {file.name}".encode())
    pretrain("all", tmp_path / "run", **{**RECIPE, "epochs": 0.2})
    words = ["--train", "all/train", "--test", "all/test", *QUICK, "--table", "all.csv"]
    assert main(["probe", "run", *words]) == 0
    printed = capsys.readouterr().out
    assert "WARNING: 12 of 12 test images were seen in pre-training, without labels." in printed
    assert "TEST IMAGES SEEN IN PRE-TRAINING" in (here / "all.csv").read_text().splitlines()[0]
    (file,) = (here / "results").iterdir()
    written = json.loads(file.read_text())
    assert written["protocol"]["overlap"] == "" and "On new images" in written["warnings"][0]

    pretrain("all/train", tmp_path / "clean", **{**RECIPE, "epochs": 0.2})
    (tmp_path / "run" / "config.yaml").write_text("data: nowhere\n")
    for run in ("clean", "run"):
        result = probe(run, "all/train", "all/test", labels=[1.0], l2=0.1, neighbors=0, out=None)
        assert result.protocol["seen_in_pretraining"] == "" and result.warnings == []


@pytest.mark.parametrize("failure", [UserError("moved"), PermissionError("of somebody else")])
def test_images_of_pretraining_that_cannot_be_opened_are_left_alone(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_images, "open_data", Mock(side_effect=failure))
    scenes = open_source("scenes:20,size=16")
    assert seen_in_pretraining(("/gone/images",), scenes, scenes, QUIET) == ""


@pytest.mark.parametrize("name", ["hf://imagenet:train", "stream:hf://imagenet", "pipe:cat a", "scenes,part=0-0.5"])
def test_images_of_pretraining_are_not_downloaded_or_drawn_for_the_comparison(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_images, "open_data", Mock(side_effect=AssertionError))
    scenes = open_source("scenes:20,size=16")
    assert seen_in_pretraining((name,), scenes, scenes, QUIET) == ""


def test_no_result_replaces_one_of_another_protocol(encoder: ViTEncoder, tmp_path: Path) -> None:
    table = tmp_path / "all.csv"

    def probed(train: str, **more: Any) -> list[Path]:
        settings = {"labels": [1.0], "l2": 0.1, "neighbors": 0, "out": tmp_path / "results", "table": table}
        return list(probe(encoder, train, TEST, **{**settings, **more}).files)

    (first, _), (second, _) = probed(TRAIN), probed("scenes:80,size=32")
    (third, _), (fourth, _) = probed(TRAIN, labels=[0.5], seed=3), probed(TRAIN, subsets=2)
    assert len({first, second, third, fourth}) == 4 == len(list((tmp_path / "results").iterdir()))
    written = first.stat().st_mtime_ns
    assert probed(TRAIN)[0] == first and first.stat().st_mtime_ns > written, "the same protocol again takes its place"
    header = table.read_text().splitlines()[0]
    assert f"trained on {TRAIN}:" in header and "trained on scenes:80,size=32:" in header and "seed 3" in header


def test_a_named_file_is_not_replaced_by_another_protocol_either(encoder: ViTEncoder, tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    settings: dict[str, Any] = {"labels": [1.0], "l2": 0.1, "neighbors": 0, "out": out}
    first = probe(encoder, TRAIN, TEST, **settings)
    again = probe(encoder, TRAIN, TEST, **settings)
    assert first.files == again.files == [out] and not again.warnings
    other = probe(encoder, "scenes:80,size=32", TEST, **settings)
    assert other.files[0] != out and "left as it is" in other.warnings[0]
    assert json.loads(out.read_text())["protocol"]["train"]["images"] == 60
    assert json.loads(other.files[0].read_text())["protocol"]["train"]["images"] == 80


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory, pictures: str) -> Path:
    """A run that a signal ended after step 7 of 18."""
    out = tmp_path_factory.mktemp("runs") / "half"
    with pytest.MonkeyPatch.context() as patch:
        send(signal.SIGUSR1, patch)
        pretrain(pictures, out, **RECIPE)
    return out


@pytest.mark.parametrize("which", ["target", "context"])
def test_an_unfinished_encoder_is_called_so_in_every_output(
    unfinished: Path, here: Path, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["probe", str(unfinished), "--train", TRAIN, "--test", TEST, *QUICK, "--table", "all.csv"]
    assert main([*words, "--which", which]) == 0
    what = f"{which} encoder of {unfinished} after step 7 of 18 (unfinished)"
    printed = capsys.readouterr().out
    assert f"Encoder: {what}" in printed and f"frozen encoder (%): {what}" in printed
    assert f"Warning: The {what}: these are not the numbers of the finished run." in printed
    (file,) = (here / "results").iterdir()
    written = json.loads(file.read_text())
    assert written["encoder"] == what and written["protocol"]["unfinished"] is True and written["warnings"]
    assert what in (here / "all.csv").read_text()


def test_the_page_keeps_results_of_an_unfinished_encoder_apart(unfinished: Path, pictures: str, here: Path) -> None:
    shutil.copytree(unfinished, "mine", symlinks=True)
    words = ["probe", "mine", "--train", TRAIN, "--test", TEST, *QUICK[: -len(OUT)]]
    assert main(words) == 0
    assert pretrain(out="mine", resume=True).finished, "results in its folder are in nobody's way"
    assert main(words) == 0
    title = f"probe, {TEST}, l2 0.1, trained on {TRAIN}"
    titles = [name.rpartition(": ")[0] for name in read_run(Path("mine")).results]
    assert list(dict.fromkeys(titles)) == [title, f"{title}, unfinished encoder"]


def test_an_encoder_file_knows_by_itself_whether_it_is_finished(unfinished: Path, finished: Path) -> None:
    half, whole = (open_encoder(run / "encoder.safetensors") for run in (unfinished, finished))
    assert half.unfinished and not whole.unfinished
    assert half.what.endswith("after step 7 of 18 (unfinished)") and whole.what.endswith("after step 18")


# Signals

DEPTH = ["--image_size", "32", "--batch_size", "8", *OUT]
COMMANDS: dict[str, list[str]] = {
    "probe": ["probe", "--train", TRAIN, "--test", TEST, *QUICK],
    "transfer": ["transfer", "--datasets", "a=scenes:60,size=32", *QUICK],
    "evaluate clevr": ["evaluate", "clevr", "scenes:60,size=32", "--accelerator", "cpu", *OUT],
    "evaluate location": ["evaluate", "location", TRAIN, "--accelerator", "cpu", *OUT],
    "evaluate segmentation": ["evaluate", "segmentation", "scenes:40,size=32", "scenes:8,size=32", *DEPTH],
    "evaluate depth": ["evaluate", "depth", "scenes:40,size=32", "scenes:8,size=32", *DEPTH],
    "evaluate davis": ["evaluate", "davis", "--data", "scenes:2,size=32,frames=4", "--height", "32", "--out", "d"],
    "embed": ["embed", TRAIN, "all.npy", "--accelerator", "cpu"],
    "similar": ["similar", TRAIN, "3", "--accelerator", "cpu"],
    "finetune": ["finetune", "--train", TRAIN, "--test", TEST, "--epochs", "3", "--accelerator", "cpu"],
}


def after_passes(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Act when an encoder has been called so many times."""
    original, calls = ViTEncoder._tokens, 0

    def counted(self: ViTEncoder, pixels: torch.Tensor, count: int) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return original(self, pixels, count)

    monkeypatch.setattr(ViTEncoder, "_tokens", counted)


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        *((command, signal.SIGTERM, 143) for command in COMMANDS),
        *((command, signal.SIGINT, 130) for command in ("probe", "embed", "finetune")),
    ],
)
def test_a_signal_ends_a_command_which_says_how_to_go_on(
    command: str,
    number: signal.Signals,
    code: int,
    finished: Path,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = len(command.split())
    words = [*COMMANDS[command][:place], str(finished), *COMMANDS[command][place:]]
    with monkeypatch.context() as patch:
        after_passes(2, lambda: os.kill(os.getpid(), number), patch)
        assert main(words) == code
    printed = capsys.readouterr()
    assert "flexpredict: interrupted. " in printed.err and "un the same command again" in printed.err
    assert "accuracy" not in printed.out and "Written" not in printed.out
    assert not [path for path in here.rglob("*") if path.name in ("result.json", "all.npy", "similar.png")]
    assert not (here / "results").exists() or not list((here / "results").glob("*.json"))
    resume = ["--resume"] if command == "finetune" else []
    assert main([*words, *resume]) == 0, "the way to go on that it named"


def test_transfer_keeps_the_data_sets_that_are_done(
    finished: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_passes(3, lambda: os.kill(os.getpid(), signal.SIGTERM), monkeypatch)  # two passes for the first data set
    data = ["a=scenes:60,size=32", "b=scenes:50,size=32"]
    assert main(["transfer", str(finished), "--datasets", *data, *QUICK, "--table", "all.csv"]) == 143
    (file,) = (here / "results").iterdir()
    assert json.loads(file.read_text())["data"] == "a" and file.name.startswith("transfer-a-")
    assert len((here / "all.csv").read_text().splitlines()) == 2
