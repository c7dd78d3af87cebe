"""Packing that is interrupted goes on where it was and ends the same; a foreign folder is left alone."""

import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_shards import Listed, Streamed, damaged, members, pack, shards, small_pictures

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.manifest import Manifest
from flexpredict.errors import UserError
from flexpredict.prepare import pack as packing


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
        with pytest.raises(UserError, match="was started with") as refused:
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
    with pytest.raises(UserError, match=r"holds manifest.json and was not made by `flexpredict pack`"):
        pack(source, tmp_path / "foreign", workers=0)
    with pytest.raises(UserError, match="is a file"):
        pack(source, tmp_path / "foreign/manifest.json", workers=0)
    with pytest.raises(UserError, match="cannot be written: Not a directory"):
        pack(source, tmp_path / "foreign/manifest.json/below", workers=0)
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["manifest.json"]
