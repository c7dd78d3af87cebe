"""Streams: every image once a pass, whoever reads it, and on from where it stopped."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import number_in, number_of, numbers_in, picture, png, write_shards

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import Batch, starting_places, training_batches
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import ImageStream, is_stream, open_images, open_source
from flexpredict.data.sources.streams import Place, Taken, consume, first_images
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import PRESETS

START = Place(0, 0)


@dataclass
class Pieces(ImageStream):
    """Pictures by number; what is negative cannot be decoded, what is None was found broken."""

    numbers: list[list[int | None]]
    name: str = "pieces"
    classes: tuple[str, ...] | None = None
    length: int | None = None
    opened: Counter[int] = field(default_factory=Counter)

    @property
    def pieces(self) -> int:
        return len(self.numbers)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        self.opened[piece] += 1
        for number in self.numbers[piece]:
            if number is None:
                yield UnreadableImage(f"piece {piece}", "damaged")
            else:
                yield Record(f"picture {number}", png(number) if number >= 0 else b"broken")


def pieces(*sizes: int) -> Pieces:
    numbers = iter(range(sum(sizes)))
    return Pieces([list(islice(numbers, size)) for size in sizes])


def taken(stream: ImageStream, consumer: int, consumers: int, count: int, start: Place = START) -> list[Taken]:
    records = (entry for entry in consume(stream, 5, consumer, consumers, start) if isinstance(entry, Taken))
    return list(islice(records, count))


@pytest.mark.parametrize(
    ("sizes", "consumers"), [((7, 7, 7, 7), 1), ((5, 1, 9, 3, 8, 2), 4), ((30,), 3), ((9, 4), 3)]
)
def test_each_pass_shows_every_image_once_to_one_consumer(sizes: tuple[int, ...], consumers: int) -> None:
    stream = pieces(*sizes)
    shown: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for consumer in range(consumers):
        for entry in taken(stream, consumer, consumers, 3 * sum(sizes)):
            if entry.place.epoch in shown:
                shown[entry.place.epoch].append(number_in(entry.record))
    for epoch, numbers in shown.items():
        assert sorted(numbers) == list(range(sum(sizes))), f"epoch {epoch}"
    assert shown[0] != sorted(shown[0]) and shown[0] != shown[1]


def test_a_consumer_reads_its_own_pieces_only_where_there_are_enough() -> None:
    stream = pieces(4, 4, 4, 4)
    taken(stream, 0, 2, 8)
    assert sum(stream.opened.values()) == 2


def test_a_consumer_goes_on_from_a_place_as_if_it_had_not_stopped() -> None:
    stream = pieces(9, 4, 7)
    whole = taken(stream, 1, 2, 40)
    for at in (1, 5, 13, 25):
        again = taken(stream, 1, 2, 40 - at, whole[at - 1].place)
        assert again == whole[at:]


def test_a_pass_that_holds_nothing_ends_the_stream() -> None:
    """But only after several: in each, other pieces are dealt out."""
    assert {str(entry) for entry in consume(Pieces([[None], []]), 0, 0, 1, START)} == {"piece 0: damaged"}


def batches(stream: ImageStream, **changes: Any) -> list[Batch]:
    options = {"seed": 1, "batch_size": 6, "first_step": 0, "last_step": 8} | changes
    return list(training_batches(stream, PRESETS["none"], [(24, 24)], **options))


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and a.place == b.place for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_batches_go_on_after_a_restart_without_the_change_of_a_bit(workers: int, stop: int) -> None:
    stream = pieces(13, 8, 5, 9)
    whole = batches(stream, workers=workers)
    places = dict(batch.place for batch in whole[:stop] if batch.place)
    consumers = set(range(max(1, workers)))
    places = {consumer: places.get(consumer, START) for consumer in consumers}
    assert same(batches(stream, workers=workers, first_step=stop, places=places), whole[stop:])


def test_with_other_workers_a_new_pass_begins() -> None:
    stream = pieces(13, 8, 5, 9)
    places = {0: Place(2, 7), 1: Place(3, 1)}
    assert batches(stream, workers=0, places=places)[0].place == (0, Place(4, 6))


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_and_workers_share_a_pass(workers: int) -> None:
    stream = pieces(*[6] * 8)
    seen = []
    for rank in range(2):
        for batch in batches(stream, rank=rank, world_size=2, workers=workers, last_step=8):
            seen += [number_of(image) for image in batch.images]
    assert sorted(seen) == list(range(48))


def test_ranks_with_uneven_pieces_never_run_dry() -> None:
    stream = pieces(3, 40)
    for rank in range(2):
        assert len(batches(stream, rank=rank, world_size=2, last_step=30)) == 30


def test_broken_records_are_reported_and_do_not_shift_the_others() -> None:
    sound = Pieces([list(range(12)), list(range(12, 24))])
    hurt = Pieces([[-1 if n == 4 else n for n in range(12)], [*range(12, 20), None, *range(20, 24)]])
    expected, got = batches(sound, last_step=4), batches(hurt, last_step=4)
    skipped = [str(failure) for batch in got for failure in batch.skipped]
    assert sorted(skipped) == ["picture -1: not an image that PIL can identify", "piece 1: damaged"] or (
        len(skipped) == 2 and skipped[0] != skipped[1]
    )
    differing = sum(
        int((a.images != b.images).flatten(1).any(dim=1).sum()) for a, b in zip(expected, got, strict=True)
    )
    assert differing == 1
    for batch in got:
        assert all(number_of(image) in range(24) for image in batch.images)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_of_nothing_but_broken_records_stops_with_the_reason(workers: int) -> None:
    with pytest.raises(UserError, match=r"Of 6 images in a row from pieces none could be read.*picture -\d"):
        batches(Pieces([[-1, -2, -3, -4, -5, -6, -7]]), workers=workers)
    with pytest.raises(UserError, match="gave no images to reader 0, for example piece 0: damaged"):
        batches(Pieces([[None]]), workers=workers)


def test_sizes_are_those_of_the_first_images() -> None:
    assert first_images(Pieces([[None, -1, 3], [4, 5]]), 3).sizes() == [(24, 24)] * 2
    assert first_images(Pieces([[None]])).sizes() == []


def test_memory_is_bounded_by_bytes_as_well_as_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from flexpredict.data.sources import streams

    read = 0

    class Heavy(Pieces):
        def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
            nonlocal read
            for record in super().records(piece):
                read += 1
                yield record

    monkeypatch.setattr(streams, "_SHUFFLED_BYTES", 3 * len(png(0)))
    next(consume(Heavy([list(range(50))]), 0, 0, 1, START))
    assert read == 3


def test_several_sources_are_one(tmp_path: Path) -> None:
    folder, shards = tmp_path / "folder", write_shards(tmp_path / "shards", 5, 3)
    for number in range(100, 104):
        (folder / "bee").mkdir(parents=True, exist_ok=True)
        picture(number).save(folder / f"bee/{number}.png")
    (folder / "1").mkdir()
    picture(104).save(folder / "1/104.png")
    source = open_source([str(shards), str(folder), "scenes:3,size=24"])
    assert len(source) == 13
    assert numbers_in(source)[:10] == [0, 1, 2, 3, 4, 104, 100, 101, 102, 103]
    assert source.describe(5) == f"{folder}/1/104.png" and source.describe(12).endswith("image 2")
    assert source.classes is not None and source.labels is not None
    assert [source.classes[label] for label in source.labels[:10]] == [*"01201", "1", *["bee"] * 4]
    assert open_source([str(shards), str(folder / "bee")]).labels is None


def test_a_stream_and_a_source_are_one_stream(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", 5, 3)
    for number in range(100, 104):
        (tmp_path / "folder").mkdir(exist_ok=True)
        picture(number).save(tmp_path / f"folder/{number}.png")
    joined = open_images([f"stream:{shards}", str(tmp_path / "folder")])
    assert is_stream(joined) and joined.pieces == 3 and joined.length is None
    found = [number_in(entry.record) for entry in taken(joined, 0, 1, 9)]
    assert sorted(found) == [0, 1, 2, 3, 4, 100, 101, 102, 103]


def test_an_empty_piece_does_not_end_the_stream_of_its_reader() -> None:
    stream = Pieces([[*range(4)], [*range(4, 8)], [], [*range(8, 12)]])
    for consumer in range(4):
        assert len(taken(stream, consumer, 4, 40)) == 40


def test_places_are_known_of_every_consumer_from_the_first_step_on() -> None:
    assert starting_places({}, 3) == dict.fromkeys(range(3), START)
    assert starting_places({0: Place(2, 5), 1: Place(1, 9)}, 2) == {0: Place(2, 5), 1: Place(1, 9)}
    assert starting_places({0: Place(2, 5), 1: Place(1, 9)}, 1) == {0: Place(3, 0)}
