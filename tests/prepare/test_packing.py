"""Packing: what comes out is what went in, once, in order, whatever happened on the way."""

import io
import json
import multiprocessing
import os
import signal
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset
from pictures import encoded as content
from pictures import smooth_picture as picture
from PIL import Image, ImageOps
from rich.console import Console

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ArraySource, ImageSource, Record
from flexpredict.data.sources.manifest import Manifest, damaged_shards
from flexpredict.data.sources.opening import open_images
from flexpredict.errors import UserError
from flexpredict.prepare import pack as packing
from flexpredict.showing import show


def pack(*arguments: Any, **options: Any) -> Manifest:
    return packing.pack(*arguments, **options).manifest


def damaged(folder: Path) -> list[str]:
    return damaged_shards(folder)[1]


def members(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                file = shard.extractfile(member)
                assert file is not None and member.name not in found
                found[member.name] = file.read()
    return found


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.tar")}


def folder_of(root: Path, **files: bytes) -> str:
    for name, data in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(root)


@dataclass(eq=False)
class Listed(ImageSource):
    """A source made of bytes in memory, whose reading can be made to kill a process."""

    images: list[bytes] = field(repr=False)
    name: str = field(default="listed", kw_only=True)
    deadly: int = -1
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.images)

    def describe(self, index: int) -> str:
        return f"{self.name}/{index}.png"

    def encoded(self, index: int) -> Encoded:
        self.asked.append(index)
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.images[index]

    def fingerprint(self) -> str:
        raise NotImplementedError


@dataclass
class Streamed:
    """The same images one after the other, in two pieces; the first of the second piece is broken."""

    images: list[bytes] = field(repr=False)
    name: str = "streamed"
    classes: tuple[str, ...] | None = ("ant", "bee")
    length: int | None = None
    pieces: int = 2
    stop_after: int = 10**9

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        half = len(self.images) // 2
        for index in range(half) if piece == 0 else range(half, len(self.images)):
            if index == self.stop_after:
                raise KeyboardInterrupt
            if index == half:
                yield UnreadableImage(f"{self.name}/{index}", "the shard is damaged here")
            else:
                yield Record(f"{self.name}/{index}", self.images[index], index % 2)


def small_pictures(count: int) -> list[bytes]:
    return [content(picture(20, 30, seed)) for seed in range(count)]


def test_webdataset_and_pil_read_the_pictures_that_were_packed(tmp_path: Path) -> None:
    pictures = [picture(60 + seed, 90, seed) for seed in range(7)]
    source = Listed(
        [content(image) for image in pictures],
        classes=("ant", "bee", "cat"),
        labels=torch.tensor([0, 1, 2, 0, 1, 2, -1]),
    )
    pack(source, tmp_path / "out", size=32, quality=95, images_per_shard=3, workers=0)
    urls = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    assert len(urls) == 3
    samples = list(webdataset.WebDataset(urls, shardshuffle=False).decode("pil"))
    assert [sample["__key__"] for sample in samples] == [f"{index:09d}" for index in range(7)]
    assert [sample.get("cls") for sample in samples] == [0, 1, 2, 0, 1, 2, None]
    for index, (sample, original) in enumerate(zip(samples, pictures, strict=True)):
        height, width = original.height, original.width
        assert sample["json"] == {"path": f"listed/{index}.png", "height": height, "width": width}
        assert min(sample["jpg"].size) == 32
        assert abs(sample["jpg"].width - 32 * width / height) <= 0.5
        shrunk = original.resize(sample["jpg"].size, Image.Resampling.LANCZOS)
        plain = Image.open(io.BytesIO(content(shrunk, "JPEG", quality=95)))
        assert np.abs(np.asarray(sample["jpg"], float) - np.asarray(plain, float)).mean() < 1


def test_packed_shards_open_as_a_source_with_the_classes_and_labels_of_the_original(tmp_path: Path) -> None:
    data = content(picture())
    source = folder_of(tmp_path / "in", zebra__1_png=data, ant__1_png=data, ant__2_png=data)
    manifest = pack(source, tmp_path / "out", workers=0)
    assert manifest == Manifest.load(tmp_path / "out")
    packed = open_images(str(tmp_path / "out"))
    assert packed.classes == manifest.classes == ("ant", "zebra")
    assert not hasattr(packed, "records") and packed.labels.tolist() == [0, 0, 1]


def test_the_result_is_turned_upright_and_never_enlarged(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned, small = content(picture(64, 96), "JPEG", exif=exif, quality=95), content(picture(10, 15))
    pack(Listed([turned, small]), tmp_path / "out", size=64, workers=0)
    first, second = (Image.open(io.BytesIO(members(tmp_path / "out")[f"{n:09d}.jpg"])) for n in (0, 1))
    assert (first.size, second.size) == ((64, 96), (15, 10))
    assert not first.getexif()
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(turned)))
    assert np.abs(np.asarray(first, float) - np.asarray(wanted, float)).mean() < 3


def test_only_a_small_upright_jpeg_is_copied_byte_for_byte(tmp_path: Path) -> None:
    exif, broken = Image.Exif(), Image.Exif()
    exif[0x0112], broken[0x0112] = 3, 1
    gray = picture(32, 48).convert("L")
    cases = {
        "plain": (content(picture(32, 48), "JPEG", quality=30), True),
        "gray": (content(gray, "JPEG"), True),
        "upright by exif": (content(picture(32, 48), "JPEG", exif=broken), True),
        "turned": (content(picture(32, 48), "JPEG", exif=exif), False),
        "larger": (content(picture(33, 48), "JPEG"), False),
        "cmyk": (content(picture(32, 48).convert("CMYK"), "JPEG"), False),
        "png": (content(picture(32, 48)), False),
        "with a film behind it": (content(picture(32, 48), "JPEG") + bytes(100_000), False),
    }
    pack(Listed([data for data, _ in cases.values()]), tmp_path / "out", size=32, workers=0)
    found = members(tmp_path / "out")
    copied = {name: found[f"{n:09d}.jpg"] == data for n, (name, (data, _)) in enumerate(cases.items())}
    assert copied == {name: wanted for name, (_, wanted) in cases.items()}
    files = folder_of(tmp_path / "in", a_jpg=cases["plain"][0], b_jpg=cases["turned"][0])
    pack(files, tmp_path / "from files", size=32, workers=0)
    found = members(tmp_path / "from files")
    assert found["000000000.jpg"] == cases["plain"][0] and found["000000001.jpg"] != cases["turned"][0]


def test_packing_a_packed_set_again_loses_nothing(tmp_path: Path) -> None:
    pack("scenes:10,size=48", tmp_path / "once", size=32, workers=0)
    pack(str(tmp_path / "once"), tmp_path / "twice", size=32, workers=0)
    once, twice = members(tmp_path / "once"), members(tmp_path / "twice")
    assert [name for name in once if name.endswith("jpg")] == [name for name in twice if name.endswith("jpg")]
    assert all(twice[name] == data for name, data in once.items() if not name.endswith("json"))


def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    for workers in (0, 1, 2):
        out = tmp_path / str(workers)
        pack("scenes:90,size=32", out, size=24, images_per_shard=40, workers=workers)
    assert len(shards(tmp_path / "0")) == 3
    assert shards(tmp_path / "0") == shards(tmp_path / "1") == shards(tmp_path / "2")


def test_unreadable_images_are_left_out_and_listed_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    images = small_pictures(6)
    images[1], images[4] = b"no image", content(picture(32, 48), "JPEG")[:-200]
    source = Listed(images, problems=[UnreadableImage("attic", "cannot be listed")])
    manifest = pack(source, tmp_path / "out", size=64, images_per_shard=4, workers=0, max_skipped=0.5)
    assert [name for name in members(tmp_path / "out") if name.endswith("jpg")] == [
        f"{index:09d}.jpg" for index in (0, 2, 3, 5)
    ]
    assert [skipped.name for skipped in manifest.skipped] == ["attic", "listed/1.png", "listed/4.png"]
    assert all(skipped.reason for skipped in manifest.skipped)
    assert [(shard.first, shard.last, shard.images) for shard in manifest.shards] == [(0, 3, 3), (4, 5, 1)]
    written = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (written["images"], written["skipped_images"]) == (4, 3)


def test_a_shard_without_any_readable_image_is_a_valid_empty_tar(tmp_path: Path) -> None:
    source = Listed([*small_pictures(2), b"broken", b"broken", *small_pictures(2)])
    manifest = pack(source, tmp_path / "out", images_per_shard=2, workers=0, max_skipped=0.5)
    assert [shard.images for shard in manifest.shards] == [2, 0, 2]
    with tarfile.open(tmp_path / "out/shard-000001.tar") as shard:
        assert shard.getnames() == []
    urls = [str(tmp_path / "out" / shard.name) for shard in manifest.shards]
    assert len(list(webdataset.WebDataset(urls, shardshuffle=False))) == 4
    packed = open_images(str(tmp_path / "out"))
    assert not hasattr(packed, "records") and len(packed) == 4 and packed.problems == []


def test_too_many_unreadable_images_stop_it_and_a_higher_limit_goes_on(tmp_path: Path) -> None:
    images = small_pictures(40)
    images[5:35] = [b"broken"] * 30
    source = Listed(images)
    with pytest.raises(UserError, match=r"max_skipped.*listed/5.png: .*listed/7.png") as stopped:
        pack(source, tmp_path / "out", images_per_shard=10, workers=0)
    assert "listed/8.png" not in str(stopped.value)
    finished = shards(tmp_path / "out")
    assert sorted(finished) == ["shard-000000.tar", "shard-000001.tar"]
    source.asked.clear()
    manifest = pack(source, tmp_path / "out", images_per_shard=10, workers=0, max_skipped=0.9)
    assert (manifest.images, len(manifest.skipped)) == (10, 30)
    assert source.asked == list(range(20, 40))
    assert shards(tmp_path / "out").items() > finished.items()


def test_a_few_unreadable_images_count_at_the_end_only(tmp_path: Path) -> None:
    images = [b"broken", *small_pictures(19)]
    manifest = pack(Listed(images), tmp_path / "exactly the limit", workers=0, max_skipped=0.05)
    assert len(manifest.skipped) == 1
    with pytest.raises(UserError, match="1 of 20"):
        pack(Listed(images), tmp_path / "above", workers=0, max_skipped=0.04)


def test_nothing_readable_is_an_error_at_any_limit(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of 2 could be read"):
        pack(Listed([b"a", b"b"]), tmp_path / "out", workers=0, max_skipped=1)


def pack_small(source: Listed, out: Path, workers: int) -> None:
    pack(source, out, size=16, images_per_shard=20, workers=workers)


def test_a_killed_run_goes_on_where_it_was_and_ends_the_same(tmp_path: Path) -> None:
    source = Listed(small_pictures(70), labels=torch.arange(70) % 2, classes=("ant", "bee"))
    pack_small(source, tmp_path / "whole", 0)
    process = multiprocessing.get_context("forkserver").Process(
        target=pack_small, args=(replace(source, deadly=50), tmp_path / "killed", 0)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert sorted(shards(tmp_path / "killed")) == ["shard-000000.tar", "shard-000001.tar"]
    assert Manifest.load(tmp_path / "killed") is None
    # As if the second had been cut off by the file system, which may happen when the power fails.
    (tmp_path / "killed/shard-000001.tar").write_bytes(b"cut off")

    source.asked.clear()
    pack_small(source, tmp_path / "killed", 0)
    assert source.asked == list(range(20, 70))
    assert shards(tmp_path / "killed") == shards(tmp_path / "whole")
    whole, killed = Manifest.load(tmp_path / "whole"), Manifest.load(tmp_path / "killed")
    assert whole is not None and killed is not None and replace(whole, date=killed.date) == killed
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {*shards(tmp_path / "whole"), "manifest.json"}


def test_a_worker_that_dies_is_reported_with_the_image_it_was_reading(tmp_path: Path) -> None:
    source = Listed(small_pictures(70), deadly=41)
    with pytest.raises(UserError, match=r"died .*while it was reading listed/41.png.*finished shards are kept"):
        pack_small(source, tmp_path / "out", 1)
    pack_small(replace(source, deadly=-1), tmp_path / "out", 1)
    assert damaged(tmp_path / "out") == [] and len(members(tmp_path / "out")) == 2 * 70


def test_a_stream_is_packed_in_order_with_any_number_of_workers(tmp_path: Path) -> None:
    stream = Streamed(small_pictures(50))
    for workers in (0, 2):
        pack(stream, tmp_path / str(workers), images_per_shard=20, workers=workers)
    assert shards(tmp_path / "0") == shards(tmp_path / "2")
    manifest = Manifest.load(tmp_path / "2")
    assert manifest is not None and manifest.classes == ("ant", "bee") and manifest.images == 49
    assert [(skipped.name, skipped.reason) for skipped in manifest.skipped] == [
        ("streamed/25", "the shard is damaged here")
    ]
    found = members(tmp_path / "2")
    assert [int(found[f"{n:09d}.cls"]) for n in range(50) if n != 25] == [n % 2 for n in range(50) if n != 25]
    assert json.loads(found["000000049.json"])["path"] == "streamed/49"


def test_a_stream_that_breaks_off_is_named_and_no_process_is_blamed(tmp_path: Path) -> None:
    class BreaksOff(Streamed):
        def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
            yield from super().records(piece)
            raise ConnectionResetError("the server hung up")

    with pytest.raises(UserError, match="Reading streamed failed: the server hung up"):
        pack(BreaksOff(small_pictures(8)), tmp_path / "out", workers=1, max_skipped=1)


def test_an_interrupted_stream_skips_what_is_finished_without_decoding_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Streamed(small_pictures(50))
    pack(stream, tmp_path / "whole", images_per_shard=20, workers=0)
    with pytest.raises(KeyboardInterrupt):
        pack(replace(stream, stop_after=45), tmp_path / "out", images_per_shard=20, workers=0)
    assert "2 shards are finished" in capsys.readouterr().out
    assert [path for path in (tmp_path / "out").iterdir() if path.name.endswith(".tmp")] == []
    # What was packed already is no image any more: it would be missed if it were looked at again.
    gone = replace(stream, images=[b"gone"] * 40 + stream.images[40:])
    pack(gone, tmp_path / "out", images_per_shard=20, workers=0)
    assert shards(tmp_path / "out") == shards(tmp_path / "whole")


def test_going_on_with_other_settings_or_another_source_is_refused(tmp_path: Path) -> None:
    source = Listed([*small_pictures(10), b"broken"])
    with pytest.raises(UserError, match="max_skipped"):
        pack(source, tmp_path / "out", size=16, images_per_shard=5, workers=0, max_skipped=0)

    def refusal(source: Listed, **settings: Any) -> str:
        with pytest.raises(UserError, match="was begun with") as refused:
            options = {"size": 16, "images_per_shard": 5, **settings}
            pack(source, tmp_path / "out", workers=0, **options)
        return str(refused.value)

    assert "size=16 (now 24)" in refusal(source, size=24)
    assert "quality=90 (now 80), images_per_shard=5 (now 6)" in refusal(source, quality=80, images_per_shard=6)
    assert "source=listed (now other)" in refusal(replace(source, name="other"))
    assert "images=11 (now 10)" in refusal(replace(source, images=source.images[:10]))
    pack(source, tmp_path / "out", size=16, images_per_shard=5, workers=0, max_skipped=1)


def test_a_folder_that_is_complete_or_foreign_is_left_alone(tmp_path: Path) -> None:
    source = Listed(small_pictures(3))
    pack(source, tmp_path / "done", workers=0)
    before = shards(tmp_path / "done")
    again = packing.pack(source, tmp_path / "done", workers=0)
    assert again.summary.startswith(f"{tmp_path / 'done'} is complete: 3 images of listed in 1 shard.")
    assert again.manifest == Manifest.load(tmp_path / "done") and again.files == []
    for other, difference in (
        (replace(source, name="other"), "source=listed"),
        (Listed(source.images[:2]), "images=3"),
    ):
        with pytest.raises(UserError, match=f"{difference} .*Use it as it is, or name another folder"):
            pack(other, tmp_path / "done", workers=0)
    with pytest.raises(UserError, match=r"size=256 \(now 32\)"):
        pack(source, tmp_path / "done", size=32, workers=0)
    assert shards(tmp_path / "done") == before
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(UserError, match=r"holds manifest.json and was not begun by `flexpredict pack`"):
        pack(source, tmp_path / "foreign", workers=0)
    with pytest.raises(UserError, match="is a file"):
        pack(source, tmp_path / "foreign/manifest.json", workers=0)
    with pytest.raises(UserError, match="cannot be written: Not a directory"):
        pack(source, tmp_path / "foreign/manifest.json/below", workers=0)
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["manifest.json"]


def test_verify_finds_each_way_in_which_shards_go_bad(tmp_path: Path) -> None:
    pack(Listed(small_pictures(8)), tmp_path, images_per_shard=2, workers=0)
    assert damaged(tmp_path) == []
    flipped = bytearray((tmp_path / "shard-000000.tar").read_bytes())
    flipped[600] ^= 1
    (tmp_path / "shard-000000.tar").write_bytes(flipped)
    (tmp_path / "shard-000001.tar").write_bytes(b"short")
    (tmp_path / "shard-000002.tar").unlink()
    (tmp_path / "stranger.tar").write_bytes(b"")
    problems = [problem.removeprefix(f"{tmp_path}/") for problem in damaged(tmp_path)]
    for problem, words in zip(
        problems,
        (
            "shard-000000.tar: its content",
            "shard-000001.tar: 5 bytes",
            "shard-000002.tar: No such",
            "stranger.tar: not",
        ),
        strict=True,
    ):
        assert problem.startswith(words)


def test_shards_say_nothing_of_when_and_by_whom_they_were_made(tmp_path: Path) -> None:
    pack(Listed(small_pictures(2)), tmp_path, workers=0)
    with tarfile.open(tmp_path / "shard-000000.tar") as shard:
        for member in shard:
            assert (member.mtime, member.uid, member.gid, member.uname, member.mode) == (0, 0, 0, "", 0o644)
    assert (tmp_path / "shard-000000.tar").stat().st_size % 10240 == 0


def test_a_strip_too_long_for_jpeg_is_left_out_with_its_size(tmp_path: Path) -> None:
    strip = np.zeros((2, 70_000, 3), np.uint8)
    manifest = pack(
        Listed([strip, *small_pictures(1)]),  # type: ignore[list-item]
        tmp_path,
        workers=0,
        max_skipped=0.5,
    )
    assert "2 x 70000" in manifest.skipped[0].reason


def test_it_ends_with_a_sentence_about_what_was_made(tmp_path: Path) -> None:
    images = torch.zeros(30, 16, 16, 3, dtype=torch.uint8)
    out = tmp_path / "[red]"
    packed = packing.pack(ArraySource("black", images), out, images_per_shard=10, workers=0)
    console = Console(file=io.StringIO(), width=200)
    show(packed, console)
    said = console.file.getvalue()
    assert said.startswith(f"Packed 30 images into 3 shards in {out} (") and "kB).\n" in said
    assert said.endswith(f"Written: {out / 'manifest.json'}\n")
    assert packed.to_dict()["images"] == 30 and json.loads(json.dumps(packed.to_dict())) == json.loads(
        (out / "manifest.json").read_text()
    ) | {"folder": str(out)}


def test_verify_packs_nothing_and_names_what_is_damaged(tmp_path: Path) -> None:
    pack(Listed(small_pictures(4)), tmp_path, images_per_shard=2, workers=0)
    assert "All 2 shards" in packing.pack(None, tmp_path, verify=True).summary
    (tmp_path / "shard-000001.tar").write_bytes(b"short")
    with pytest.raises(UserError, match=r"1 shards in .* are not as they were written: .*shard-000001.tar: 5 bytes"):
        packing.pack(None, tmp_path, verify=True)
    with pytest.raises(UserError, match="not a finished set of packed shards"):
        packing.pack(None, tmp_path / "nothing", verify=True)
    with pytest.raises(UserError, match="Name the images"):
        packing.pack(None, tmp_path / "new")


@pytest.mark.parametrize("wrong", [{"size": 0}, {"quality": 101}, {"images_per_shard": 0}, {"max_skipped": 1.5}])
def test_senseless_settings_are_refused_by_name(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        pack("scenes:2", tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()
