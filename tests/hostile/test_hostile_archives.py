"""Whatever shards and tables hold, what is whole in them is read, and all else is reported with its reason."""

import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import Encoded, UnreadableImage, read_size, upright
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.opening import is_stream, open_images, open_source
from flexpredict.data.sources.shards import ShardStream
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError
from flexpredict.settings.augmentation import PRESETS
from hostile.corpus import Hostile, write_parquet, write_shards

_SECONDS = 300  # for one test, which takes about one; so many more are a hang, however busy the machine is
_IMAGE_SIZE = (16, 16)


@dataclass(frozen=True)
class Corpus:
    folder: Path
    suffix: str
    expected: list[Hostile]

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob(f"*{self.suffix}"))

    def expected_of(self, file: str) -> list[Hostile]:
        return [hostile for hostile in self.expected if re.match(re.escape(file) + "(/|, rows? |$)", hostile.path)]

    def expected_in_order(self) -> list[Hostile]:
        return [hostile for file in self.files for hostile in self.expected_of(file)]


@dataclass(frozen=True)
class Found:
    """An image that was read, or what is said of one that could not be."""

    name: str
    reason: str  # empty if it was read
    content: Encoded | None = None


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Corpus]:
    folder = tmp_path_factory.mktemp("hostile archives")
    shards, tables = folder / "shards", folder / "tables"
    return {
        "shards": Corpus(shards, ".tar", write_shards(shards)),
        "tables": Corpus(tables, ".parquet", write_parquet(tables)),
    }


@pytest.fixture(params=["shards", "tables"])
def corpus(corpora: dict[str, Corpus], request: pytest.FixtureRequest) -> Corpus:
    return corpora[request.param]


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"this goes on for more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_file_by_itself_gives_what_is_whole_in_it_and_reports_the_rest(corpus: Corpus) -> None:
    wrong = {}
    for file in corpus.files:
        expected = corpus.expected_of(file)
        for prefix, find in (("", _found_anywhere), ("stream:", _found_in_order)):
            try:
                found = find(f"{prefix}{corpus.folder / file}")
            except UserError as error:
                reasons = [hostile.reason for hostile in expected]
                if any(hostile.readable for hostile in expected) or not _explains(str(error), file, reasons):
                    wrong[prefix + file] = [f"refused: {error}"]
            except Exception as error:
                wrong[prefix + file] = [f"raised {error!r}"]
            else:
                if not prefix and not any(hostile.readable for hostile in expected):
                    wrong[file] = ["should be refused, as nothing in it can be read"]
                elif differences := _differences(found, expected, corpus.folder):
                    wrong[prefix + file] = differences
    assert not wrong


def _explains(text: str, file: str, reasons: list[str]) -> bool:
    return file in text and (not reasons or any(re.search(reason, text, re.IGNORECASE) for reason in reasons))


@pytest.mark.parametrize("prefix", ["", "stream:"])
@pytest.mark.parametrize("pattern", ["", "/*{suffix}"])
def test_all_files_together_give_what_each_gives_alone(corpus: Corpus, prefix: str, pattern: str) -> None:
    find = _found_in_order if prefix else _found_anywhere
    found = find(f"{prefix}{corpus.folder}{pattern.format(suffix=corpus.suffix)}")
    assert not _differences(found, corpus.expected_in_order(), corpus.folder)


@pytest.mark.parametrize("prefix", ["", "stream:"])
def test_shards_and_tables_joined_give_what_each_gives_alone(corpora: dict[str, Corpus], prefix: str) -> None:
    shards, tables = corpora.values()
    find = _found_in_order if prefix else _found_anywhere
    found = find([str(shards.folder), f"{prefix}{tables.folder}"])
    for corpus in (shards, tables):
        own = [image for image in found if image.name.startswith(str(corpus.folder))]
        assert not _differences(own, corpus.expected_in_order(), corpus.folder)


def test_any_place_and_in_order_give_the_same_images(corpus: Corpus) -> None:
    anywhere, in_order = _found_anywhere(str(corpus.folder)), _found_in_order(f"stream:{corpus.folder}")
    read = [[(image.name, image.content) for image in found if not image.reason] for found in (anywhere, in_order)]
    assert read[0] == read[1]
    assert Counter(_report(anywhere)) == Counter(_report(in_order))


def test_classes_are_numbers_that_have_a_name_or_none(corpus: Corpus) -> None:
    for file in corpus.files:
        try:
            source, stream = open_source(f"{corpus.folder / file}"), open_images(f"stream:{corpus.folder / file}")
        except UserError:
            continue
        assert is_stream(stream)
        labels = [-1] * len(source) if source.labels is None else source.labels.tolist()
        assert len(labels) == len(source)
        assert set(labels) <= set(range(-1, min(len(source.classes or ()), 1_000_000))), file
        streamed = [record.label for record in _records(stream) if isinstance(record, Record)]
        assert all(label is None or 0 <= label < 1_000_000 for label in streamed), file
        # A row without image has a number in a source, and none in a stream.
        assert Counter(label for label in labels if label >= 0) >= Counter(n for n in streamed if n is not None), file


def test_only_whole_small_numbers_are_labels(corpora: dict[str, Corpus]) -> None:
    folder = {name: corpus.folder for name, corpus in corpora.items()}
    for file, labels in {
        folder["shards"] / "labels that are none.tar": [-1] * 8 + [4],
        folder["tables"] / "labels that are none.parquet": [0, -1, -1, -1, 3],
        folder["tables"] / "labels without a name.parquet": [0, 1, -1, -1],
        folder["tables"] / "labels beyond 63 bits.parquet": [0, -1],
    }.items():
        source, stream = open_source(str(file)), open_images(f"stream:{file}")
        assert source.labels is not None and is_stream(stream)
        assert source.labels.tolist() == labels
        streamed = [record.label for record in _records(stream) if isinstance(record, Record)]
        assert streamed == [None if label < 0 else label for label in labels]


def test_compressed_shards_are_read_up_to_the_damage_which_is_reported_last(corpora: dict[str, Corpus]) -> None:
    folder = corpora["shards"].folder
    expected = [hostile for hostile in corpora["shards"].expected if hostile.path.startswith("compressed/")]
    stream = open_images(f"{folder}/compressed")
    assert isinstance(stream, ShardStream) and stream.pieces == len(expected)
    wrong = {}
    for hostile in expected:
        *found, last = _found_in_order(str(folder / hostile.path))
        if last.name != str(folder / hostile.path) or not re.search(hostile.reason, last.reason):
            wrong[hostile.path] = last
        assert [image.name for image in found if not image.reason] == [
            str(folder / hostile.path / f"{number}.bmp") for number in range(len(found))
        ]
    assert not wrong


def test_names_of_members_are_never_taken_for_places(corpora: dict[str, Corpus]) -> None:
    corpus = corpora["shards"]
    shard, root = corpus.folder / "names that lead outside.tar", corpus.folder.parent
    outside = [hostile.path.partition(".tar/")[2] for hostile in corpus.expected_of(shard.name)]
    assert any(Path(name).is_absolute() for name in outside) and any(name.startswith("..") for name in outside)
    before = sorted(root.rglob("*"))
    for prefix, find in (("", _found_anywhere), ("stream:", _found_in_order)):
        found = find(f"{prefix}{shard}")
        assert all(isinstance(image.content, bytes) for image in found) and len(found) == len(outside)
    assert sorted(root.rglob("*")) == before
    assert not any(Path(name).exists() for name in outside if Path(name).is_absolute())


def test_training_on_all_of_them_goes_on_and_reports_each_broken_thing(corpus: Corpus) -> None:
    source = open_source(str(corpus.folder))
    steps = 2 * len(source) // 16  # two epochs
    skipped = _skipped(source, steps)
    reported = {problem.name for problem in source.problems} | skipped
    assert reported == _unreadable(corpus)


def test_training_on_a_stream_of_them_goes_on_and_reports_each_broken_thing(corpus: Corpus) -> None:
    stream = open_images(f"stream:{corpus.folder}")
    assert is_stream(stream)
    steps = 2 * len(corpus.expected) // 16
    assert _skipped(stream, steps) == _unreadable(corpus)


def _skipped(images: ImageSource | ImageStream, steps: int) -> set[str]:
    """The names of what was skipped while batches were made."""
    names = set()
    how = {"seed": 0, "batch_size": 16, "first_step": 0, "last_step": steps}
    for batch in training_batches(images, PRESETS["stop"], [_IMAGE_SIZE], **how):
        assert batch.images.shape == (16, 3, *_IMAGE_SIZE)
        names |= {unreadable.name for unreadable in batch.skipped}
    return names


def _unreadable(corpus: Corpus) -> set[str]:
    return {f"{corpus.folder}/{hostile.path}" for hostile in corpus.expected_in_order() if not hostile.readable}


def _found_anywhere(uri: str | list[str]) -> list[Found]:
    source = open_source(uri)
    indices = torch.arange(len(source))
    images, failures = source.read(indices, draw_crops(PRESETS["none"], indices), _IMAGE_SIZE)
    assert images.shape == (len(source), 3, *_IMAGE_SIZE)
    found = [Found(problem.name, problem.reason) for problem in source.problems]
    for index in range(len(source)):
        name = source.describe(index)
        if index in failures:
            assert failures[index].name == name
            found.append(Found(name, failures[index].reason))
        else:
            found.append(Found(name, "", source.encoded(index)))
    return found


def _found_in_order(uri: str | list[str]) -> list[Found]:
    stream = open_images(uri)
    assert is_stream(stream)
    found = []
    for record in _records(stream):
        try:
            if isinstance(record, UnreadableImage):
                raise record
            assert upright(record.encoded, record.name).size == read_size(record.encoded, record.name)[::-1]
            found.append(Found(record.name, "", record.encoded))
        except UnreadableImage as unreadable:
            found.append(Found(unreadable.name, unreadable.reason))
    return found


def _records(stream: ImageStream) -> Iterator[Record | UnreadableImage]:
    for piece in range(stream.pieces):
        yield from stream.records(piece)


def _report(found: list[Found]) -> list[tuple[str, str]]:
    return [(image.name, image.reason) for image in found if image.reason]


def _differences(found: list[Found], expected: list[Hostile], folder: Path) -> list[str]:
    """Between what was found and what should have been: names, how often, readable or not, and why."""
    names = Counter(image.name for image in found)
    expected_names = Counter(f"{folder}/{hostile.path}" for hostile in expected)
    differences = [f"{name} is missing" for name in (expected_names - names).elements()]
    differences += [f"{name} should not be there" for name in (names - expected_names).elements()]
    fates = {f"{folder}/{hostile.path}": hostile for hostile in expected}
    for image in found:
        hostile = fates.get(image.name)
        if hostile is not None and not _fits(image.reason, hostile):
            differences.append(f"{image.name}: {image.reason or 'was read'}, not {hostile.reason or 'readable'}")
    return differences


def _fits(reason: str, hostile: Hostile) -> bool:
    return hostile.readable == (not reason) and bool(re.search(hostile.reason, reason, re.IGNORECASE))
