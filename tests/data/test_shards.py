"""WebDataset shards, in any place or in order, whole or damaged."""

import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path

import pytest
import torch
import webdataset
from pictures import number_in, numbers_in, png, records_of, write_shards

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import is_stream, open_images, open_source
from flexpredict.data.sources.shards import ShardSource, ShardStream
from flexpredict.data.sources.tar_members import TarReader
from flexpredict.errors import UserError


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "shards", count=23, per_shard=10)


def tar_of(members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("name", ["", "/s-{000..002}.tar", "/s-*.tar", "/s-{000,001,002}.tar", "/s-00?.tar"])
def test_shards_are_read_by_pattern_or_as_a_folder(shards: Path, name: str) -> None:
    source = open_source(str(shards) + name)
    assert isinstance(source, ShardSource)
    assert numbers_in(source) == list(range(23))
    assert source.labels is not None and source.labels.tolist() == [number % 3 for number in range(23)]
    assert source.classes == ("0", "1", "2")
    assert source.describe(11) == f"{shards}/s-001.tar/00011.png"
    assert source.sizes(3) == [(24, 24)] * 3


def test_the_webdataset_library_reads_the_same(shards: Path) -> None:
    theirs = webdataset.WebDataset([str(path) for path in sorted(shards.iterdir())], shardshuffle=False)
    source = open_source(str(shards))
    for index, sample in enumerate(theirs):
        assert source.encoded(index) == sample["png"]


def test_a_pickled_source_reads_on_in_another_process(shards: Path) -> None:
    assert numbers_in(pickle.loads(pickle.dumps(open_source(str(shards))))) == list(range(23))


@pytest.mark.parametrize("way", ["stream:{}/s-{{000..002}}.tar", "pipe:cat {}/s-{{000..002}}.tar", "stream:{}"])
def test_shards_can_be_read_in_order_and_from_programs(shards: Path, way: str) -> None:
    stream = open_images(way.format(shards))
    assert is_stream(stream) and stream.pieces == 3 and stream.length is None
    records = list(records_of(stream))
    assert [number_in(record) for record in records] == list(range(23))
    assert [record.label for record in records] == [number % 3 for number in range(23)]


def test_compressed_shards_are_read_in_order(shards: Path) -> None:
    for path in sorted(shards.iterdir()):
        path.with_suffix(".tar.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    stream = open_images(str(shards))
    assert isinstance(stream, ShardStream)
    assert [number_in(record) for record in records_of(stream)] == list(range(23))


def test_a_program_that_fails_is_reported_with_its_words() -> None:
    stream = open_images("pipe:echo it broke >&2; exit 3")
    assert is_stream(stream)
    (empty, failure) = stream.records(0)
    assert isinstance(empty, UnreadableImage) and "empty" in empty.reason
    assert isinstance(failure, UnreadableImage) and failure.reason == "ended with exit code 3: it broke"


def test_a_program_is_ended_when_its_reader_stops(tmp_path: Path, shards: Path) -> None:
    stream = open_images(f"pipe:echo $$ > {tmp_path}/pid; cat {shards}/s-000.tar; exec sleep 1000")
    assert is_stream(stream)
    records = stream.records(0)
    assert isinstance(next(records), Record)
    records.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("seekable", [True, False])
def test_members_are_those_that_tarfile_finds(form: int, seekable: bool) -> None:
    names = ["a.png", "deep/" * 12 + "b.png", "folder/" + "c" * 90 + ".png", "umläut/ü.png"]
    names += ["long/" * 40 + "d.png"] if form != tarfile.USTAR_FORMAT else []
    archive = tar_of({name: bytes(range(256)) * number for number, name in enumerate(names)}, form)
    reader = TarReader(io.BytesIO(archive), seekable)
    found = [(member.name.decode(), reader.content(10**6)) for member in reader]
    with tarfile.open(fileobj=io.BytesIO(archive)) as theirs:
        expected = [(info.name, theirs.extractfile(info).read()) for info in theirs]  # type: ignore[union-attr]
    assert found == expected and not reader.damage


def test_members_that_are_not_looked_at_are_passed_over(shards: Path) -> None:
    archive = (shards / "s-000.tar").read_bytes()
    for seekable in (True, False):
        reader = TarReader(io.BytesIO(archive), seekable)
        assert len(list(reader)) == 20 and not reader.damage


def test_a_class_may_stand_before_or_after_its_image_and_several_images_may_share_it(tmp_path: Path) -> None:
    members = {"a.cls": b"2", "a.png": png(0), "b.png": png(1), "b.cls": b"1", "c.left.png": png(2)}
    members |= {"c.right.png": png(3), "c.cls": b"0", "d.png": png(4), "e.png": png(5), "e.cls": b"many"}
    (tmp_path / "s.tar").write_bytes(tar_of(members))
    expected = [2, 1, 0, 0, -1, -1]
    source, stream = open_source(f"{tmp_path}/s.tar"), open_images(f"stream:{tmp_path}/s.tar")
    assert source.labels is not None and source.labels.tolist() == expected
    assert is_stream(stream)
    assert [-1 if record.label is None else record.label for record in records_of(stream)] == expected


def test_shards_without_classes_have_no_labels(tmp_path: Path) -> None:
    source = open_source(str(write_shards(tmp_path, 4, 2, labeled=False)))
    assert source.labels is None and source.classes is None


def test_what_follows_a_damaged_header_is_found_and_the_damage_is_reported(tmp_path: Path) -> None:
    archive = bytearray(tar_of({f"{number}.png": png(number) for number in range(6)}))
    with tarfile.open(fileobj=io.BytesIO(archive)) as whole:
        offset = whole.getmembers()[2].offset
    archive[offset : offset + 100] = os.urandom(100)
    (tmp_path / "s.tar").write_bytes(archive)
    source = open_source(f"{tmp_path}/s.tar")
    assert numbers_in(source) == [0, 1, 3, 4, 5]
    (problem,) = source.problems
    assert problem.name == f"{tmp_path}/s.tar" and f"damaged at byte {offset}" in problem.reason
    stream = open_images(f"stream:{tmp_path}/s.tar")
    assert is_stream(stream)
    found = list(stream.records(0))
    assert [number_in(record) for record in found if isinstance(record, Record)] == [0, 1, 3, 4, 5]
    assert [str(problem) for problem in found if isinstance(problem, UnreadableImage)] == [str(problem)]


def test_a_shard_that_was_cut_short_gives_what_is_whole(tmp_path: Path, shards: Path) -> None:
    archive = (shards / "s-000.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(archive)) as whole:
        last = whole.getmember("00003.png")
    (tmp_path / "s.tar").write_bytes(archive[: last.offset_data + 100])
    source = open_source(f"{tmp_path}/s.tar")
    assert len(source) == 4
    assert "cut short" in source.problems[0].reason
    with pytest.raises(UnreadableImage, match="cut short: 100 of"):
        source.encoded(3)


@pytest.mark.parametrize("length", [1024, 1500, 2048, 2500, 3072, 3500])
def test_an_archive_without_its_end_was_cut_short(shards: Path, length: int) -> None:
    """At the end of a member, in a header, or in what a header says of the next: Python's tarfile notices none."""
    for seekable in (True, False):
        reader = TarReader(io.BytesIO((shards / "s-000.tar").read_bytes()[:length]), seekable)
        assert len(list(reader)) <= 2 and len(reader.damage) == 1 and "cut short" in reader.damage[0]


def test_absurd_sizes_and_links_harm_nobody(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        good = tarfile.TarInfo("../../outside.png")
        good.size = len(png(9))
        archive.addfile(good, io.BytesIO(png(9)))
        huge = tarfile.TarInfo("huge.png")
        huge.size = 2**62
        archive.fileobj.write(huge.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
    (tmp_path / "s.tar").write_bytes(file.getvalue())
    source = open_source(f"{tmp_path}/s.tar")
    assert numbers_in(source) == [9]
    reasons = " ".join(problem.reason for problem in source.problems)
    assert "a link or a device" in reasons and "too many for an image" in reasons


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("s-{000..003}.tar", r"s-003\.tar is missing"),
        ("t-*.tar", "No file matches"),
        ("text.tar", "no images in the 1 shard.*is no tar archive"),
        ("empty.tar", "no images in the 1 shard.*the file is empty"),
        ("words.tar", r"no images in the 1 shard.*names end in \.avif"),
        ("broken.tar", "2 were tried and none could be read.*not an image"),
    ],
)
def test_what_cannot_be_opened_says_why(shards: Path, name: str, said: str) -> None:
    (shards / "text.tar").write_bytes(b"text " * 1000)
    (shards / "empty.tar").write_bytes(b"")
    (shards / "words.tar").write_bytes(tar_of({"a.txt": b"words"}))
    (shards / "broken.tar").write_bytes(tar_of({"a.png": b"x", "b.png": b"y"}))
    with pytest.raises(UserError, match=said):
        open_images(f"{shards}/{name}")


def test_a_stream_is_refused_where_images_are_read_anywhere(shards: Path) -> None:
    with pytest.raises(UserError, match=r"is a stream.*flexpredict pack"):
        open_source(f"stream:{shards}")


def test_many_shards_do_not_use_up_the_file_descriptors(tmp_path: Path) -> None:
    source = open_source(str(write_shards(tmp_path / "many", 200, 1)))
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert numbers_in(source) == list(range(200))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 130


def test_indices_survive_as_tensors(shards: Path) -> None:
    source = open_source(str(shards))
    assert isinstance(source, ShardSource)
    for tensor in (source.starts, source.lengths, source.file_of, source.names.ends, source.names.blob):
        assert isinstance(tensor, torch.Tensor)


def test_a_program_that_writes_several_archives_is_told_from_one_and_does_not_hang(shards: Path) -> None:
    stream = open_images(f"pipe:cat {shards}/s-000.tar {shards}/s-001.tar")
    assert is_stream(stream)
    *records, problem = stream.records(0)
    assert [number_in(record) for record in records if isinstance(record, Record)] == list(range(10))
    assert isinstance(problem, UnreadableImage) and "give each tar a pipe: of its own" in problem.reason


def test_hidden_members_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(tar_of({"a.png": png(3), "._a.png": b"of a Mac", "b/.c.png": png(4)}))
    source = open_source(f"{tmp_path}/s.tar")
    assert numbers_in(source) == [3] and not source.problems


def test_shards_and_a_few_pictures_in_one_folder_must_be_told_apart(shards: Path) -> None:
    (shards / "preview.png").write_bytes(png(1))
    with pytest.raises(UserError, match=r"1 image.* and shards beside"):
        open_source(str(shards))
    assert len(open_source(f"{shards}/*.tar")) == 23


@pytest.mark.parametrize("option", ["split=test", "label=cls"])
def test_options_that_shards_do_not_have_are_refused(shards: Path, option: str) -> None:
    with pytest.raises(UserError, match=f"has no option '{option.partition('=')[0]}'"):
        open_source(f"{shards}/*.tar,{option}")
