"""Types of arguments that many functions share.

A type checker sees all that may be given: a name, or the thing itself. At run time the types are plain, so that a
command line can be made of them without importing torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from flexpredict.settings.extraction import Pooling, SizeLike
from flexpredict.settings.recipe import Precision

__all__ = ["EncoderLike", "ImagesLike", "Pooling", "Precision", "SizeLike", "StreamLike", "Which"]

Which: TypeAlias = Literal["target", "context"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flexpredict.data.sources.image_source import ImageSource
    from flexpredict.data.sources.streams import ImageStream
    from flexpredict.encoders.frozen import FrozenEncoder

    EncoderLike: TypeAlias = str | Path | FrozenEncoder
    ImagesLike: TypeAlias = str | Path | Sequence[str] | ImageSource
    StreamLike: TypeAlias = ImagesLike | ImageStream
else:
    EncoderLike = str | Path
    ImagesLike = StreamLike = str | list[str]
