"""Runs of fine-tuning: what they leave behind, and that neither a kill nor a second rank changes it."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ranks import call_on_two_ranks
from safetensors.torch import load_file
from small_finetuning import SETTINGS, refused, scenes, tiny_encoder

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.opening import ImageSource
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning import _asked, finetune
from flexpredict.evaluation.finetuning import loop as loop_module
from flexpredict.evaluation.finetuning.classifier import Classifier, load_classifier
from flexpredict.evaluation.results import Result
from flexpredict.interruption import Terminated
from flexpredict.settings.augmentation import PRESETS

STEPS = 18


def run(out: Path, **changes: Any) -> Result | None:
    return finetune(tiny_encoder(), scenes(), scenes("test", 60), out=out, **SETTINGS | changes)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def metrics(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timing = ("images_per_second", "data_wait")
    return [{name: value for name, value in record.items() if name not in timing} for record in records]


def assert_same_run(first: Path, second: Path) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert metrics(first) == metrics(second)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert run(out) is not None
    return out


def test_a_tiny_set_is_learned(tmp_path: Path) -> None:
    source = SubsetSource(scenes(), torch.arange(40))
    settings: dict[str, Any] = {
        "epochs": 60, "batch_size": 20, "augmentation": "none", "lr": 1e-2, "layer_decay": 1.0, "drop_path": 0.0,
        "held_out": 0.0, "label_smoothing": 0.0, "accelerator": "cpu", "devices": 1, "precision": "32-true",
    }  # fmt: skip
    result = finetune(tiny_encoder(), source, source, out=tmp_path / "run", **settings)
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert losses[-1] < 0.1 * losses[0]
    assert result is not None and result.numbers["accuracy"] == 100


def test_a_run_leaves_everything_behind(finished: Path) -> None:
    config = yaml.safe_load((finished / "config.yaml").read_text())
    assert config["train_images"] == 48 and config["lr"] == 1e-3 * 8 / 256 and config["drop_path"] == 0.1
    assert config["fingerprint"] == tiny_encoder().fingerprint()
    assert [record["step"] for record in metrics(finished)] == list(range(2, STEPS + 1, 2))
    assert (finished / "checkpoints" / "last").resolve().name == f"step-{STEPS}"
    result = json.loads((finished / "result.json").read_text())
    assert result["task"] == "fine-tuning on 24 % of the labels" and result["protocol"]["fraction"] == 0.24
    fresh = Classifier(tiny_encoder(), scenes().classes or (), None, (32, 32)).state_dict()
    still = [name for name, tensor in weights(finished).items() if torch.equal(tensor, fresh[name])]
    assert still == ["encoder.encoder.vit.pos_embed"]


def test_the_result_is_what_the_saved_model_gives(finished: Path) -> None:
    model = load_classifier(finished / "model.safetensors", tiny_encoder())
    test = scenes("test", 60)
    images, _ = test.read(torch.arange(60), draw_crops(PRESETS["none"], torch.arange(60)), (32, 32))
    assert test.labels is not None and test.classes == model.classes
    with torch.no_grad():
        order = model(images).argsort(dim=1, descending=True)
    right = order[:, 0] == test.labels
    result = json.loads((finished / "result.json").read_text())
    numbers, of_classes = result["numbers"], result["details"]["accuracy of classes"]
    assert numbers["accuracy"] == pytest.approx(100 * right.double().mean().item())
    assert numbers["top-5"] == pytest.approx(100 * (order[:, :5] == test.labels[:, None]).any(1).double().mean())
    for number, name in enumerate(test.classes or ()):
        assert of_classes[name] == pytest.approx(100 * right[test.labels == number].double().mean().item())


def test_a_killed_run_goes_on_bit_for_bit(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = loop_module.RunLog.add
    seen: list[int] = []

    def dies(journal: Any, *arguments: Any) -> None:
        seen.append(0)
        if len(seen) == 8:
            raise MemoryError
        step(journal, *arguments)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loop_module.RunLog, "add", dies)
        run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == "step-5"
    assert run(tmp_path / "run", batch_size=None, checkpoint_every=4, resume=True) is not None
    assert_same_run(tmp_path / "run", finished)


def test_a_signal_ends_a_run_after_its_step_and_resuming_ends_it_the_same(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop_module.TrainingProgress.step

    def signals(progress: Any, done: int) -> None:
        step(progress, done)
        if done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop_module.TrainingProgress, "step", signals)
        with pytest.raises(Terminated):
            run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == "step-4"
    assert not (tmp_path / "run" / "result.json").exists()
    assert run(tmp_path / "run", resume=True) is not None
    assert_same_run(tmp_path / "run", finished)


def test_a_run_is_not_resumed_with_other_settings_nor_overwritten_by_accident(finished: Path) -> None:
    message = refused(finished, lr=0.5, mixup=0.2, resume=True)
    assert "lr=3.125e-05 (now 0.5)" in message and "mixup=0.8 (now 0.2)" in message
    assert "test_images=60 (now 50)" in refused(finished, test=scenes("test", 50), resume=True)
    assert "resume=True" in refused(finished)


def test_a_run_that_was_begun_by_names_is_resumed_from_its_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("timm:vit_tiny_patch16_224,pretrained=no", "scenes:40,size=32", "scenes:20,size=32,split=test")
    monkeypatch.chdir(tmp_path)
    own = {"image_size": 32, "epochs": 1, "augmentation": {"flip": 0.1}, "fraction": 1.0}
    begun = finetune(*names, out="run", **SETTINGS | own)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = finetune(out=tmp_path / "run", resume=True)
    assert begun is not None and resumed is not None and resumed.numbers == begun.numbers
    assert resumed.protocol["augmentation"] == begun.protocol["augmentation"]
    assert begun.protocol["augmentation"]["crop_scale"] == [0.08, 1.0], "finetune's own, as is all but flip"
    with pytest.raises(UserError, match=r"epochs=1.0 \(now 2.0\)"):
        finetune(out=tmp_path / "run", resume=True, epochs=2)


def test_a_resumed_run_reads_images_as_suits_this_machine(tmp_path: Path) -> None:
    recorded = {"lr": 0.5, "workers": 8, "names": {"encoder": "a", "train": "b", "test": "c"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(recorded))
    resumed = _asked({"out": tmp_path, "resume": True})
    assert resumed.lr == 0.5 and resumed.workers is None


def test_a_list_of_images_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = "".join(f"scenes:40,size=32, image {index}\n" for index in range(30))
    Path("list.txt").write_text(listed)
    names = ("timm:vit_tiny_patch16_224,pretrained=no", "scenes:40,size=32", "scenes:20,size=32,split=test")
    own = {"image_size": 32, "epochs": 1, "fraction": 1.0, "image_list": "list.txt"}
    begun = finetune(*names, out="run", **SETTINGS | own)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = finetune(out=tmp_path / "run", resume=True)
    assert begun is not None and resumed is not None and resumed.numbers == begun.numbers
    Path("moved.txt").write_text(listed)
    Path("other.txt").write_text(listed.replace("image 29", "image 39"))
    assert finetune(out=tmp_path / "run", resume=True, image_list="moved.txt").numbers == begun.numbers
    with pytest.raises(UserError, match="list_of_train_images="):
        finetune(out=tmp_path / "run", resume=True, image_list="other.txt")


def test_what_a_run_does_not_know_of_itself_is_asked_for(finished: Path, tmp_path: Path) -> None:
    said = r"whole does not say which encoder or images it was started with.*`encoder`, `train`, `test`"
    with pytest.raises(UserError, match=said):
        finetune(out=finished, resume=True)
    with pytest.raises(UserError, match="There is no run to resume"):
        finetune(out=tmp_path / "none", resume=True)
    with pytest.raises(UserError, match="`train` is missing: labeled images to train on"):
        finetune("encoder", out=tmp_path / "none")


def test_other_test_images_are_refused_and_runs_of_before_knew_their_name_only(
    finished: Path, tmp_path: Path
) -> None:
    other = SubsetSource(scenes("test", 200), torch.arange(100, 160))
    assert "list_of_test_images=" in refused(finished, test=other, resume=True)
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    config = yaml.safe_load((finished / "config.yaml").read_text())
    del config["names"], config["list_of_test_images"]
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    assert "test=" in refused(tmp_path / "run", test=other, resume=True)
    assert run(tmp_path / "run", resume=True) is not None


def test_bf16_trains_nearly_the_same(finished: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "run", precision="bf16-mixed") is not None
    ours, theirs = metrics(tmp_path / "run")[-1]["loss"], metrics(finished)[-1]["loss"]
    assert ours != theirs and ours == pytest.approx(theirs, abs=0.02)
    assert {tensor.dtype for tensor in weights(tmp_path / "run").values()} == {torch.float32}


def print_accuracy(out: Path) -> None:
    result = run(out, devices=2)
    assert result is not None
    print("accuracy", result.numbers["accuracy"])


@pytest.mark.slow
def test_two_ranks_reach_the_weights_of_one(finished: Path, tmp_path: Path) -> None:
    done = call_on_two_ranks(print_accuracy, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    accuracy = json.loads((finished / "result.json").read_text())["numbers"]["accuracy"]
    said = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    assert said == [f"accuracy {accuracy}"] * 2
    one, two = weights(finished), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], atol=1e-6, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_test_images_are_looked_at_once_when_training_is_over(tmp_path: Path) -> None:
    test = scenes("test", 60)
    read: list[int] = []

    def watched(indices: torch.Tensor, *how: Any) -> Any:
        assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == f"step-{STEPS}"
        read.extend(indices.tolist())
        return original(indices, *how)

    original, test.read = test.read, watched  # type: ignore[method-assign]
    finetune(tiny_encoder(), scenes(), test, out=tmp_path / "run", **SETTINGS)
    assert read == list(range(60))


def test_training_images_that_are_held_out_are_classified_every_epoch(tmp_path: Path) -> None:
    assert run(tmp_path / "run", held_out=0.3, fraction=0.4) is not None
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["train_images"] == 56
    measured = [record for record in metrics(tmp_path / "run") if "held_out_accuracy" in record]
    assert [record["epoch"] for record in measured] == [1, 2, 3]


def with_a_broken_image(source: ImageSource, broken: int) -> ImageSource:
    original = source.read

    def read(indices: torch.Tensor, *how: Any) -> Any:
        failed = (indices == broken).nonzero()[:, 0].tolist()
        return original(indices, *how)[0], {row: UnreadableImage(f"image {broken}", "cut short") for row in failed}

    source.read = read  # type: ignore[method-assign]
    return source


def test_images_that_cannot_be_read_are_passed_over_and_named(tmp_path: Path) -> None:
    train, test = with_a_broken_image(scenes(count=24), 5), with_a_broken_image(scenes("test", 20), 7)
    settings = SETTINGS | {"fraction": 1.0, "epochs": 1}
    result = finetune(tiny_encoder(), train, test, out=tmp_path / "run", **settings)
    assert result is not None and result.details["unreadable"] == ["image 7: cut short"]
    right = result.numbers["accuracy"] * 19 / 100
    assert right == pytest.approx(round(right)), "a share of the 19 that could be read"
    skipped = [json.loads(line) for line in (tmp_path / "run" / "skipped.jsonl").read_text().splitlines()]
    assert [(record["path"], record["reason"]) for record in skipped] == [("image 5", "cut short")]
    assert metrics(tmp_path / "run")[-1]["skipped"] == 1


def test_classes_in_another_order_are_found_by_name(finished: Path, tmp_path: Path) -> None:
    test = scenes("test", 60)
    assert test.classes is not None and test.labels is not None
    turned = tuple(reversed(test.classes))
    test.labels, test.classes = len(turned) - 1 - test.labels, turned
    finetune(tiny_encoder(), scenes(), test, out=tmp_path / "run", **SETTINGS)
    ours, theirs = (json.loads((out / "result.json").read_text()) for out in (tmp_path / "run", finished))
    assert ours["numbers"] == theirs["numbers"] and ours["details"] == theirs["details"]
