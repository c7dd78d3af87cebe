"""Streams are inspected as sources are, in one pass, and no further than was asked."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from inspected_sources import FakeStream, lines, look
from pictures import encoded as content
from pictures import smooth_picture as picture

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import open_images
from flexpredict.errors import UserError
from flexpredict.prepare.examination import PassingStream


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
