"""`evaluate location`: what it finds in encoders whose answer is known, which images it uses, what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from flexpredict.cli import main
from flexpredict.data.sources.derived import shifted
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.linear import linear_probe
from flexpredict.evaluation.location import evaluate_location
from flexpredict.evaluation.results import Result
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys, uniform
from flexpredict.showing import show

pytestmark = pytest.mark.usefixtures("few_penalties")

SIDE, PATCH = 32, 8
GRID = SIDE // PATCH


class Toy(ImageEncoder):
    """Gives what a function makes of images cut into patches: B P (3·8·8) in 0 … 1 -> B P D."""

    def __init__(self, features_of: Callable[[Tensor], Tensor], side: int = SIDE) -> None:
        super().__init__("toy", "a toy", 0, 1, (PATCH, PATCH), (side, side), "mean", (0.0,) * 3, (1.0,) * 3)
        self.features_of = features_of
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        patches = torch.nn.functional.unfold(images, PATCH, stride=PATCH).mT
        return [Tokens(self.features_of(patches), None)]


def noise(count: int = 200, seed: int = 1, labels: bool = False) -> ArraySource:
    """Every pixel at random; the labels have nothing to do with them."""
    pixels = uniform(sample_keys(seed, torch.arange(count)), SIDE * SIDE * 3).mul(255).byte()
    numbers = torch.arange(count) % 2 if labels else None
    return ArraySource("noise", pixels.view(count, SIDE, SIDE, 3), ("a", "b") if labels else None, numbers)


def scenes(count: int, split: str = "train") -> ArraySource:
    source = open_source(f"scenes:{count},size={SIDE},split={split}")
    assert isinstance(source, ArraySource)
    return source


def measured(encoder: ImageEncoder, data: ArraySource, test: ArraySource | None = None, **options: Any) -> Result:
    return evaluate_location(encoder, data, test, out=None, accelerator="cpu", **options)


# What features tell of the place


def test_an_encoder_that_gives_positions_tells_the_place_and_nothing_else() -> None:
    places = normal(sample_keys(3, torch.arange(GRID * GRID)), 24)
    numbers = measured(Toy(lambda patches: places.expand(len(patches), -1, -1)), noise()).numbers
    assert numbers["location share"] == pytest.approx(100, abs=1e-6)
    assert numbers["place R²"] == pytest.approx(1, abs=1e-6)
    assert numbers["place error"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    "features_of",
    [lambda patches: patches[:, :, :20], lambda patches: patches[:, :1, :20].expand(-1, GRID * GRID, -1)],
    ids=["noise of each patch", "one vector an image"],
)
def test_an_encoder_that_knows_no_places_tells_none(features_of: Callable[[Tensor], Tensor]) -> None:
    result = measured(Toy(features_of), noise())
    assert result.numbers["location share"] == pytest.approx(0, abs=0.1)
    assert result.numbers["place R²"] == pytest.approx(0, abs=0.02)
    assert result.numbers["place error"] == pytest.approx(result.details["place"]["error_of_center"], abs=0.02)


def test_the_share_is_that_of_the_variances_that_were_put_in() -> None:
    places = normal(sample_keys(3, torch.arange(GRID * GRID)), 192) / 4
    of_places, of_pixels = float(places.var(dim=0, correction=0).mean()), 1 / 12
    result = measured(Toy(lambda patches: patches + places), noise())
    assert result.numbers["location share"] / 100 == pytest.approx(of_places / (of_places + of_pixels), abs=0.01)


def test_rows_and_columns_are_told_apart() -> None:
    row = torch.arange(GRID * GRID) // GRID
    r2 = measured(
        Toy(lambda patches: torch.cat((patches[:, :, :8], row.float().expand(len(patches), -1)[..., None]), dim=2)),
        noise(),
    ).details["place"]["r2"]
    assert r2["row"] == pytest.approx(1, abs=1e-3) and r2["column"] == pytest.approx(0, abs=0.02)


# What shifts do


def waves(count: int = 60) -> ArraySource:
    """Each pixel an even function of its place within its patch: a shift by a whole patch changes nothing."""
    within = torch.arange(SIDE) * (2 * np.pi / PATCH)
    strengths = uniform(sample_keys(5, torch.arange(count)), 9).view(count, 9, 1, 1)
    waves = [torch.cos(i * within)[:, None] * torch.cos(j * within) for i in range(3) for j in range(3)]
    pixels = (strengths * torch.stack(waves)).sum(dim=1)
    pixels = ((pixels / 9 + 1) * 127).byte()
    return ArraySource("waves", pixels[..., None].expand(-1, -1, -1, 3).contiguous())


def test_whole_patches_do_not_move_an_encoder_of_patches_and_parts_of_one_do() -> None:
    numbers = measured(Toy(lambda patches: patches - 0.5), waves()).numbers
    assert numbers["moved, 1 patch"] == pytest.approx(0, abs=1e-6)
    assert numbers["moved, 2 patches"] == pytest.approx(0, abs=1e-6)
    assert all(numbers[f"moved, {part} patch"] > 5 for part in ("1/4", "1/2", "3/4"))


def test_features_of_another_image_are_as_far_as_the_mean_distance() -> None:
    """Of noise, a shift by part of a patch leaves nothing as it was."""
    mixing = normal(sample_keys(7, torch.arange(192)), 64)
    numbers = measured(Toy(lambda patches: torch.tanh((patches - 0.5) @ mixing)), noise()).numbers
    assert numbers["moved, 1/2 patch"] == pytest.approx(100, abs=10)


def test_accuracies_are_those_of_the_probe_on_images_shifted_by_hand(encoder: ViTEncoder) -> None:
    train, test = scenes(150), scenes(60, "test")
    result = measured(encoder, train, test, shifts=1)
    assert train.labels is not None and test.labels is not None

    def features(images: Tensor, down: int = 0, right: int = 0) -> Tensor:
        with torch.no_grad():
            return encoder.pooled(shifted(images.permute(0, 3, 1, 2).contiguous(), down, right))

    def accuracy(down: int, right: int) -> float:
        moved = features(test.images, down, right)
        return 100 * linear_probe(features(train.images), train.labels, moved, test.labels).accuracy

    assert result.numbers["accuracy"] == pytest.approx(accuracy(0, 0))
    for name, pixels in (("1/2 patch", 4), ("1 patch", 8)):
        expected = accuracy(0, 0) - (accuracy(pixels, 0) + accuracy(0, pixels)) / 2
        assert result.numbers[f"accuracy lost, {name}"] == pytest.approx(expected)


def test_images_without_labels_are_measured_without_accuracies(encoder: ViTEncoder) -> None:
    plain = measured(encoder, noise(40))
    assert not [name for name in plain.numbers if "accuracy" in name] and "moved, 1 patch" in plain.numbers
    alike = noise(40)
    alike.classes, alike.labels = ("thing",), torch.zeros(40, dtype=torch.int64)
    assert measured(encoder, alike).numbers.keys() == plain.numbers.keys()


def test_images_without_a_label_count_for_places_and_not_for_accuracy(encoder: ViTEncoder) -> None:
    train, test = scenes(120), scenes(60, "test")
    assert test.labels is not None
    some = ArraySource("some", test.images, test.classes, torch.where(torch.arange(60) < 40, test.labels, -1))
    first = ArraySource("first", test.images[:40], test.classes, test.labels[:40])
    partly, fewer = (measured(encoder, train, images).numbers for images in (some, first))
    assert partly["accuracy"] == pytest.approx(fewer["accuracy"])
    whole = measured(encoder, train, test).numbers
    assert partly["location share"] == whole["location share"] != fewer["location share"]


def test_classes_are_matched_by_name(encoder: ViTEncoder) -> None:
    train, test = scenes(120), scenes(60, "test")
    assert test.classes is not None and test.labels is not None
    backwards = ArraySource("backwards", test.images, test.classes[::-1], len(test.classes) - 1 - test.labels)
    assert measured(encoder, train, backwards).numbers == measured(encoder, train, test).numbers


# Which images


def test_halves_are_disjoint_the_same_every_time_and_have_every_class(
    encoder: ViTEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flexpredict.evaluation.location import evaluation

    seen: list[tuple[Tensor, Tensor]] = []
    split = evaluation._train_and_test

    def listen(*arguments: Any) -> Any:
        train, test = split(*arguments)
        seen.append((train.indices, test.indices))  # type: ignore[attr-defined]
        return train, test

    monkeypatch.setattr(evaluation, "_train_and_test", listen)
    data = scenes(101)
    first = measured(encoder, data)
    assert measured(encoder, data).numbers == first.numbers
    measured(encoder, data, seed=1)
    (train, test), (again, _), (other, _) = seen
    assert sorted(torch.cat((train, test)).tolist()) == list(range(101)) and abs(len(train) - len(test)) <= 2
    assert torch.equal(train, again) and not torch.equal(train, other)
    assert data.labels is not None and len(torch.unique(data.labels[train])) == len(torch.unique(data.labels))
    assert (first.protocol["train"]["images"], first.protocol["test"]["images"]) == (len(train), len(test))


def test_fewer_images_are_used_where_asked(encoder: ViTEncoder) -> None:
    result = measured(encoder, noise(80), images=12)
    assert (result.protocol["train"]["images"], result.protocol["test"]["images"]) == (12, 12)
    assert result.protocol["settings"] == "12 images"


def test_features_of_shifted_images_are_kept(encoder: ViTEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noise(40)
    first = measured(encoder, data, shifts=1)
    monkeypatch.setattr(encoder, "pooled", lambda images, *more: torch.zeros(len(images), 24))
    assert measured(encoder, data, shifts=1).numbers == first.numbers


# Encoders and refusals


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_encoders_of_other_libraries_are_measured_too(name: str) -> None:
    size = 96
    options = {} if name == "test_resnet" else {"img_size": size}
    model = timm.create_model(name, num_classes=0, **options).eval()
    result = measured(TimmEncoder(model, name, name, (size, size)).eval(), scenes(24))
    assert result.protocol["grid"] == ("3x3" if name == "test_resnet" else "6x6")
    assert 0 <= result.numbers["location share"] <= 100 and np.isfinite(list(result.numbers.values())).all()


def test_grids_that_are_not_square_and_single_rows_are_measured(encoder: ViTEncoder) -> None:
    result = measured(encoder, noise(40), image_size=(8, 48))
    assert result.protocol["grid"] == "1x6" and list(result.details["place"]["r2"]) == ["column"]
    assert result.protocol["shifts_in_pixels"]["1 patch"] == {"right": 8}


@pytest.mark.parametrize(
    ("count", "options", "message"),
    [
        (40, {"shifts": 4}, "shifts=4, but images of 4x4 patches"),
        (19, {}, "noise has 19 image.* at least 20"),
        (40, {"images": 3}, "images=3 is too few. Use at least 10"),
        (40, {"test": noise(9)}, "There are 9 image.* at least 10"),
        (9, {"test": noise(40)}, "noise has 9 image.* at least 10"),
        (40, {"image_size": (8, 8)}, "sees an image of 8x8 as one patch.*image_size=16x16"),
        (40, {"image_size": (33, 32)}, "cannot be cut into"),
        (40, {"layers": 9}, "which has 2"),
        (40, {"pooling": "class"}, "needs a class token"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_work(
    count: int, options: dict[str, Any], message: str, encoder: ViTEncoder, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        measured(encoder, noise(count), **options)
    assert not (tmp_path / "cache").exists()


# The command


def test_the_command_prints_tables_and_writes_the_whole_protocol(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "location", str(finished), "--data", "scenes:60,size=32"]
    words += ["--accelerator", "cpu", "--table", "all.csv", "--out", "results"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for text in ("location share", "R²", "mean error in patches", "1 - cosine", "1/4 patch", "3 patches", "lost"):
        assert text in printed
    assert "…" not in printed
    (file,) = (tmp_path / "results").iterdir()
    written = json.loads(file.read_text())
    assert written["task"] == "location" and written["protocol"]["grid"] == "8x8"
    assert written["protocol"]["test"] == {"data": "scenes:60,size=32", "images": 30, "unreadable": 0}
    assert "borders reflected" in written["protocol"]["shifted"]
    header, row = (tmp_path / "all.csv").read_text().splitlines()
    assert "location, scenes:60,size=32: location share" in header and "accuracy lost, 3 patches" in header
    assert f"{written['numbers']['location share']:.2f}" in row
    assert main([*words, "--test", "scenes:30,size=32,split=test", "--shifts", "8"]) == 2
    assert "--shifts 8" in capsys.readouterr().err


def test_tables_of_images_without_labels_have_no_accuracies(encoder: ViTEncoder) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show(measured(encoder, noise(40)), console)
    text = console.export_text()
    assert "accuracy" not in text and "2 patches" in text and "…" not in text
