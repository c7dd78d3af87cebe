"""What a person types, and what they are told when it is wrong: one paragraph, exit code 2, nothing lost."""

from pathlib import Path

import pytest
import yaml
from PIL import Image

from flexpredict.cli import main
from flexpredict.errors import UserError
from flexpredict.training.recipe_parser import make_recipe, recipe_file

SMALL = [
    "--model_options",
    '{"embed_dim": 24, "depth": 2, "num_heads": 2}',
    "--image-size",
    "32",
    "--patch-size",
    "4",
]
SMALL += ["--accelerator", "cpu", "--devices", "1", "--batch_size", "8"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a refused command."""
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert code == 2, printed
    assert "Traceback" not in printed.err and printed.err.startswith("flexpredict: ")
    assert printed.err.count("\n") == 1, "one paragraph"
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere"], ["There is no folder '", "nowhere'", "Give a folder of images"]),
        (["--data", "EMPTY"], ["EMPTY", "no image"]),
        (["--data", "UNREADABLE"], ["broken.png"]),
        ([], ["No data was named", "--data"]),
        (
            ["--data", "PICTURES", "--patch_size", "64", "--image_size", "32"],
            ["smaller than a patch", "--patch_size"],
        ),
        (
            ["--data", "PICTURES", "--patch_size", "5", "--image_size", "32"],
            ["does not divide", "--image_size 30 or 35"],
        ),
        (["--data", "PICTURES", "--patch_size", "32", "--image_size", "32"], ["1x1"]),
        (["--data", "PICTURES", "--model", "vit_tinny_patch16_224"], ["vit_tiny_patch16_224"]),
        (["--data", "PICTURES", "--model", "resnet18"], ["not a plain vision transformer"]),
        (["--data", "PICTURES", "--epoch", "3"], ["no option '--epoch'", "Did you mean '--epochs'?"]),
        (["PICTURES", "--positions.noise_sdt", "3"], ["no option", "Did you mean '--positions.noise_std'?"]),
        (["PICTURES", "--noise_std", "3"], ["no option", "Did you mean '--positions.noise_std'?"]),
        (["PICTURES", "--epochs", "many"], ["--epochs many does not work: it takes a number."]),
        (["PICTURES", "--epochs", "-1"], ["--epochs -1", "more than 0"]),
        (["PICTURES", "--epochs"], ["--epochs needs a value: a number."]),
        (["PICTURES", "--optimizer.lr", "-1"], ["--optimizer.lr -1", "out of range"]),
        (["PICTURES", "--optimizer.betas", "0.9"], ["--optimizer.betas 0.9", "two numbers"]),
        (["PICTURES", "--optimizer", "fast"], ["--optimizer fast", "mapping"]),
        (["PICTURES", "--compile", "--seed", "1.5"], ["--seed 1.5", "a whole number"]),
        (["PICTURES", "--method", "ijpea"], ["it takes ijepa, mae or data2vec", "Did you mean 'ijepa'?"]),
        (["PICTURES", "--loggers", "wandb", "mlfow"], ["--loggers mlfow", "Did you mean 'mlflow'?"]),
        (["--data", "PICTURES", "--image_size", "big"], ["not a size", "256x192"]),
        (["--data", "PICTURES", "--batch_size", "7", "--accumulate", "2"], ["split evenly", "--batch_size 8"]),
        (["--data", "PICTURES", "--augmentation", "stopp"], ["--augmentation stopp", "Did you mean 'stop'?"]),
        (["--data", "PICTURES", "--augmentation.flip", "x"], ["--augmentation.flip x", "a number"]),
        (
            ["--augmentation", "stop", "--augmentation.flip", "0"],
            ["--augmentation stop sets the whole", "one or the other"],
        ),
        (["--data", "PICTURES", "--keep_best"], ["--keep_best has no effect", "--probe_data"]),
        (["--data", "PICTURES", "--masking.kind", "published", *SMALL], ["published", "multiblock"]),
        (["--config", "missing.yaml"], ["missing.yaml"]),
        (["--config", "TYPO"], ["TYPO: There is no setting 'positions.noise_sdt'", "'positions.noise_std'"]),
        (["--config", "TYPO2"], ["TYPO2: There is no setting 'maskin'", "'masking'"]),
        (["--config", "BROKEN"], ["BROKEN is not valid YAML"]),
    ],
)
def test_bad_input_is_refused_in_one_paragraph(
    arguments: list[str],
    words: list[str],
    pictures: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "UNREADABLE").mkdir()
    (tmp_path / "UNREADABLE" / "broken.png").write_bytes(b"not a picture")
    (tmp_path / "TYPO").write_text("data: scenes\npositions: {noise_sdt: 0.3}\n")
    (tmp_path / "TYPO2").write_text("data: scenes\nmaskin: {targets: 3}\n")
    (tmp_path / "BROKEN").write_text("data: [scenes\nseed: 3")
    arguments = [pictures if argument == "PICTURES" else argument for argument in arguments]
    message = refused(capsys, "pretrain", "--out", "run", "--accelerator", "cpu", "--devices", "1", *arguments)
    for word in words:
        assert word in message
    assert not (tmp_path / "run").exists(), "nothing is written before everything is checked"


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'pretrain'?" in refused(capsys, "pretran")


def test_dashes_and_underscores_are_equal_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("evaluate_clevr", "evaluate-clevr", "evaluate clevr"):
        assert main([*name.split(), "--help"]) == 0
        assert "usage: flexpredict evaluate clevr ENCODER" in capsys.readouterr().out
    (tmp_path / "recipe.yaml").write_text("log-every: 0\noptimizer: {weight-decay: 0.5}\n")
    for option in ("--log_every", "--log-every"):
        assert main(["pretrain", "x", "--config", str(tmp_path / "recipe.yaml"), option, "-3"]) == 2
        assert "--log_every -3 is out of range" in capsys.readouterr().err
    assert make_recipe({}, tmp_path / "recipe.yaml").optimizer.weight_decay == 0.5


@pytest.mark.parametrize("name", ["laptop", "vit_b16", "vit_l16", "vit_h14", "vit_h16"])
def test_recipes_that_come_along_are_valid_and_can_be_overridden(name: str) -> None:
    recipe = make_recipe({"positions": {"noise_std": 0.5}}, name)
    written = yaml.safe_load(recipe_file(name).read_text())
    assert recipe.positions.noise_std == 0.5
    assert recipe.epochs == written["epochs"] and recipe.optimizer.lr == written.get("optimizer", {}).get("lr")


def test_a_run_is_made_resumed_and_reported_from_the_command_line(
    pictures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    given = ["--data", pictures, "--out", out, "--epochs", "1", *SMALL]
    assert main(["pretrain", *given]) == 0
    printed = capsys.readouterr().out
    assert "effective batch" in printed and "encoder.safetensors" in printed
    assert "already holds a run" in refused(capsys, "pretrain", *given)
    assert main(["pretrain", "--out", out, "--resume"]) == 0
    assert "was started with --model vit_tiny" in refused(
        capsys, "pretrain", "--out", out, "--resume", "--model", "vit_small_patch16_224"
    )
    assert main(["report", out]) == 0 and (tmp_path / "run" / "report.html").is_file()


def test_sizes_follow_the_pictures_when_nobody_says_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "[red]wide"  # no markup of the terminal
    folder.mkdir()
    for index in range(8):
        Image.new("RGB", (90, 70), (index * 30, 0, 0)).save(folder / f"{index}.jpg")
    options = ["--model_options", '{"embed_dim": 24, "depth": 2, "num_heads": 2}', "--accelerator", "cpu"]
    assert main(["pretrain", "--data", str(folder), "--out", str(tmp_path / "run"), "--epochs", "1", *options]) == 0
    assert "[red]wide" in "".join(capsys.readouterr().out.split())
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["image_size"] == "64x64" and config["patch_size"] == 8 and config["batch_size"] == 8


def test_recipes_that_come_along_are_found_by_name_and_others_by_path(tmp_path: Path) -> None:
    mine = tmp_path / "vit_b16"
    mine.write_text("epochs: 3")
    assert recipe_file("vit_b16").name == "vit_b16.yaml" and recipe_file(mine) == mine
    with pytest.raises(UserError, match=r"no recipe file vit_b61\. Did you mean 'vit_b16'.*: laptop, vit_b16,"):
        recipe_file("vit_b61")
