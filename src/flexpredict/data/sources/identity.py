"""Tells whether a set of images is still the same, without reading any of them."""

from typing import Any

from flexpredict.data.sources.image_source import ImageSource, evenly_spaced
from flexpredict.data.sources.listing import digest
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream

_NAMES_COMPARED = 1000


def identity(images: ImageSource | ImageStream) -> dict[str, Any]:
    """The number of images, and a digest of the classes and of evenly spaced names; of a stream, what is known."""
    if is_stream(images):
        return {"images": images.length, "list_of_images": digest(images.classes or ())}
    names = (images.describe(index) for index in evenly_spaced(len(images), _NAMES_COMPARED))
    return {"images": len(images), "list_of_images": digest([*(images.classes or ()), "", *names])}
