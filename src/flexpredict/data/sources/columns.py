"""Columns of images and of their classes, in parquet tables and in data sets of the `datasets` library alike."""

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from flexpredict.data.sources.image_source import MOST_CLASSES
from flexpredict.data.sources.listing import integers
from flexpredict.errors import UserError, did_you_mean

NO_IMAGE = "the row holds no image"

_IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "picture", "photo", "pixels")
_LABEL_NAMES = ("label", "labels", "class", "cls", "category", "fine_label", "target")


@dataclass(frozen=True)
class Columns:
    """Which columns hold the image and its class, and the names of the classes if the table states them."""

    image: str
    label: str | None = None
    classes: tuple[str, ...] | None = None

    @property
    def names(self) -> list[str]:
        return [self.image] if self.label is None else [self.image, self.label]

    def label_number(self, value: object) -> int | None:
        """The class of one row of a stream. It must be a whole number: names could be numbered only at the end."""
        count = len(self.classes or ()) or MOST_CLASSES
        return value if isinstance(value, int) and 0 <= value < count else None


def find_columns(name: str, schema: pa.Schema, image: str | None, label: str | None) -> Columns:
    """The columns that were asked for; else those that the schema declares; else by their names and types.

    name: of the table or data set, for messages.
    """
    features = _declared(schema)
    for column, option in ((image, "image"), (label, "label")):
        if column is not None and column not in schema.names:
            raise _error(name, schema, f"no column '{column}'.{did_you_mean(column, schema.names)}", option)
    if image is None:
        images = [column for column, feature in features.items() if feature.get("_type") == "Image"]
        images = images or [column for column in schema.names if holds_images(schema, column)]
        images = [column for column in images if column.lower() in _IMAGE_NAMES] or images
        if len(images) != 1:
            many = "several columns" if images else "no column"
            raise _error(name, schema, f"{many} that could hold images.", "image")
        image = images[0]
    elif not holds_images(schema, image) and not pa.types.is_string(schema.field(image).type):
        raise _error(name, schema, f"no images in its column '{image}'.", "image")
    if label is None:
        labels = [column for column, feature in features.items() if feature.get("_type") == "ClassLabel"]
        labels = labels or [column for column in schema.names if column.lower() in _LABEL_NAMES]
        label = next((column for column in _LABEL_NAMES if column in labels), labels[0] if labels else None)
    classes = features.get(label, {}).get("names") if label is not None else None
    return Columns(image, label, tuple(map(str, classes)) if classes and isinstance(classes, list) else None)


def holds_images(schema: pa.Schema, column: str) -> bool:
    """Whether a column is of bytes, or has the structure that `datasets` gives to images."""
    kind = schema.field(column).type
    kinds = [field.type for field in kind if field.name == "bytes"] if pa.types.is_struct(kind) else [kind]
    # Null: a column with only None, for example if all images are named by their paths.
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_null)
    return any(test(kind) for kind in kinds for test in tests)


def stored_image(value: Any) -> str | bytes | None:
    """The image in a row: its bytes, or else its path; None if the row holds no image."""
    return ((value.get("bytes") or value.get("path")) if isinstance(value, dict) else value) or None


def number_labels(
    values: Iterable[object], classes: tuple[str, ...] | None
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """The class of each row, as an index into the names of the classes, and these names; None if no row has a class.

    Text is numbered in alphabetical order. Whole numbers are taken as they are, unless they are too large to be
    classes. Anything else (nothing, fractions, lists) is no class: -1. classes: the names that the table states.
    """
    found: dict[int | str, int] = {}  # the distinct values, in the order in which they come
    places = (found.setdefault(value, len(found)) if isinstance(value, (int, str)) else -1 for value in values)
    rows = integers(array("q", places))
    if any(isinstance(value, str) for value in found):
        classes = tuple(sorted(set(map(str, found))))
        number_of = {name: number for number, name in enumerate(classes)}
        numbers = [number_of[str(value)] for value in found]
    else:
        limit = len(classes or ()) or MOST_CLASSES
        numbers = [number if 0 <= number < limit else -1 for number in map(int, found)]
    labels = torch.tensor([*numbers, -1])[rows]
    if not bool((labels >= 0).any()):
        return None, None
    return labels, classes or tuple(map(str, range(int(labels.max()) + 1)))


def _declared(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """The description of the columns by the `datasets` library."""
    try:
        described = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: described[name] for name in schema.names if isinstance(described.get(name), dict)}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _error(name: str, schema: pa.Schema, what: str, option: str) -> UserError:
    columns = ", ".join(schema.names)
    return UserError(f"{name} has {what} Its columns are {columns}; append ,{option}=COLUMN to choose one.")
