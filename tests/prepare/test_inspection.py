"""What `inspect` says of a source, and what its picture shows."""

import dataclasses
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import encoded as content
from pictures import smooth_picture as picture
from pictures import turned
from PIL import Image
from rich.console import Console

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.image_source import ArraySource, Record
from flexpredict.data.sources.opening import open_images
from flexpredict.errors import UserError
from flexpredict.prepare.contact_sheet import (
    SHOWS_THROUGH,
    TARGET_COLORS,
    VEIL,
    VIEWS,
    draw_masks,
    training_views,
)
from flexpredict.prepare.examination import PassingStream
from flexpredict.prepare.inspect import inspect
from flexpredict.prepare.survey import Survey
from flexpredict.settings.augmentation import PRESETS, Augmentation
from flexpredict.settings.masking import Masking
from flexpredict.showing import show
from flexpredict.sizes import default_image_size, default_patch_size


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def look(source: Any, out: Path, **options: Any) -> tuple[Survey, str]:
    """The survey, and what is shown of it in a pipe."""
    printed = io.StringIO()
    inspection = inspect(source, out, **{"workers": 0, **options})
    show(inspection, Console(file=printed))
    return inspection.survey, printed.getvalue()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Every kind of image, each once, and some of them broken or copied."""
    jpeg = content(picture(90, 70, 3), "JPEG")
    frames = [picture(20, 30, seed).convert("P") for seed in (4, 5)]
    return write(
        tmp_path / "mixed",
        {
            "a.png": content(picture(40, 60, 1)),
            "b.jpg": jpeg,
            "c/gray.png": content(picture(50, 50, 2).convert("L")),
            "c/gray_as_rgb.jpg": content(picture(64, 48, 2).convert("L").convert("RGB"), "JPEG"),
            "c/turned.jpg": content(picture(33, 99, 6), "JPEG", exif=turned(6)),
            "c/upright.jpg": content(picture(33, 99, 7), "JPEG", exif=turned(1)),
            "d/animated.gif": content(frames[0], "GIF", save_all=True, append_images=frames[1:]),
            "d/copy_of_b.jpg": jpeg,
            "d/copy_of_b_again.jpeg": jpeg,
            "d/copy_of_a.png": content(picture(40, 60, 1)),
            "e/truncated.jpg": jpeg[: -len(jpeg) // 4],
            "e/truncated_too.jpg": jpeg[: -len(jpeg) // 5],
            "e/empty.png": b"",
            "e/text.png": b"this is not an image",
        },
    )


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


@dataclass
class FakeStream:
    parts: list[list[Record | UnreadableImage]]
    classes: tuple[str, ...] | None = None
    length: int | None = None
    name: str = "pipe:fake"

    @property
    def pieces(self) -> int:
        return len(self.parts)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        yield from self.parts[piece]


def as_stream(folder: Path) -> FakeStream:
    source = open_images(str(folder))
    records = [Record(source.describe(i), Path(source.describe(i)).read_bytes(), i % 2) for i in range(len(source))]
    return FakeStream([records[:3], [], records[3:]], ("even", "odd"))


def test_a_stream_is_surveyed_like_the_source_of_the_same_images(mixed: Path, tmp_path: Path) -> None:
    source, _ = look(str(mixed), tmp_path / "source")
    for workers in (0, 2):
        stream, _ = look(as_stream(mixed), tmp_path / "stream", workers=workers)
        assert stream.classes is not None and stream.classes.labeled == 10
        assert dataclasses.replace(stream, source=source.source, classes=None) == source
        for name in ("broken.jsonl", "duplicates.jsonl"):
            assert (tmp_path / "stream" / name).read_bytes() == (tmp_path / "source" / name).read_bytes()
        assert (tmp_path / "stream" / "contact_sheet.png").is_file()


def test_a_sample_of_a_stream_is_its_beginning_and_nothing_behind_is_read(tmp_path: Path) -> None:
    class Endless(FakeStream):
        def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
            number = 0
            while True:
                yield Record(f"image {number}", np.full((32, 32, 3), number % 7, np.uint8))
                number += 1

    survey, printed = look(Endless([[]]), tmp_path, sample=10, image_size=(32, 32))
    assert (survey.images, survey.examined, survey.duplicates.groups) == (None, 10, 3)
    assert "unknown length" in printed


def test_a_broken_entry_of_a_stream_counts_as_broken(tmp_path: Path) -> None:
    entries = [Record("fine", content(picture())), UnreadableImage("shard.tar/x", "cut off")]
    survey, _ = look(FakeStream([entries]), tmp_path)
    assert (survey.examined, survey.broken, survey.images) == (2, 1, 2)
    assert lines(tmp_path / "broken.jsonl") == [{"name": "shard.tar/x", "reason": "cut off"}]


def test_what_is_kept_of_a_stream_is_evenly_spaced_and_little(tmp_path: Path) -> None:
    pixels = np.zeros((1, 1, 3), np.uint8)
    for length in (5, 48, 49, 1000):
        records: list[Record | UnreadableImage] = [Record(str(number), pixels, number) for number in range(length)]
        with (tmp_path / "names").open("w+") as file:
            passing = PassingStream(FakeStream([records[:2], records[2:]]), None, file)
            assert [entry.name for entry in passing.records(0)] == [str(number) for number in range(length)]
            kept = [int(record.name) for record in passing.kept(np.ones(length, np.bool_)).records]
            assert passing.names([0, length - 1]) == {0: "0", length - 1: str(length - 1)}
        assert min(length, 24) <= len(kept) <= 48
        assert set(np.diff(kept)) <= {kept[1] - kept[0]} and length - kept[-1] <= kept[1] - kept[0]


def test_where_nothing_can_be_read_there_are_numbers_but_no_picture(tmp_path: Path) -> None:
    survey, printed = look(FakeStream([[Record("a", b"no image"), Record("b", b"")]]), tmp_path)
    assert (survey.readable, survey.broken, survey.sizes) == (0, 2, None)
    assert not (tmp_path / "contact_sheet.png").exists() and "contact_sheet" not in printed
    with pytest.raises(UserError, match="no images in pipe:fake"):
        look(FakeStream([[]]), tmp_path)


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


@pytest.mark.parametrize("shape", [(64, 64), (96, 64), (70, 113)])
def test_masks_are_drawn_where_they_are(shape: tuple[int, int]) -> None:
    grid = (4, 4)
    pixels = np.asarray(picture(*shape, 8)).copy()
    context = np.array([0, 3, 12, 15])
    targets = np.array([[5, 6, 9, 10], [9, 10, 13, 14]])  # two blocks of 2x2, of which the second overlaps the first
    drawn = draw_masks(pixels, grid, context, targets)

    def middle(patch: int) -> tuple[int, int]:
        row, column = divmod(patch, 4)
        return int((row + 0.5) * shape[0] / 4), int((column + 0.5) * shape[1] / 4)

    for patch in range(16):
        at = middle(patch)
        if patch in context:
            assert (drawn[at] == pixels[at]).all()
        else:
            luma = 0.299 * pixels[at][0] + 0.587 * pixels[at][1] + 0.114 * pixels[at][2]
            assert np.abs(drawn[at] - (SHOWS_THROUGH * luma + (1 - SHOWS_THROUGH) * np.array(VEIL))).max() <= 1
    first, second = (np.all(drawn == color, axis=-1) for color in TARGET_COLORS[:2])
    top, left, right = -(-shape[0] // 4), -(-shape[1] // 4), -(-3 * shape[1] // 4) - 1
    # The first begins with the second row of patches; the second reaches down to the edge of the picture.
    assert first[top].nonzero()[0].tolist() == list(range(left, right + 1)) and not first[:top].any()
    assert second[-1].nonzero()[0].tolist() == list(range(left, right + 1))
    assert second[:, left].nonzero()[0].tolist() == list(range(-(-shape[0] // 2), shape[0]))
    outlined = first | second
    assert not outlined[:, :left].any() and not outlined[:, right + 1 :].any()


def test_the_views_are_what_training_begins_with(tmp_path: Path) -> None:
    files = {f"{number:02d}.png": content(picture(48 + number, 70, number)) for number in range(9)}
    source = open_images(str(write(tmp_path, files)))
    augmentation = PRESETS["stop"]
    # Nine images: the second epoch begins with the tenth view.
    batch = next(
        training_batches(source, augmentation, [(32, 48)], seed=5, batch_size=VIEWS, first_step=0, last_step=1)
    )
    views = [np.asarray(view) for view in training_views(source, augmentation, (32, 48), seed=5)]
    assert (np.stack(views) == batch.images.permute(0, 2, 3, 1).numpy()).all()


def test_broken_images_are_left_out_of_the_views(mixed: Path) -> None:
    views = training_views(open_images(str(mixed)), Augmentation(), (32, 32), seed=0)
    assert len(views) == VIEWS and all(view.size == (32, 32) for view in views)


@pytest.mark.parametrize("masking", [Masking(), Masking("random"), Masking(targets=7, target_scale=(0.05, 0.1))])
def test_the_sheet_shows_the_colors_of_the_images_and_of_all_targets(masking: Masking, tmp_path: Path) -> None:
    colors = torch.tensor([[200, 40, 40], [40, 200, 40]], dtype=torch.uint8)
    source = ArraySource("plain", colors[:, None, None].expand(-1, 64, 64, 3).contiguous())
    look(source, tmp_path, masking=masking, augmentation=PRESETS["none"])
    sheet = Image.open(tmp_path / "contact_sheet.png")
    assert sheet.width <= 1600
    pixels = np.asarray(sheet)
    # A tile each, and half of the views.
    assert all((pixels == color).all(axis=-1).sum() > 7 * 176 * 176 for color in colors.numpy())
    expected = 1 if masking.kind == "random" else min(masking.targets, len(TARGET_COLORS))
    drawn = [(pixels == color).all(axis=-1).sum() for color in TARGET_COLORS]
    assert min(drawn[:expected]) > 1000 and not any(drawn[expected:5])


def test_names_that_the_font_lacks_are_drawn_as_near_as_can_be(tmp_path: Path) -> None:
    sheets = []
    for name in ("Café Straße", "Cafe Strasse", "Cafe"):
        look(ArraySource(name, torch.zeros(2, 32, 32, 3, dtype=torch.uint8)), tmp_path)
        sheets.append((tmp_path / "contact_sheet.png").read_bytes())
    assert sheets[0] == sheets[1] != sheets[2]


def test_default_sizes_are_those_nearest_below() -> None:
    assert default_image_size([(500, 300), (100, 180), (70, 900)]) == 96
    assert default_image_size([(10, 10)]) == 32 and default_image_size([(4000, 3000)]) == 224
    assert [default_patch_size((side, side), 16) for side in (224, 128, 96, 64, 48, 32)] == [16, 16, 12, 8, 6, 4]
    assert default_patch_size((224, 224), 14) == 14 and default_patch_size((97, 97), 16) == 16
    with pytest.raises(UserError, match="No image"):
        default_image_size([])
