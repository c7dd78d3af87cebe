"""Images that cannot be packed are left out, named and counted; shards that went bad are found."""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from packed_shards import Listed, damaged, members, pack, shards, small_pictures
from pictures import encoded as content
from pictures import smooth_picture as picture

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.opening import open_images
from flexpredict.errors import UserError
from flexpredict.prepare import pack as packing


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


def test_a_strip_too_long_for_jpeg_is_left_out_with_its_size(tmp_path: Path) -> None:
    strip = np.zeros((2, 70_000, 3), np.uint8)
    manifest = pack(
        Listed([strip, *small_pictures(1)]),  # type: ignore[list-item]
        tmp_path,
        workers=0,
        max_skipped=0.5,
    )
    assert "2 x 70000" in manifest.skipped[0].reason


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
