"""Data sets of the Hugging Face `datasets` library: from the hub, from a folder it saved, or streamed."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.encoded_images import EncodedImages
from flexpredict.data.sources.image_source import MOST_CLASSES
from flexpredict.data.sources.streams import ImageStream, Record
from flexpredict.errors import UserError, did_you_mean

SAVED = ("dataset_info.json", "state.json")
SAVED_SPLITS = "dataset_dict.json"


@dataclass(eq=False, kw_only=True)
class HubSource(EncodedImages):
    """A data set whose rows lie in memory-mapped files."""

    dataset: Any = field(repr=False)  # datasets.Dataset with the one column, not decoded
    column: str

    def __len__(self) -> int:
        return len(self.dataset)

    def describe(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def encoded(self, index: int) -> Encoded:
        try:
            return _encoded(self.dataset[index][self.column], self.describe(index))
        except (OSError, ValueError, UnicodeDecodeError) as error:
            raise UnreadableImage(self.describe(index), str(error)) from error

    def fingerprint(self) -> str:
        return str(self.dataset._fingerprint)


class HubStream(ImageStream):
    """A data set that is downloaded while it is read, and not kept."""

    def __init__(self, name: str, dataset: Any, image: str | None, label: str | None, length: int | None) -> None:
        self.name, self.length = name, length
        self._column, self._label, self.classes = _columns(name, dataset.features, image, label)
        kept = [self._column] if self._label is None else [self._column, self._label]
        self._dataset = _undecoded(dataset.select_columns(kept), self._column)

    @property
    def pieces(self) -> int:
        return int(self._dataset.num_shards)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        part = self._dataset.shard(num_shards=self.pieces, index=piece)
        for number, row in enumerate(part):
            name = f"{self.name}, part {piece}, row {number}"
            label = row[self._label] if self._label is not None else None
            try:
                encoded = _encoded(row[self._column], name)
                yield Record(name, encoded, label if isinstance(label, int) and label >= 0 else None)
            except UnreadableImage as failure:
                yield failure


def open_hub(uri: str, split: str | None, options: dict[str, str], stream: bool) -> HubSource | HubStream:
    """hf://NAME[:SPLIT]: what `datasets.load_dataset` makes of the name, its first (train) split by default."""
    datasets = _datasets(uri)
    name = uri.removeprefix("hf://")
    try:
        loaded = datasets.load_dataset(
            name, options.get("config"), split=split, revision=options.get("revision"), streaming=stream
        )
    except Exception as error:  # the library raises errors of a dozen kinds over a name it cannot find
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"The data set {uri}{f' (split {split})' if split else ''} could not be opened: {reason[:500]} Check the "
            "name, the split and the network; for a private one, log in with `hf auth login`."
        ) from error
    if split is None:
        split, loaded = _first_split(loaded)
    title = f"{uri}:{split}"
    if stream:
        known = (getattr(loaded.info, "splits", None) or {}).get(split)
        length = known.num_examples if known is not None and known.num_examples else None
        return HubStream(title, loaded, options.get("image"), options.get("label"), length)
    return _source(title, loaded, options)


def open_saved(folder: Path, split: str | None, options: dict[str, str]) -> HubSource:
    """A folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` made."""
    datasets = _datasets(str(folder))
    try:
        loaded = datasets.load_from_disk(os.fspath(folder))
    except Exception as error:
        raise UserError(
            f"{folder} looks like a saved data set but cannot be loaded: {' '.join(str(error).split())} Was it "
            "copied completely?"
        ) from error
    if isinstance(loaded, datasets.DatasetDict):
        if split is not None and split not in loaded:
            raise UserError(
                f"{folder} has no split '{split}'.{did_you_mean(split, loaded)} It has {', '.join(loaded)}."
            )
        split, loaded = (split, loaded[split]) if split is not None else _first_split(loaded)
        return _source(f"{folder}, split {split}", loaded, options)
    return _source(str(folder), loaded, options)


def _source(name: str, dataset: Any, options: dict[str, str]) -> HubSource:
    column, label, classes = _columns(name, dataset.features, options.get("image"), options.get("label"))
    labels = None
    if label is not None:
        values = dataset.data.column(label) if dataset._indices is None else None
        listed = values.to_pylist() if values is not None else dataset[label][:]
        # Several classes an image, or numbers that are no classes, are none.
        listed = [value if isinstance(value, (int, str)) else None for value in listed]
        if any(isinstance(value, str) for value in listed):
            classes = tuple(sorted({value for value in listed if value is not None}))
            number_of = {value: number for number, value in enumerate(classes)}
            listed = [None if value is None else number_of[value] for value in listed]
        labels = torch.tensor([-1 if value is None else int(value) for value in listed])
        labels = labels if bool((labels >= 0).any()) and int(labels.max()) < MOST_CLASSES else None
        if labels is not None:
            classes = classes or tuple(map(str, range(int(labels.max()) + 1)))
    if not len(dataset):
        raise UserError(f"There are no rows in {name}.")
    return HubSource(
        name=name,
        classes=classes if labels is not None else None,
        labels=labels,
        dataset=_undecoded(dataset.select_columns([column]), column),
        column=column,
    )


def _columns(
    name: str, features: Any, image: str | None, label: str | None
) -> tuple[str, str | None, tuple[str, ...] | None]:
    """The columns of the image and of its class, and the names of the classes."""
    datasets = _datasets(name)
    if features is None:
        raise UserError(f"{name} does not say which columns it has; it cannot be read as a stream of images.")
    for asked, option in ((image, "image"), (label, "label")):
        if asked is not None and asked not in features:
            raise UserError(
                f"{name} has no column '{asked}'.{did_you_mean(asked, features)} Its columns are "
                f"{', '.join(features)}; name one with ,{option}=COLUMN."
            )
    if image is None:
        images = [column for column, feature in features.items() if isinstance(feature, datasets.Image)]
        images = [column for column in images if column in ("image", "img")] or images
        if len(images) != 1:
            raise UserError(
                f"{name} has {'several columns' if images else 'no column'} of images. Its columns are "
                f"{', '.join(features)}; name one with ,image=COLUMN."
            )
        image = images[0]
    if label is None:
        labels = [column for column, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
        label = "label" if "label" in features else next(iter(labels), None)
    names = getattr(features[label], "names", None) if label is not None else None
    return image, label, tuple(names) if names else None


def _undecoded(dataset: Any, column: str) -> Any:
    return dataset.cast_column(column, _datasets(column).Image(decode=False))


def _encoded(value: Any, name: str) -> str | bytes:
    found = (value.get("bytes") or value.get("path")) if isinstance(value, dict) else value
    if not found:
        raise UnreadableImage(name, "the row holds no image")
    if isinstance(found, str) and "://" in found:  # in a zip file, or not on this machine
        from datasets.utils.file_utils import xopen

        try:
            with xopen(found, "rb") as file:
                return bytes(file.read())
        except Exception as error:  # of whatever kind the file system behind the name raises
            raise UnreadableImage(name, f"{found} cannot be read: {error}") from error
    return found  # type: ignore[no-any-return]


def _first_split(splits: Any) -> tuple[str, Any]:
    split = "train" if "train" in splits else next(iter(splits))
    return split, splits[split]


def _datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"Reading {name} needs the Hugging Face datasets library: pip install 'flexpredict[hf]'."
        ) from error
    if not os.isatty(2):
        datasets.disable_progress_bars()
    return datasets
