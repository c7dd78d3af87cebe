"""WebDataset shards: tar files of images, each with its class in a .cls member if there are classes."""

import bz2
import glob
import gzip
import lzma
import os
import re
import subprocess
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.folders import IMAGE_SUFFIXES, suffix
from flexpredict.data.sources.image_source import MOST_CLASSES, ByteRanges, Record, close_files
from flexpredict.data.sources.listing import Count, Listing, Names, NamesBuilder, cached_listing, columns
from flexpredict.data.sources.manifest import Manifest
from flexpredict.data.sources.streams import ImageStream
from flexpredict.data.sources.tar_members import Member, TarReader
from flexpredict.errors import UserError

_OPENERS: dict[str, Callable[[str, str], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_WORTH_KEEPING = 10_000
_LONGEST_LABEL = 64
_LARGEST_IMAGE = 2**30


@dataclass(eq=False, kw_only=True)
class ShardSource(ByteRanges):
    """Images in tar files on this machine, any of which can be read at any time."""

    names: Names = field(repr=False)

    def describe(self, index: int) -> str:
        return f"{self.files[int(self.file_of[index])]}/{self.names[index]}"


def open_shards(name: str, files: list[str], count: Count) -> ShardSource:
    """Index all images in the shards, by skipping from header to header."""
    close_files()
    listing = cached_listing("shards", map(os.path.abspath, files), lambda: _list(files, count), _WORTH_KEEPING)
    tensors, problems = listing.tensors, listing.problems
    if not len(tensors["starts"]):
        reason = f": {problems[0]}" if problems else ""
        raise UserError(
            f"There are no images in the {len(files)} shard(s) of {name}{reason}. Images are members whose names end "
            f"in {', '.join(sorted(IMAGE_SUFFIXES))}."
        )
    labels = tensors["labels"] if bool((tensors["labels"] >= 0).any()) else None
    return ShardSource(
        name=name,
        classes=None if labels is None else _classes(files, int(labels.max()) + 1),
        labels=labels,
        problems=problems,
        files=files,
        **{name: tensors[name] for name in ("file_of", "starts", "lengths")},
        names=Names(tensors["names"], tensors["ends"]),
    )


def matching_files(pattern: str) -> list[str]:
    """Files that match: braces first, where every name must exist, then * and ?."""
    found = []
    for name in expand_braces(os.path.expanduser(pattern)):
        matches = glob.glob(name) if glob.has_magic(name) else [name] if "{" in pattern else []
        if matches == [name] and not os.path.isfile(name):
            raise UserError(f"{name} is missing, but {pattern} names it. Complete the shards, or name fewer.")
        found += matches
    return found


def expand_braces(pattern: str) -> list[str]:
    """shards-{00..02}.tar -> shards-00.tar, shards-01.tar, shards-02.tar; {a,b} likewise."""
    parts = re.split(r"(\{[^{}]*\})", pattern)
    choices = []
    for part in parts:
        span = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", part)
        if span:
            first, last = span.groups()
            numbers = range(int(first), int(last) + 1)
            choices.append([str(number).zfill(len(first)) for number in numbers])
        elif part.startswith("{") and "," in part:
            choices.append(part[1:-1].split(","))
        else:
            choices.append([part])
    return ["".join(choice) for choice in product(*choices)]


def can_be_indexed(file: str) -> bool:
    """False for compressed shards and for the output of a program."""
    return not file.startswith("pipe:") and suffix(file) not in _OPENERS


@dataclass(eq=False)
class ShardStream(ImageStream):
    """Shards read from beginning to end: compressed, or written by a program (`pipe:COMMAND`)."""

    name: str
    files: list[str] = field(repr=False)
    classes: tuple[str, ...] | None = None
    length: int | None = None

    @property
    def pieces(self) -> int:
        return len(self.files)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        shard = self.files[piece]
        try:
            if shard.startswith("pipe:"):
                yield from self._piped(shard)
                return
            with cast(BinaryIO, _OPENERS.get(suffix(shard), open)(shard, "rb")) as file:
                yield from _records(shard, file)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            yield UnreadableImage(shard, f"cannot be read: {getattr(error, 'strerror', None) or error}")

    def _piped(self, shard: str) -> Iterator[Record | UnreadableImage]:
        with tempfile.TemporaryFile() as errors:
            command = shard.removeprefix("pipe:")
            # A shell, because such commands are pipelines; it is the user's own command line.
            with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=errors) as process:
                output = cast(BinaryIO, process.stdout)
                try:
                    yield from _records(shard, output)
                    # The archive may end before the output does, and a program that cannot write never ends.
                    rest = 0
                    while block := output.read(2**20):
                        rest += len(block) - block.count(0)
                    code = process.wait()
                    if rest:
                        reason = "writes more after the end of its archive; give each tar a pipe: of its own"
                        yield UnreadableImage(shard, reason)
                finally:
                    process.kill()
            if code:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 300))
                words = " ".join(errors.read().decode(errors="replace").split())
                yield UnreadableImage(shard, f"ended with exit code {code}{': ' + words if words else ''}")


def _list(files: list[str], count: Count) -> Listing:
    names, rows = NamesBuilder(), array("q")
    problems: list[UnreadableImage] = []
    for number, path in enumerate(files):
        try:
            with open(path, "rb") as file:
                for found in _images(path, TarReader(file, seekable=True), with_content=False):
                    if isinstance(found, UnreadableImage):
                        problems.append(found)
                        continue
                    member, _, label = found
                    names.append(member.name)
                    rows.extend((number, member.start, member.size, label))
                    if len(names) % 1000 == 0:
                        count(1000)
        except OSError as error:
            problems.append(UnreadableImage(path, f"cannot be read: {error.strerror}"))
    built = names.build()
    tensors = columns(rows, file_of=torch.int32, starts=torch.int64, lengths=torch.int64, labels=torch.int64)
    tensors |= {"names": built.blob, "ends": built.ends}
    return Listing(tensors, problems, {}, [os.path.abspath(path) for path in files])


def _images(
    shard: str, reader: TarReader, *, with_content: bool
) -> Iterator[tuple[Member, bytes, int] | UnreadableImage]:
    """Each image with its content, if asked for, and its class (-1 if it has none); and each damaged part.

    Members that follow each other and share a key are one sample: its images have the class of its .cls member.
    """
    key, label, damaged = b"", -1, 0
    sample: list[tuple[Member, bytes] | UnreadableImage] = []
    for member in chain(reader, (None,)):  # None: the end of the last sample
        member_key, ending = _key_and_ending(member.name) if member else (b"/", "")
        if member_key != key:
            for found in sample:
                yield found if isinstance(found, UnreadableImage) else (*found, label)
            key, label, sample = member_key, -1, []
        if ending == ".cls":
            label = _label(reader.content(_LONGEST_LABEL))
        elif member and ending in IMAGE_SUFFIXES:
            reason = _why_unusable(member)
            content = reader.content(_LARGEST_IMAGE) if with_content and not reason else b""
            if with_content and not reason and len(content) < member.size:
                reason = f"cut short: {len(content)} of {member.size} bytes are there"
            name = f"{shard}/{os.fsdecode(member.name)}" if reason else ""
            sample.append(UnreadableImage(name, reason) if reason else (member, content))
        if len(reader.damage) > damaged:
            sample += [UnreadableImage(shard, damage) for damage in reader.damage[damaged:]]
            damaged = len(reader.damage)
    yield from (found for found in sample if isinstance(found, UnreadableImage))


def _records(shard: str, file: BinaryIO) -> Iterator[Record | UnreadableImage]:
    for found in _images(shard, TarReader(file, seekable=False), with_content=True):
        if isinstance(found, UnreadableImage):
            yield found
        else:
            member, content, label = found
            yield Record(f"{shard}/{os.fsdecode(member.name)}", content, None if label < 0 else label)


def _key_and_ending(member: bytes) -> tuple[bytes, str]:
    """WebDataset's rule: the key of a sample is everything before the first dot of the file's name."""
    folder, slash, file = member.rpartition(b"/")
    stem, _, _ = file.partition(b".")
    # Hidden files, such as those that macOS adds, are ignored.
    return folder + slash + stem, "" if file.startswith(b".") else suffix(os.fsdecode(file))


def _why_unusable(member: Member) -> str | None:
    """Why a member that is called an image cannot be one."""
    if not member.is_file:
        return "a link or a device, not a file"
    return f"{member.size} bytes are too many for an image" if member.size > _LARGEST_IMAGE else None


def _label(text: bytes) -> int:
    text = text.strip()
    return int(text) if text.isdigit() and int(text) < MOST_CLASSES else -1


def _classes(files: list[str], count: int) -> tuple[str, ...]:
    """From the manifest beside the shards, else numbers."""
    manifest = Manifest.load(Path(files[0]).parent)
    if manifest is not None and manifest.classes is not None and len(manifest.classes) >= count:
        return tuple(manifest.classes)
    return tuple(map(str, range(count)))
