"""Types of arguments that many functions share.

A type checker sees all that may be given: a name, or the thing itself. At run time the types are plain, so that a
command line can be made of them without importing torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from flexpredict.data.arguments import ImagesLike, StreamLike
from flexpredict.settings.extraction import Pooling, SizeLike
from flexpredict.settings.recipe import Precision

__all__ = ["EncoderLike", "ImagesLike", "Pooling", "Precision", "SizeLike", "StreamLike", "Which"]

Which: TypeAlias = Literal["target", "context"]

if TYPE_CHECKING:
    from flexpredict.encoders.image_encoder import ImageEncoder

    EncoderLike: TypeAlias = str | Path | ImageEncoder
else:
    EncoderLike = str | Path
