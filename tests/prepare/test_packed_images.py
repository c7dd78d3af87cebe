"""Packing: what comes out is what went in, once, in order, by any number of workers."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import torch
import webdataset
from packed_shards import Listed, Streamed, members, pack, shards, small_pictures
from pictures import encoded as content
from pictures import smooth_picture as picture
from PIL import Image, ImageOps
from rich.console import Console

from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.manifest import Manifest
from flexpredict.data.sources.opening import open_images
from flexpredict.prepare import pack as packing
from flexpredict.showing import show


def folder_of(root: Path, **files: bytes) -> str:
    for name, data in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(root)


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


def test_shards_say_nothing_of_when_and_by_whom_they_were_made(tmp_path: Path) -> None:
    pack(Listed(small_pictures(2)), tmp_path, workers=0)
    with tarfile.open(tmp_path / "shard-000000.tar") as shard:
        for member in shard:
            assert (member.mtime, member.uid, member.gid, member.uname, member.mode) == (0, 0, 0, "", 0o644)
    assert (tmp_path / "shard-000000.tar").stat().st_size % 10240 == 0


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
