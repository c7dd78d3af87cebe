"""`plan`: what a run costs, from Python and from the shell."""

import json
from pathlib import Path
from typing import Any

import pytest

import flexpredict
from flexpredict.cli import main
from flexpredict.costs.speed import Speed
from flexpredict.errors import UserError

SIZES: dict[str, Any] = {
    "model": "vit_tiny_patch16_224",
    "image_size": 32,
    "patch_size": 4,
    "epochs": 10,
    "batch_size": 64,
}


def test_a_plan_of_a_number_of_images() -> None:
    result = flexpredict.plan(50_000, **SIZES, on=["h100"], memory=8, utilization=0.5)
    known = result.to_dict()
    assert json.loads(json.dumps(known)) == known
    assert known["steps"] == 7813 and known["images_at_a_time"] == 64
    assert known["parts"]["context encoder"]["parameters"] == pytest.approx(5.36e6, rel=0.01)
    assert known["parts"]["target encoder"]["forward"] == known["parts"]["target encoder"]["operations"]
    seconds = 7813 * 64 * known["operations_per_image"] / (0.5 * 989e12)
    assert known["hardware"]["h100"]["seconds"] == pytest.approx(seconds)
    assert known["hardware"]["this machine"]["seconds"] > seconds
    assert known["largest_batch"] > 64 and known["hardware"]["h100"]["largest_batch"] > known["largest_batch"]


def test_devices_share_the_work_and_the_batch() -> None:
    how: dict[str, Any] = {**SIZES, "measure": False, "precision": "32-true"}
    alone = flexpredict.plan(50_000, **how).to_dict()
    eight = flexpredict.plan(50_000, **how, devices=4, num_nodes=2).to_dict()
    assert eight["devices"] == 8 and eight["images_at_a_time"] == 8
    assert eight["hardware"]["h100"]["seconds"] == pytest.approx(alone["hardware"]["h100"]["seconds"] / 8)
    assert eight["bytes"]["activations"] == alone["bytes"]["activations"] // 8
    assert eight["bytes"]["gradients"] == 2 * alone["bytes"]["gradients"], "DDP has a copy to add them up in"


def test_accelerators_of_this_machine_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is not here, at a speed that was not measured."""
    monkeypatch.setattr("flexpredict.training.precision.is_cuda", lambda accelerator: True)
    monkeypatch.setattr("flexpredict.costs.speed.measure_speed", lambda recipe, device: Speed(1e-12, 0.0))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    how: dict[str, Any] = {**SIZES, "precision": "32-true", "accelerator": "cuda"}
    alone, two, all_of_them, machines = (
        flexpredict.plan(50_000, **how, **more).to_dict()["hardware"]["this machine"]
        for more in ({"devices": 1}, {"devices": 2}, {}, {"num_nodes": 2})
    )
    assert two["seconds"] == pytest.approx(alone["seconds"] / 2)
    assert all_of_them["devices"] == 4 and all_of_them["seconds"] == pytest.approx(alone["seconds"] / 4)
    assert machines == all_of_them, "of other machines nothing is known"


def test_bf16_is_for_linear_layers_only_on_a_cpu_and_for_attention_too_on_an_accelerator() -> None:
    how: dict[str, Any] = {**SIZES, "measure": False, "accelerator": "cpu"}
    known = flexpredict.plan(50_000, **how, precision="bf16-mixed").to_dict()
    whole = flexpredict.plan(50_000, **how, precision="32-true").to_dict()
    here, there, most = (one["bytes"]["activations"] for one in (known, known["accelerators"], whole))
    assert 1.2 * there < here < 0.95 * most
    assert whole["accelerators"]["bytes"] == whole["bytes"]


def test_what_the_recipe_leaves_open_is_not_the_same_precision_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flexpredict.training.precision.bfloat16_is_faster", lambda: False)
    known = flexpredict.plan(50_000, **SIZES, measure=False, accelerator="cpu").to_dict()
    assert known["precision"] == "32-true" and known["accelerators"]["precision"] == "bf16-mixed"
    assert known["hardware"]["h100"]["precision"] == "bf16-mixed"


def test_devices_that_share_the_weights_say_what_each_holds(capsys: pytest.CaptureFixture[str]) -> None:
    how: dict[str, Any] = {**SIZES, "scale": "published", "measure": False, "devices": 8}
    copies, shares = (flexpredict.plan(50_000, **how, strategy=name).to_dict() for name in ("ddp", "fsdp"))
    assert shares["shards"] == 8 and copies["shards"] == 1
    for part in ("weights", "optimizer", "gradients"):
        assert shares["bytes"][part] < 0.14 * copies["bytes"][part], part
    assert shares["bytes"]["gathered"] > 0 == copies["bytes"]["gathered"]
    words = [f"--{name}={str(value).lower()}" for name, value in how.items()]
    assert main(["plan", "50000", *words, "--strategy=fsdp"]) == 0
    said = capsys.readouterr().out
    assert "weights, 1/8 each" in said and "gradients, 1/8 each" in said and "the target" in said
    assert main(["plan", "50000", *words, "--strategy=fsdp", "--accumulate=2"]) == 0
    said = capsys.readouterr().out
    assert "weights, 1/8 each" in said and "gradients, 1/8 each" not in said and "gradients are whole" in said
    assert main(["plan", "50000", *words]) == 0
    said = capsys.readouterr().out
    assert "1/8" not in said and "gathered" not in said


def test_all_gpus_of_this_machine_are_meant_by_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flexpredict.plan(50_000, **SIZES, measure=False).to_dict()["devices"] == 1
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    assert flexpredict.plan(50_000, **SIZES, measure=False, num_nodes=2).to_dict()["devices"] == 8


def test_small_sizes_are_not_zero_in_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--model_options.embed_dim=24", "--model_options.depth=1", "--predictor.dim=8", "--predictor.heads=2"]
    assert main(["plan", "50000", "--config=laptop", *tiny, "--measure=false", "--memory=8"]) == 0
    said = capsys.readouterr().out
    assert "0.00 " not in said and "device(s)" not in said and " MB" in said and "images in 8 GB" in said


def test_the_help_offers_no_length_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    assert "--epochs" in (said := capsys.readouterr().out) and "--minutes" not in said


def test_a_published_recipe_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "1281167", "--config", "vit_b16", "--measure", "false"]) == 0
    said = capsys.readouterr().out
    assert "85.80" in said and "375,342 steps" in said and "a100-80gb" in said and "this machine" not in said


def test_images_can_be_named_as_well(pictures: str) -> None:
    known = flexpredict.plan(pictures, **{**SIZES, "batch_size": 8}, measure=False).to_dict()
    assert known["images"] == 48 and known["steps"] == 60


def test_epochs_may_replace_the_minutes_of_a_recipe_file(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text("minutes: 20\n")
    how: dict[str, Any] = {**SIZES, "config": tmp_path / "short.yaml", "measure": False}
    assert flexpredict.plan(50_000, **{**how, "epochs": 2}).to_dict()["epochs"] == 2
    del how["epochs"]
    with pytest.raises(UserError, match="Give epochs="):
        flexpredict.plan(50_000, **how)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "How many images"),
        ({"data": 0}, "data=0"),
        ({"data": 100, "on": ["a1000"]}, "a1000 is not known"),
        ({"data": 100, "utilization": 1.5}, "utilization=1.5 is out of range"),
        ({"data": 100, "minutes": 3}, "minutes=3"),
        ({"data": 100, "devices": "two"}, "devices=two"),
    ],
)
def test_what_cannot_be_reckoned_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        flexpredict.plan(**settings)
