"""Names that callers still use."""

from flexpredict.encoders.image_encoder import ImageEncoder as FrozenEncoder
from flexpredict.encoders.image_encoder import Tokens as Layer
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.settings.extraction import Pooling

__all__ = ["FrozenEncoder", "Layer", "Pooling", "ViTEncoder", "open_encoder"]
