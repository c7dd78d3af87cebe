"""`flexpredict.pretrain`: what it takes, what it gives back, and what it says when something is wrong."""

import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from tiny import RECIPE

import flexpredict
from flexpredict import Optimizer, Positions, UserError, pretrain


def test_the_run_knows_its_folder_metrics_report_and_encoder(pictures: str, tmp_path: Path) -> None:
    run = pretrain(Path(pictures), tmp_path / "run", **RECIPE | {"image_size": (32, 32), "epochs": 1})
    assert run.finished and run.steps == 6 and run.path == tmp_path / "run"
    assert [record["step"] for record in run.metrics()] == [2, 4, 6]
    assert run.report.is_file() and run.report in run.files
    described = run.to_dict()
    assert described["metrics"]["loss"] == run.metrics()[-1]["loss"] and described["steps"] == 6
    assert run.table().row_count == 1
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    assert torch.equal(run.load().pooled(images), flexpredict.load(run.path).pooled(images))


def test_nested_settings_are_dictionaries_or_dataclasses(pictures: str, tmp_path: Path) -> None:
    configs = []
    for name, fields in (
        ("dictionaries", {"positions": {"noise_std": 0.5}, "optimizer": {"lr": 1e-4, "betas": [0.9, 0.95]}}),
        ("dataclasses", {"positions": Positions(noise_std=0.5), "optimizer": Optimizer(lr=1e-4, betas=(0.9, 0.95))}),
    ):
        pretrain(pictures, tmp_path / name, **RECIPE | {"epochs": 1 / 6} | fields)
        configs.append(yaml.safe_load((tmp_path / name / "config.yaml").read_text()))
    assert configs[0] == configs[1]
    assert configs[0]["optimizer"]["betas"] == [0.9, 0.95] and configs[0]["positions"]["noise_std"] == 0.5


def test_settings_override_a_recipe_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("optimizer: {lr: 3, weight_decay: -1}\nepochs: 7\n")
    with pytest.raises(UserError, match=r"optimizer.weight_decay=-1"):
        pretrain("x", tmp_path / "run", config=tmp_path / "recipe.yaml", optimizer={"lr": 1})
    with pytest.raises(UserError, match=r"optimizer.lr=-1"):
        pretrain("x", tmp_path / "run", config=tmp_path / "recipe.yaml", optimizer={"lr": -1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": 3}, "There is no setting 'epoch'. Did you mean 'epochs'?"),
        ({"positions": {"noise_sdt": 3}}, "no setting 'positions.noise_sdt'. Did you mean 'positions.noise_std'?"),
        ({"epochs": "many"}, "epochs=many does not work: it takes a number."),
        ({"image_size": (0, 64)}, "image_size=0x64 is not a size"),
        ({"positions": 3}, "positions=3 does not work: it takes a mapping"),
        ({"seed": None}, "seed=None does not work: it takes a whole number."),
        ({"epochs": 3, "minutes": 3}, "minutes=3 and epochs=3 both say how long the run is"),
    ],
)
def test_errors_name_settings(fields: dict[str, object], message: str, pictures: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        pretrain(pictures, tmp_path / "run", accelerator="cpu", **fields)
    assert message in str(refused.value) and " --" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", b"data: [", "config.yaml"),
        ("config.yaml", b"\xff\xfe\x00", "config.yaml"),
        ("config.yaml", b"- 1\n", "config.yaml"),
        ("config.yaml", b"data: x\nepochs: many\n", "epochs=many"),
        ("data.json", b"{", "data.json"),
        ("checkpoints/last/model.safetensors", b"junk", "damaged"),
        ("checkpoints/last/model.safetensors", None, "damaged"),
        ("checkpoints/last/optimizer.safetensors", b"junk", "damaged"),
        ("checkpoints/last/state.json", b"{", "damaged"),
        ("checkpoints/last/state.json", b"[]", "damaged"),
    ],
)
def test_a_damaged_run_is_not_resumed_and_told_shortly(
    name: str, content: bytes | None, message: str, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run, symlinks=True)
    shutil.rmtree(run / "checkpoints" / "step-15")  # which would be used instead
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    with pytest.raises(UserError) as refused:
        pretrain(out=run, resume=True)
    assert message in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize("out", ["/proc/x/run", "FILE/run"])
def test_a_folder_that_cannot_be_made_is_told(out: str, pictures: str, tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        pretrain(pictures, out.replace("FILE", str(tmp_path / "FILE")), **RECIPE)


def test_a_folder_with_other_things_is_not_called_a_run(pictures: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="not empty and not a run folder"):
            pretrain(pictures, tmp_path, overwrite=overwrite, **RECIPE)


def test_a_dry_run_shows_plan_time_memory_and_masks_and_starts_nothing(
    pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pretrain(pictures, tmp_path / "run", **RECIPE, dry_run=True)
    said = capsys.readouterr().out
    assert run.dry_run and not run.finished and not (tmp_path / "run").exists()
    assert "18 steps" in said and "this machine" in said and "peak" in said
    masks = [line for line in said.splitlines() if set(line) - set("█·0123456789 ") == set() and "█" in line]
    assert len(masks) == 8 and all(len(line) == 3 * 8 + 6 for line in masks)


def test_a_dry_run_with_minutes_plans_the_length_that_they_allow(
    pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def steps(minutes: float) -> int:
        pretrain(pictures, tmp_path / "run", **{**RECIPE, "epochs": None, "minutes": minutes}, dry_run=True)
        said = capsys.readouterr().out
        assert f"{minutes:g} minutes allow about this length" in said
        found = re.search(r"images: ([\d,]+) steps", said)
        assert found
        return int(found[1].replace(",", ""))

    assert steps(100.0) > 10 * steps(1.0), "far apart, as speed is measured"


@pytest.mark.parametrize("method", ["ijepa", "mae", "data2vec"])
def test_config_yaml_has_the_noise_level_and_can_be_used_again(method: str, pictures: str, tmp_path: Path) -> None:
    sizes = {} if method == "data2vec" else {"predictor": RECIPE["predictor"]}
    short = {**RECIPE, "predictor": {}, "method": method, "epochs": 1 / 6, "log_every": 1, **sizes}
    run = pretrain(pictures, tmp_path / "run", **short, positions={"noise_to_signal": 0.5})
    config = run.path / "config.yaml"
    positions = yaml.safe_load(config.read_text())["positions"]
    assert positions["noise_to_signal"] == 0.5
    assert positions["noise_std"] == pytest.approx(run.metrics()[0]["noise_std"], rel=1e-6)

    again = pretrain(out=tmp_path / "again", config=config)
    assert again.metrics()[0]["loss"] == run.metrics()[0]["loss"]
    same = pretrain(out=run.path, resume=True, positions={"noise_to_signal": 0.5})
    assert same.finished
    with pytest.raises(UserError, match=r"positions\.noise_to_signal=0\.5 \(now None\)"):
        pretrain(out=run.path, resume=True, positions={"noise_std": 3.0})
    louder = pretrain(out=tmp_path / "louder", config=config, positions={"noise_std": 3.0})
    assert louder.metrics()[0]["noise_std"] == 3.0
    with pytest.raises(UserError, match="given twice"):
        pretrain(out=tmp_path / "both", config=config, positions={"noise_std": 3.0, "noise_to_signal": 0.5})
    assert not (tmp_path / "both").exists()
