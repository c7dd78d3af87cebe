"""What `inspect` says of a source: the numbers PIL and numpy give, what is broken, what is worth a warning."""

import dataclasses
import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from inspected_sources import FakeStream, lines, look, write
from pictures import encoded as content
from pictures import smooth_picture as picture
from PIL import Image

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ArraySource, Record
from flexpredict.errors import UserError

BROKEN = {"truncated.jpg", "truncated_too.jpg", "empty.png", "text.png"}


def test_numbers_are_those_that_pil_and_numpy_give(mixed: Path, tmp_path: Path) -> None:
    survey, _ = look(str(mixed), tmp_path / "out")
    files = [path for path in mixed.rglob("*") if path.is_file() and path.name not in BROKEN]
    images = [Image.open(path) for path in files]
    upright = [
        (99, 33) if path.name == "turned.jpg" else image.size[::-1] for path, image in zip(files, images, strict=True)
    ]
    sides = [min(size) for size in upright]

    assert (survey.images, survey.examined, survey.readable, survey.broken) == (14, 14, 10, 4)
    assert survey.bytes == sum(path.stat().st_size for path in files)
    assert survey.formats == Counter(image.format for image in images)
    assert survey.modes == Counter(image.mode for image in images)
    assert (survey.rotated, survey.animated, survey.grayscale) == (1, 1, 2)
    assert survey.sizes is not None
    spread = survey.sizes.shorter_side
    assert (spread.smallest, spread.largest) == (min(sides), max(sides))
    assert sorted(sides)[4] <= spread.median <= sorted(sides)[5]
    assert survey.sizes.megapixels.largest == pytest.approx(max(h * w for h, w in upright) / 1e6)
    assert survey.sizes.aspect.smallest == pytest.approx(min(w / h for h, w in upright))
    assert survey.sizes.aspect.largest == pytest.approx(max(w / h for h, w in upright))
    counted = Counter(upright)
    assert {(h, w): n for h, w, n in survey.sizes.most_frequent}.items() <= counted.items()
    assert survey.sizes.most_frequent[0] == (90, 70, 3) and survey.sizes.distinct == len(counted)


def test_spreads_are_percentiles(tmp_path: Path) -> None:
    sides = list(range(20, 121))
    source = write(tmp_path / "x", {f"{side}.png": content(picture(side, side + 5, side)) for side in sides})
    survey, _ = look(str(source), tmp_path / "out")
    assert survey.sizes is not None
    assert dataclasses.astuple(survey.sizes.shorter_side) == (20, 25, 70, 115, 120)


def test_every_broken_file_is_listed_with_its_reason_and_reasons_are_grouped(mixed: Path, tmp_path: Path) -> None:
    survey, printed = look(str(mixed), tmp_path / "out")
    listed = lines(tmp_path / "out" / "broken.jsonl")
    assert {Path(entry["name"]).name for entry in listed} == BROKEN
    assert sum(survey.reasons.values()) == 4
    # The two truncated files lack different numbers of bytes: one reason all the same.
    assert sorted(survey.reasons.values()) == [1, 1, 2]
    assert all(reason in " ".join(printed.split()) for reason in survey.reasons)
    assert any("cannot be read" in warning and "29 %" in warning for warning in survey.warnings)


def test_what_could_not_be_listed_is_reported_with_the_broken(tmp_path: Path) -> None:
    source = ArraySource("arrays", torch.zeros(3, 32, 32, 3, dtype=torch.uint8))
    source.problems.append(UnreadableImage("shard-7.tar", "truncated"))
    survey, _ = look(source, tmp_path)
    assert (survey.broken, survey.problems, survey.reasons) == (0, 1, {"truncated": 1})
    assert lines(tmp_path / "broken.jsonl") == [{"name": "shard-7.tar", "reason": "truncated"}]


def test_duplicates_are_the_files_of_equal_content(mixed: Path, tmp_path: Path) -> None:
    survey, _ = look(str(mixed), tmp_path / "out")
    by_content: dict[str, set[str]] = {}
    for path in mixed.rglob("*"):
        if path.is_file() and path.name not in BROKEN:
            by_content.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), set()).add(str(path))
    expected = [group for group in by_content.values() if len(group) > 1]
    found = [set(entry["images"]) for entry in lines(tmp_path / "out" / "duplicates.jsonl")]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    assert (survey.duplicates.groups, survey.duplicates.superfluous) == (2, 3)
    assert any("copies of others" in warning for warning in survey.warnings)


def test_arrays_with_the_same_bytes_in_another_shape_are_no_duplicates(tmp_path: Path) -> None:
    flat = np.arange(48 * 96 * 3, dtype=np.uint8)
    wide, tall = flat.reshape(48, 96, 3), flat.reshape(96, 48, 3)
    survey, _ = look(FakeStream([[Record("wide", wide), Record("tall", tall), Record("again", wide)]]), tmp_path)
    assert lines(tmp_path / "duplicates.jsonl") == [{"images": ["wide", "again"]}]
    assert survey.formats == {"array": 3}


def test_any_number_of_workers_finds_the_same(mixed: Path, tmp_path: Path) -> None:
    for number in range(80):
        write(mixed, {f"many/{number}.png": content(picture(32, 40, number % 50))})
    alone, _ = look(str(mixed), tmp_path / "alone", workers=0)
    assert alone.duplicates.groups == 32
    for workers in (1, 2):
        out = tmp_path / str(workers)
        assert look(str(mixed), out, workers=workers)[0] == alone
        for name in ("survey.json", "broken.jsonl", "duplicates.jsonl", "contact_sheet.png"):
            assert (out / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_a_sample_is_evenly_spaced_and_said_to_be_one(tmp_path: Path) -> None:
    images = torch.zeros(101, 32, 32, 3, dtype=torch.uint8)
    # Every tenth is black, and all others are different.
    images[:, 0, 0, 0] = torch.where(torch.arange(101) % 10 == 0, 0, torch.arange(101) + 1)
    survey, printed = look(ArraySource("arrays", images), tmp_path, sample=11)
    assert (survey.images, survey.examined, survey.duplicates.superfluous) == (101, 11, 10)
    assert "101, of which 11 were examined" in printed
    assert "arrays, image 90" in (tmp_path / "duplicates.jsonl").read_text()


def test_class_balance_names_the_largest_and_the_smallest(tmp_path: Path) -> None:
    counts = [*range(1, 13), 200]
    labels = torch.cat((torch.repeat_interleave(torch.arange(13), torch.tensor(counts)), torch.tensor([-1, -1])))
    images = torch.arange(len(labels), dtype=torch.int32)[:, None, None, None].expand(-1, 32, 32, 3)
    names = tuple(f"class {index}" for index in range(14))
    survey, printed = look(ArraySource("arrays", images.to(torch.uint8), names, labels), tmp_path, sample=20)
    assert survey.classes is not None
    # Of all images, although only a sample was decoded; and the class without any image counts.
    assert (survey.classes.count, survey.classes.labeled, survey.classes.unlabeled) == (14, sum(counts), 2)
    assert (survey.classes.images.smallest, survey.classes.images.largest) == (0, 200)
    assert survey.classes.largest[:2] == [("class 12", 200), ("class 11", 12)]
    assert survey.classes.smallest[:2] == [("class 13", 0), ("class 0", 1)]
    assert any("very uneven" in warning for warning in survey.warnings)
    assert "class 12 200" in printed and "2 images without a label" in printed


def test_one_class_only_and_no_colors_are_worth_a_warning(tmp_path: Path) -> None:
    images = torch.arange(4, dtype=torch.uint8)[:, None, None, None].expand(-1, 40, 40, 3).contiguous()
    survey, _ = look(ArraySource("arrays", images, ("cat", "dog"), torch.ones(4, dtype=torch.int64)), tmp_path)
    assert any("one class, dog" in warning for warning in survey.warnings)
    assert any("No image has colors" in warning for warning in survey.warnings)


def test_images_below_the_training_size_are_counted_and_a_smaller_size_is_proposed(tmp_path: Path) -> None:
    files = {f"{number}.png": content(picture(100 if number < 6 else 200, 210, number)) for number in range(20)}
    survey, _ = look(str(write(tmp_path / "x", files)), tmp_path / "out")
    assert survey.image_size == (192, 192) and survey.patch_size == 16 and survey.smaller == 6
    assert any("image_size=96" in warning for warning in survey.warnings)
    assert not look(str(tmp_path / "x"), tmp_path / "out", image_size=(96, 96))[0].warnings


def test_the_table_fits_80_columns_of_a_pipe_and_takes_no_name_for_markup(tmp_path: Path) -> None:
    name = "[bold]" + "very_long_name/" * 12
    labels = torch.arange(20, dtype=torch.int64)
    source = ArraySource(
        name, torch.zeros(20, 32, 32, 3, dtype=torch.uint8), tuple(f"[red]{i}" for i in labels), labels
    )
    _, printed = look(source, Path(os.path.relpath(tmp_path)))
    table = printed.split("Written:")[0]
    assert max(map(len, table.splitlines())) <= 80 and "\x1b" not in printed
    assert "[bold]very_long_name/" in printed


def test_bad_settings_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    class Untouchable(ArraySource):
        def encoded(self, index: int) -> Encoded:
            raise AssertionError("read")

    source = Untouchable("arrays", torch.zeros(3, 64, 64, 3, dtype=torch.uint8))
    for options, said in (
        ({"sample": 0}, "sample=0"),
        ({"workers": -1}, "workers=-1"),
        ({"patch_size": 0}, "patch_size=0"),
        ({"image_size": (60, 64), "patch_size": 16}, "60x64.*patch_size=16"),
        ({"image_size": (64, 64), "patch_size": 64}, "1x1 patches"),
    ):
        with pytest.raises(UserError, match=said):
            look(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file cannot be written"):
        look(source, tmp_path / "file")


class Deadly(ArraySource):
    """The last of its images kills whoever reads it."""

    def encoded(self, index: int) -> Encoded:
        if index == len(self) - 1:
            os._exit(9)
        return super().encoded(index)


def test_an_image_that_kills_a_worker_is_named(tmp_path: Path) -> None:
    source = Deadly("arrays", torch.zeros(3, 32, 32, 3, dtype=torch.uint8))
    with pytest.raises(UserError, match="died while it was reading arrays, image 2"):
        look(source, tmp_path, workers=1)
