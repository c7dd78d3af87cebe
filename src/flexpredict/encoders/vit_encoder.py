"""A plain vision transformer, pre-trained here or elsewhere, as an image encoder."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from typing_extensions import Self

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.model.building import check_patches
from flexpredict.model.encoder import Encoder
from flexpredict.runs.encoder_file import EncoderSpec
from flexpredict.settings.extraction import Pooling


class ViTEncoder(ImageEncoder):
    """A vision transformer whose weights are known part by part.

    Args:
        encoder: with the weights in timm's layout.
        spec: how to build it, for exports.
        details: what its files contain, one line each.
        pooling: how to make one vector of an image (default: mean, unless the encoder was built for its class token).
    """

    def __init__(
        self,
        encoder: Encoder,
        name: str,
        what: str,
        *,
        spec: EncoderSpec | None = None,
        details: tuple[str, ...] = (),
        pooling: Pooling | None = None,
        mean: tuple[float, ...] = MEAN,
        std: tuple[float, ...] = STD,
    ) -> None:
        size = (encoder.grid[0] * encoder.patch_size[0], encoder.grid[1] * encoder.patch_size[1])
        own: Pooling = "class" if encoder.vit.global_pool == "token" else "mean"
        super().__init__(name, what, encoder.dim, encoder.depth, encoder.patch_size, size, pooling or own, mean, std)
        self.encoder, self.spec, self.details = encoder, spec, details

    @classmethod
    def of(
        cls, loaded: LoadedWeights, name: str, *, what: str | None = None, pooling: Pooling | None = None
    ) -> "ViTEncoder":
        """An encoder with these weights; `what` and `pooling` default to the facts stored with them."""
        trained = "" if loaded.trained is None else f" {loaded.trained}"
        encoder = cls(
            loaded.build(),
            name,
            what or f"{loaded.role} of {name}{trained}",
            spec=loaded.spec,
            details=loaded.in_words(),
            pooling=pooling or loaded.pooling,
            mean=loaded.mean,
            std=loaded.std,
        ).eval()
        encoder.unfinished = loaded.trained is not None and loaded.trained.is_unfinished
        encoder.pretrained_on = loaded.pretrained_on
        return encoder

    def timm(self) -> nn.Module:
        vit: nn.Module = self.encoder.vit
        return vit

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """As in torch, except that sine-cosine positions stay fixed."""
        super().requires_grad_(requires_grad)
        if self.encoder.positions == "sincos":
            self.encoder.vit.pos_embed.requires_grad_(False)
        return self

    def resized(self, image_size: tuple[int, int]) -> "ViTEncoder":
        """A copy with positions for images of another height and width."""
        height, width = self.patch_size
        if height == width:
            check_patches(image_size, height)
        else:
            self.check_size(image_size)
        copy = ViTEncoder(
            self.encoder.resized((image_size[0] // height, image_size[1] // width)),
            self.name,
            self.what,
            spec=None if self.spec is None else replace(self.spec, image_size=image_size),
            details=self.details,
            pooling=self.pooling,
            mean=self.mean,
            std=self.std,
        ).eval()
        copy.unfinished, copy.pretrained_on = self.unfinished, self.pretrained_on
        return copy

    def architecture(self) -> str:
        block: Any = self.encoder.vit.blocks[0]
        heads, eps = getattr(block.attn, "num_heads", ""), getattr(block.norm1, "eps", "")
        activation = type(getattr(block.mlp, "act", None)).__name__
        return f"{super().architecture()} {self.encoder.positions} {heads} {eps} {activation}"

    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        prefix = self.encoder.vit.num_prefix_tokens
        has_class_token = self.encoder.vit.cls_token is not None
        return [
            Tokens(tokens[:, prefix:], tokens[:, 0] if has_class_token else None)
            for tokens in self.encoder.last_tokens(pixels, count)
        ]
