"""The model card of an export: its code runs, and it says what is known and no more."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image, ImageOps
from small_encoders import BEIT, KINDS, RELATIVE, small
from tiny import write_pictures

from flexpredict.encoders.opening import open_encoder
from flexpredict.evaluation.results import Result, write_result
from flexpredict.exports import export

NAMES = {"timm": "x", "hf": "x", "official": "x.pth.tar", "onnx": "x.onnx", "torch-export": "x.pt2"}


def card_of(encoder: Any, form: str, folder: Path, **options: Any) -> str:
    return export(encoder, form, folder / NAMES[form], **options).card.read_text(encoding="utf-8")


def block(card: str, language: str) -> str:
    return card.split(f"```{language}\n")[1].split("\n```")[0]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *((form, "plain") for form in NAMES),
        *((form, "registers") for form in ("timm", "hf")),
        *(("timm", f"a table in each block{rest}") for rest in ("", ", patches averaged")),
        ("timm", "no final norm"),
        *((form, "absolute positions besides") for form in ("hf", "torch-export")),
    ],
)
def test_code_in_the_card_gives_the_features_of_the_encoder(
    form: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = small(**KINDS[kind]) if kind in KINDS else small(**BEIT | RELATIVE[kind])
    card = card_of(encoder, form, tmp_path)
    assert ("| positions | relative, learned" in card) == (kind in RELATIVE)
    assert ("and learned ones of the patches |" in card) == (kind == "absolute positions besides")
    monkeypatch.chdir(tmp_path)
    (photo,) = write_pictures(tmp_path, 1, 40).glob("*.png")
    Image.open(photo).save("photo.jpg", quality=95)
    found: dict[str, Any] = {}
    exec(block(card, "python"), found)
    image = ImageOps.fit(Image.open("photo.jpg"), (32, 32), Image.Resampling.BICUBIC)
    images = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    with torch.no_grad():
        (layer,) = encoder.tokens(images)
        pooled = encoder.pooled(images)
    # The processor of transformers resizes by torch, whose rounding of a pixel is not PIL's (measured: 0.003);
    # bilinear in place of bicubic would make 0.04, colors or sides swapped more than 3.
    close = {"atol": 0.01 if form == "hf" else 1e-5, "rtol": 0}
    torch.testing.assert_close(torch.as_tensor(found["patch_features"]), layer.patches, **close)
    torch.testing.assert_close(torch.as_tensor(found["pooled"]), pooled, **close)


def test_front_matter_names_the_library_and_the_license_only_if_there_is_one(tmp_path: Path, finished: Path) -> None:
    encoder = open_encoder(finished)
    said = yaml.safe_load(card_of(encoder, "timm", tmp_path, license="Apache-2.0").split("---\n")[1])
    assert said["library_name"] == "timm" and said["license"] == "apache-2.0"
    assert said["pipeline_tag"] == "image-feature-extraction"
    assert {"ijepa", "stochastic-positions"} <= set(said["tags"])
    card = card_of(small(), "official", tmp_path)
    said = yaml.safe_load(card.split("---\n")[1])
    assert "license" not in said and "Not stated." in card
    assert "ijepa" not in said["tags"]


def test_the_card_of_a_run_tells_its_data_and_all_settings(tmp_path: Path, finished: Path, pictures: str) -> None:
    encoder = open_encoder(finished)
    card = card_of(encoder, "hf", tmp_path, image_size=(24, 16))
    assert yaml.safe_load(block(card, "yaml")) == yaml.safe_load((finished / "config.yaml").read_text())
    assert "| images | 48 |" in card and pictures in card
    assert "8x8 of them" not in card and "6x4 of them" in card
    assert "Bar, Amir" in card
    assert f"Fingerprint of what it was made from: `{encoder.fingerprint()}`" in card


def test_the_card_of_an_encoder_alone_says_that_its_recipe_is_not_known(tmp_path: Path) -> None:
    card = card_of(small(), "timm", tmp_path)
    assert "Not known: the encoder was exported without the run" in card
    assert "No results were given." in card


def test_results_of_these_weights_are_in_the_card_and_those_of_others_are_not(tmp_path: Path, finished: Path) -> None:
    encoder = open_encoder(finished)

    def write(name: str, value: float, **protocol: str) -> None:
        result = Result("probe", "e", "pets|cats", {"linear": value}, {"settings": "last 4 layers", **protocol})
        write_result(result, tmp_path / "results" / "deep" / f"{name}.json")

    write("same", 71.25, encoder="elsewhere", fingerprint=encoder.fingerprint())
    write("by name", 72.25, encoder=str(finished), overlap="All test images are also training images.")
    write("older", 73.25, encoder=str(finished), fingerprint="of other weights")
    write("other", 74.25, encoder="runs/other", fingerprint="of another encoder")
    (tmp_path / "results" / "broken.json").write_text("{")
    (tmp_path / "results" / "else.json").write_text(json.dumps([1, 2]))
    made = export(encoder, "timm", tmp_path / "x", results=tmp_path / "results", image_size=(16, 16))
    card = made.card.read_text()
    assert "| probe | pets\\|cats | last 4 layers | linear | 71.25 |" in card
    assert "| last 4 layers, TESTED ON TRAINING IMAGES | linear | 72.25 |" in card
    assert "73.25" not in card and "74.25" not in card
    assert made.measured.of_other_weights == 1
