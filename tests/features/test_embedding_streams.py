"""Streams are embedded as sources are, and no more than a part of either is in memory."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from mean_color import MeanColor
from pictures import write_shards
from small_embedding import HOW, PART, PROBE, FakeStream, embedded, folder

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import open_images
from flexpredict.features import embedding, extraction
from flexpredict.features import parts as parts_module
from flexpredict.features.encoding import FeatureShape
from flexpredict.features.parts import Part, images_in_part

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.mark.parametrize("count", [37, 2 * PART])
def test_a_stream_gives_what_the_source_of_the_same_images_gives(count: int, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", count, per_shard=10)
    embedded(str(shards), tmp_path / "source.parquet")
    expected = pq.read_table(tmp_path / "source.parquet")
    for workers in (0, 2):
        stream, encoder = open_images(f"stream:{shards}"), MeanColor()
        out = tmp_path / f"stream-{workers}.parquet"
        encoder.fails_after = 20 + PROBE
        with pytest.raises(KeyboardInterrupt):
            embedded(stream, out, encoder, replace(HOW, workers=workers))
        encoder.fails_after, encoder.seen = 10**9, 0
        embedded(stream, out, encoder, replace(HOW, workers=workers))
        assert encoder.seen == count - PART + PROBE
        found = pq.read_table(out)
        for column in ("image", "index", "label"):  # only a source knows all labels, and so the names of classes
            assert found[column].to_pylist() == expected[column].to_pylist()
        np.testing.assert_allclose(found["feature"].to_pylist(), expected["feature"].to_pylist(), rtol=1e-5)


def test_a_stream_that_grew_since_it_was_interrupted_loses_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.arange(30, dtype=np.uint8)[:, None, None, None] * np.ones((32, 32, 3), np.uint8)
    records: list[Record | UnreadableImage] = [Record(str(number), image) for number, image in enumerate(images)]
    with monkeypatch.context() as patched:
        patched.setattr(embedding, "_join", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            embedded(FakeStream(records[:20]), tmp_path / "f.npy")
    embedded(FakeStream(records), tmp_path / "f.npy")
    np.testing.assert_allclose(np.load(tmp_path / "f.npy")[:, 0], np.arange(30), atol=1e-4)


def test_no_more_than_one_part_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Part] = weakref.WeakSet()
    most = 0
    make = extraction.encode_part

    def counted(*given: Any, **options: Any) -> Part:
        nonlocal most
        most = max(most, len(alive) + 1)
        part = make(*given, **options)
        alive.add(part)
        return part

    monkeypatch.setattr(extraction, "encode_part", counted)
    source = folder(tmp_path)
    embedded(source, tmp_path / "source.npy")
    embedded(FakeStream([Record(str(i), source.encoded(i)) for i in range(40)]), tmp_path / "stream.npy")
    assert most == 1 and not alive


def test_a_part_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", 2048)
    assert images_in_part(FeatureShape(768).bytes_per_image) == 2048
    half, whole = FeatureShape(768, (14, 14), 768, "float16"), FeatureShape(1280, (32, 32), 1280, "float32")
    for shape in (half, whole, FeatureShape(9, (512, 512), 2**10)):
        number = 2 if shape.patch_type == "float16" else 4
        size = 4 * shape.dim + number * shape.patches * shape.patch_dim
        images = images_in_part(shape.bytes_per_image)
        assert images == 1 or size * images <= 2**27 < size * (images + 64)
