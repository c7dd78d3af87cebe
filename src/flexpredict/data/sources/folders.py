"""A folder of image files: nested, linked, in any mix of formats, millions of them."""

import os
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import (
    Count,
    Listing,
    Names,
    NamesBuilder,
    cached_listing,
    digest,
    digest_of,
    integers,
    state_of,
)
from flexpredict.errors import UserError

_PHOTOS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".jp2")
IMAGE_SUFFIXES = frozenset((*_PHOTOS, ".ppm", ".pgm", ".pbm", ".pnm"))
# A listing of this many files takes a fifth of a second; only longer ones are cached.
_WORTH_KEEPING = 100_000


@dataclass(eq=False, kw_only=True)
class FolderSource(ImageSource):
    """Image files below a folder."""

    names: Names = field(repr=False)

    def __len__(self) -> int:
        return len(self.names)

    def describe(self, index: int) -> str:
        return f"{self.name}/{self.names[index]}"

    def encoded(self, index: int) -> Encoded:
        return self.describe(index)

    def fingerprint(self) -> str:
        """From names, sizes and times of all files: their content may be terabytes."""
        states = np.array([state_of(self.describe(index)) or [0, 0, 0] for index in range(len(self))])
        return digest([digest_of(self.names.blob.numpy()), digest_of(states)])


def open_folder(root: Path, count: Count) -> FolderSource:
    """All images below `root`. If they are all in folders directly below it, at least two, those are the classes."""
    listing = cached_listing("folder", [os.path.abspath(root)], lambda: _list(root, count), _WORTH_KEEPING)
    names = Names(listing.tensors["names"], listing.tensors["ends"])
    if not len(names):
        raise UserError(_no_images_message(root, listing))
    classes = listing.notes["classes"]
    return FolderSource(
        name=str(root),
        classes=tuple(classes) if classes else None,
        labels=listing.tensors["labels"] if classes else None,
        problems=listing.problems,
        names=names,
    )


def suffix(name: str) -> str:
    return "." + name.rpartition(".")[2].lower()


def _list(root: Path, count: Count) -> Listing:
    names, labels = NamesBuilder(), array("q")
    holders: list[str] = []
    others: Counter[str] = Counter()
    problems: list[UnreadableImage] = []
    watched: list[str] = []
    for place, files in _walk(root, problems, watched):
        images = [file for file in files if suffix(os.fsdecode(file)) in IMAGE_SUFFIXES]
        if len(images) < len(files):
            others.update(s for s in (suffix(os.fsdecode(file)) for file in files) if s not in IMAGE_SUFFIXES)
        for image in images:
            names.append(place + image)
        if images:
            labels.extend([len(holders)] * len(images))
            holders.append(os.fsdecode(place))
            count(len(images))
    built = names.build()
    are_classes = len(holders) > 1 and all(place.count("/") == 1 for place in holders)
    tensors = {"names": built.blob, "ends": built.ends}
    if are_classes:
        tensors["labels"] = integers(labels)
    notes = {
        "classes": [place.removesuffix("/") for place in holders] if are_classes else None,
        "others": others.most_common(3),
    }
    return Listing(tensors, problems, notes, watched)


def _walk(root: Path, problems: list[UnreadableImage], watched: list[str]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each folder (relative, with a slash at the end) and the files in it, always in the same order.

    Names are bytes, because they may not be UTF-8. Directory entries are not kept: five million fill a gigabyte.
    """
    top = os.fsencode(root) + b"/"
    waiting, seen = [b""], set()
    while waiting:
        place = waiting.pop()
        folders: list[bytes] = []
        files: list[bytes] = []
        try:
            status = os.stat(top + place)
            # A link may lead back up, or to a folder that was listed before: each folder is listed once.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(top + place) as entries:
                for entry in entries:
                    if entry.name.startswith(b"."):
                        continue
                    if _is_folder(entry):
                        folders.append(entry.name)
                    elif entry.is_symlink() and _is_broken_link(entry):
                        # It may lead to a disk that is not mounted. It is watched, so this listing is not cached.
                        name = os.fsdecode(top + place + entry.name)
                        problems.append(UnreadableImage(name, "a link that leads nowhere"))
                        watched.append(os.path.abspath(name))
                    else:
                        files.append(entry.name)
        except OSError as error:
            if not place:
                raise UserError(f"Cannot list {root}: {error.strerror}. Check its permissions.") from error
            problems.append(UnreadableImage(os.fsdecode(top + place), f"cannot be listed: {error.strerror}"))
            continue
        watched.append(os.path.abspath(os.fsdecode(top + place)))
        waiting += [place + folder + b"/" for folder in sorted(folders, reverse=True)]
        yield place, sorted(files)


def _is_broken_link(entry: "os.DirEntry[bytes]") -> bool:
    return suffix(os.fsdecode(entry.name)) not in IMAGE_SUFFIXES and not os.path.exists(entry.path)


def _is_folder(entry: "os.DirEntry[bytes]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself: an error is raised when it is read


def _no_images_message(root: Path, listing: Listing) -> str:
    found = ", ".join(f"{number} {ending}" for ending, number in listing.notes["others"])
    return (
        f"There are no images in {root}"
        + (f", but other files ({found}). " if found else " or below. ")
        + (f"{listing.problems[0].name} {listing.problems[0].reason}. " if listing.problems else "")
        + f"Images are files that end in {', '.join(sorted(IMAGE_SUFFIXES))}."
    )
