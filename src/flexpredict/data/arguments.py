"""Types of arguments that stand for images.

A type checker sees all that may be given: a name, or opened images. At run time the types are plain, so that a
command line can be made of them without importing torch.
"""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flexpredict.data.sources.image_source import ImageSource
    from flexpredict.data.sources.streams import ImageStream

    ImagesLike: TypeAlias = str | Path | Sequence[str | Path] | ImageSource
    StreamLike: TypeAlias = ImagesLike | ImageStream
else:
    ImagesLike = StreamLike = str | list[str]
