"""Data sets of the Hugging Face `datasets` library: from the hub, from a folder it saved, or streamed."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexpredict.data.decoding import Encoded, UnreadableImage
from flexpredict.data.sources.columns import NO_IMAGE, find_columns, number_labels, stored_image
from flexpredict.data.sources.image_source import ImageSource, Record
from flexpredict.data.sources.streams import ImageStream
from flexpredict.errors import UserError, did_you_mean
from flexpredict.hub_connection import errors_in_words, hub_is_reachable


@dataclass(eq=False, kw_only=True)
class HubSource(ImageSource):
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
        except (OSError, ValueError) as error:
            raise UnreadableImage(self.describe(index), str(error)) from error

    def fingerprint(self) -> str:
        return str(self.dataset._fingerprint)


class HubStream(ImageStream):
    """A data set that is downloaded while it is read, and not kept."""

    def __init__(self, name: str, dataset: Any, options: dict[str, str], length: int | None) -> None:
        self.name, self.length = name, length
        if dataset.features is None:
            raise UserError(f"{name} does not declare its columns, so it cannot be read as a stream of images.")
        schema = dataset.features.arrow_schema
        self._columns = find_columns(name, schema, options.get("image"), options.get("label"))
        self.classes = self._columns.classes
        self._dataset = _undecoded(dataset.select_columns(self._columns.names), self._columns.image)

    @property
    def pieces(self) -> int:
        return int(self._dataset.num_shards)

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        for number, row in enumerate(self._dataset.shard(num_shards=self.pieces, index=piece)):
            name = f"{self.name}, part {piece}, row {number}"
            try:
                label = self._columns.label_number(row.get(self._columns.label))
                yield Record(name, _encoded(row[self._columns.image], name), label)
            except UnreadableImage as failure:
                yield failure


def open_hub(name: str, split: str | None, options: dict[str, str], stream: bool) -> HubSource | HubStream:
    """Open hf://NAME[:SPLIT] with `datasets.load_dataset`. Default split: train, else the first."""
    datasets = _datasets(f"hf://{name}")
    # The name may also be that of a local folder, which needs no network.
    reachable = os.path.exists(name) or hub_is_reachable()
    remedy = "Check the name, the split and the network; for a private one, log in with `hf auth login`."
    with errors_in_words(f"The data set hf://{name}{f':{split}' if split else ''}", remedy, offline=not reachable):
        loaded = datasets.load_dataset(
            name, options.get("config"), split=split, revision=options.get("revision"), streaming=stream
        )
    if split is None:
        split, loaded = _first_split(loaded)
    title = f"hf://{name}:{split}"
    if not stream:
        return _source(title, loaded, options)
    known = (getattr(loaded.info, "splits", None) or {}).get(split)
    return HubStream(title, loaded, options, getattr(known, "num_examples", None) or None)


def open_saved(folder: Path, split: str | None, options: dict[str, str]) -> HubSource:
    """Open a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` made."""
    datasets = _datasets(str(folder))
    with errors_in_words(f"The saved data set {folder}", "Was it copied completely?"):
        loaded = datasets.load_from_disk(os.fspath(folder))
    if not isinstance(loaded, datasets.DatasetDict):
        return _source(str(folder), loaded, options)
    if split is not None and split not in loaded:
        raise UserError(f"{folder} has no split '{split}'.{did_you_mean(split, loaded)} It has {', '.join(loaded)}.")
    split, loaded = (split, loaded[split]) if split is not None else _first_split(loaded)
    return _source(f"{folder}, split {split}", loaded, options)


def _source(name: str, dataset: Any, options: dict[str, str]) -> HubSource:
    if not len(dataset):
        raise UserError(f"There are no rows in {name}.")
    columns = find_columns(name, dataset.features.arrow_schema, options.get("image"), options.get("label"))
    labels, classes = None, None
    if columns.label is not None:
        column = dataset.select_columns([columns.label]).with_format("arrow")[:].column(columns.label)
        labels, classes = number_labels(
            (value for chunk in column.chunks for value in chunk.to_pylist()), columns.classes
        )
    images = _undecoded(dataset.select_columns([columns.image]), columns.image)
    return HubSource(name=name, classes=classes, labels=labels, dataset=images, column=columns.image)


def _undecoded(dataset: Any, column: str) -> Any:
    return dataset.cast_column(column, _datasets(column).Image(decode=False))


def _encoded(value: Any, name: str) -> str | bytes:
    found = stored_image(value)
    if found is None:
        raise UnreadableImage(name, NO_IMAGE)
    if isinstance(found, bytes) or "://" not in found:
        return found
    from datasets.utils.file_utils import xopen  # for files in a zip file or on other machines

    try:
        with xopen(found, "rb") as file:
            return bytes(file.read())
    except Exception as error:  # its type depends on the file system behind the name
        raise UnreadableImage(name, f"{found} cannot be read: {error}") from error


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
