"""Any image encoder, ours or others', behind one interface: images in, features out."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.images import Images, as_batch
from flexpredict.errors import UserError, in_a_line
from flexpredict.settings.extraction import Pooling


class Tokens(NamedTuple):
    """Features after one block."""

    patches: Tensor  # B N D, row by row over the grid
    class_token: Tensor | None  # B D; None if the encoder has none


class ImageEncoder(nn.Module, ABC):
    """An encoder of images. `encoder(images)` gives the features of their patches, B N D.

    Images are a tensor or an array (one image or a batch, channels first or last), a PIL image, or a list of these.
    uint8 pixels are normalized as the encoder was trained with; floats are taken as normalized. Tensors and arrays
    are encoded at the size they have, PIL images are cropped and resized to `image_size`. One image is a batch of
    one. `flexpredict.load` gives an encoder in evaluation mode whose weights need no gradients; fine-tune it after
    `encoder.requires_grad_()`.

    Args:
        name: the name it was opened by.
        what: a description in words.
        dim: features of the last layer.
        depth: number of layers.
        patch_size: pixels of a patch, height and width.
        image_size: height and width it was trained at; any multiple of the patch size will do.
        pooling: its default way to pool an image into one vector.
        mean, std: of the pixels it was trained with, as fractions of 255.
    """

    def __init__(
        self,
        name: str,
        what: str,
        dim: int,
        depth: int,
        patch_size: tuple[int, int],
        image_size: tuple[int, int],
        pooling: Pooling,
        mean: tuple[float, ...] = MEAN,
        std: tuple[float, ...] = STD,
    ) -> None:
        super().__init__()
        self.name, self.what = name, what
        self.dim, self.depth = dim, depth
        self.patch_size, self.image_size = patch_size, image_size
        self.pooling = pooling
        self.unfinished = False  # whether its run had not reached its last step; `what` names the step
        self.pretrained_on: tuple[str, ...] = ()  # data of its run, by name; empty if unknown
        self.details: tuple[str, ...] = ()  # what its files contain and what was left out, one line each
        self.mean, self.std = tuple(mean), tuple(std)
        self._mean: Tensor
        self._std: Tensor
        self.register_buffer("_mean", torch.tensor(mean).view(3, 1, 1) * 255.0, persistent=False)
        self.register_buffer("_std", torch.tensor(std).view(3, 1, 1) * 255.0, persistent=False)

    if TYPE_CHECKING:

        def __call__(self, images: Images) -> Tensor: ...

    def forward(self, images: Images) -> Tensor:
        """Features of the patches in the last layer, B N D."""
        return self.layers(images)[0]

    def layers(self, images: Images, count: int = 1) -> list[Tensor]:
        """Features of the patches in the last `count` layers, in order, final norm applied: a list of B N D."""
        return [tokens.patches for tokens in self.tokens(images, count)]

    def tokens(self, images: Images, count: int = 1) -> list[Tokens]:
        """The last `count` layers as in `layers`, each with its class token if the encoder has one."""
        with self._prepared(images, count) as (pixels, given):
            return [_first(layer, given) for layer in self._tokens(pixels, count)]

    def pooled(self, images: Images, count: int = 1, pooling: Pooling | None = None) -> Tensor:
        """One vector per image, B (count·D): the last `count` layers, each pooled, then concatenated."""
        with self._prepared(images, count) as (pixels, given):
            return self._pooled(pixels, count, pooling)[:given]

    def pooled_and_layers(
        self, images: Images, count: int = 1, pooling: Pooling | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The results of `pooled` and `layers`, in one pass if the encoder allows it."""
        with self._prepared(images, count) as (pixels, given):
            layers = self._tokens(pixels, count)
            pooled = self._pooled(pixels, count, pooling, layers)
            return pooled[:given], [layer.patches[:given] for layer in layers]

    def timm(self) -> nn.Module:
        """The underlying timm model with these weights; it takes normalized images."""
        raise UserError(f"{self.what} is not a timm model.")

    @abstractmethod
    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        """The last `count` layers of normalized images, B 3 H W, in order, the final norm applied to each."""

    def _pooled(
        self, pixels: Tensor, count: int, pooling: Pooling | None, layers: list[Tokens] | None = None
    ) -> Tensor:
        """layers: the result of `_tokens` for these pixels, if already computed."""
        layers = self._tokens(pixels, count) if layers is None else layers
        return torch.cat([pool(layer, pooling or self.pooling, self.what) for layer in layers], dim=1)

    def pooling_in_words(self, pooling: Pooling | None) -> str:
        """The pooling that `pooled` applies; a model's own may be neither the mean nor the class token."""
        return pooling or self.pooling

    def pools_layers_alike(self, pooling: Pooling | None) -> bool:
        """Whether `pooled` gives the same vector of the last layer for one layer as for several."""
        return True

    def check_layers(self, count: int) -> None:
        """Refuse more layers than there are."""
        if not 1 <= count <= self.depth:
            raise UserError(
                f"layers={count} is out of range for {self.what}, which has {self.depth} layers. "
                f"Use 1 to {self.depth}."
            )

    def check_size(self, image_size: tuple[int, int]) -> None:
        """Refuse images whose sides are not multiples of the patch size."""
        near = [max(1, round(side / patch)) * patch for side, patch in zip(image_size, self.patch_size, strict=True)]
        if tuple(near) != image_size:
            raise UserError(
                f"Images of {image_size[0]}x{image_size[1]} cannot be cut into the {self.patch_size[0]}x"
                f"{self.patch_size[1]} patches of {self.what}. Use a multiple, such as image_size={near[0]}x"
                f"{near[1]}."
            )

    def fingerprint(self) -> str:
        """Equal for two encoders that give the same features: same weights, architecture and normalization."""
        pixels = f"{self._mean.flatten().tolist()} {self._std.flatten().tolist()}"
        digest = hashlib.blake2b(f"{self.architecture()} {self.patch_size} {pixels}".encode(), digest_size=16)
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def architecture(self) -> str:
        """Facts for the fingerprint that weights alone do not show, such as the activation."""
        return type(self).__name__

    @contextmanager
    def _prepared(self, images: Images, count: int) -> Iterator[tuple[Tensor, int]]:
        """Normalized pixels, B 3 H W, and the number of images. For zero images, the pixels are a blank image."""
        self.check_layers(count)
        batch = as_batch(images, self.image_size)
        self.check_size((batch.shape[2], batch.shape[3]))
        weights = next(self.parameters(), self._mean)  # not every encoder has weights
        pixels = (batch if len(batch) else batch.new_zeros(1, *batch.shape[1:])).to(weights.device)
        if pixels.dtype == torch.uint8:
            pixels = pixels.float().sub_(self._mean).div_(self._std)
        with self._errors_explained(pixels):
            yield pixels.to(weights.dtype), len(batch)

    def _errors_explained(self, pixels: Tensor) -> AbstractContextManager[None]:
        """Wraps every pass, so that a subclass can explain errors of its model."""
        return nullcontext()


def pool(layer: Tokens, pooling: Pooling, what: str) -> Tensor:
    """One vector per image, B D: the mean of its patches, or its class token. what: the encoder, for messages."""
    if pooling == "mean":
        return layer.patches.float().mean(dim=1)
    if pooling != "class":
        raise UserError(f"pooling={pooling} is not known. Use mean or class.")
    if layer.class_token is None:
        raise UserError(f"pooling=class needs a class token, and {what} has none. Use pooling=mean.")
    return layer.class_token.float()


def _first(layer: Tokens, count: int) -> Tokens:
    return Tokens(layer.patches[:count], None if layer.class_token is None else layer.class_token[:count])


class ForeignEncoder(ImageEncoder):
    """A model of another library, which may be built for images of one size only."""

    @contextmanager
    def _errors_explained(self, pixels: Tensor) -> Iterator[None]:
        """Explains errors from inside the model that come from an image size it cannot take."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError, ValueError) as error:
            given = (pixels.shape[-2], pixels.shape[-1])
            if given == self.image_size:
                raise
            raise UserError(
                f"{self.what} was trained at {self.image_size[0]}x{self.image_size[1]} and cannot take images of "
                f"{given[0]}x{given[1]} ({in_a_line(error) or 'an assertion failed'}). Leave image_size out."
            ) from error
