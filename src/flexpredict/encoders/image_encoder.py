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
    class_token: Tensor | None  # B D, where the encoder has one


class ImageEncoder(nn.Module, ABC):
    """An encoder of images. `encoder(images)` gives the features of their patches, B N D.

    Images are a tensor or an array (one image or a batch, channels first or last), a PIL image, or a list of these.
    uint8 pixels are normalized as the encoder was trained with; floats are taken as normalized. Tensors and arrays
    are encoded at the size they have, PIL images are cropped and resized to `image_size`. One image is a batch of
    one. `flexpredict.load` gives an encoder in evaluation mode whose weights need no gradients; fine-tune it after
    `encoder.requires_grad_()`.

    Args:
        name: as it was asked for.
        what: what it is, in words.
        dim: features of the last layer.
        depth: number of layers.
        patch_size: pixels of a patch, height and width.
        image_size: height and width it was trained at; any multiple of the patch size will do.
        pooling: its own way to make one vector of an image.
        mean, std: of the pixels it was trained with, in units of 255.
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
        self.unfinished = False  # whether its run had not reached its last step; `what` says which step it was
        self.pretrained_on: tuple[str, ...] = ()  # names of the images of its run, where they are known
        self.details: tuple[str, ...] = ()  # what was found in its files and what was left out, a line each
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
        """The same, with the class token of each layer where the encoder has one."""
        with self._prepared(images, count) as (pixels, given):
            return [_first(layer, given) for layer in self._tokens(pixels, count)]

    def pooled(self, images: Images, count: int = 1, pooling: Pooling | None = None) -> Tensor:
        """One vector an image: the last `count` layers, each pooled, side by side. B (count·D)."""
        with self._prepared(images, count) as (pixels, given):
            return self._pooled(pixels, count, pooling)[:given]

    def pooled_and_layers(
        self, images: Images, count: int = 1, pooling: Pooling | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """What `pooled` and `layers` give, in one pass where the encoder allows it."""
        with self._prepared(images, count) as (pixels, given):
            layers = self._tokens(pixels, count)
            pooled = self._pooled(pixels, count, pooling, layers)
            return pooled[:given], [layer.patches[:given] for layer in layers]

    def timm(self) -> nn.Module:
        """The timm model inside, with these weights; it takes normalized images."""
        raise UserError(f"{self.what} is not a timm model.")

    @abstractmethod
    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        """The last `count` layers of normalized images, B 3 H W, in order, the final norm applied to each."""

    def _pooled(
        self, pixels: Tensor, count: int, pooling: Pooling | None, layers: list[Tokens] | None = None
    ) -> Tensor:
        """layers: what `_tokens` gave for these pixels, where that is known already."""
        layers = self._tokens(pixels, count) if layers is None else layers
        return torch.cat([pool(layer, pooling or self.pooling, self.what) for layer in layers], dim=1)

    def pooling_in_words(self, pooling: Pooling | None) -> str:
        """What `pooled` does when asked for this; a model's own way may be neither a mean nor its class token."""
        return pooling or self.pooling

    def pools_layers_alike(self, pooling: Pooling | None) -> bool:
        """Whether `pooled` of the last layer alone gives what it gives of that layer beside others."""
        return True

    def check_layers(self, count: int) -> None:
        """Refuse more layers than there are."""
        if not 1 <= count <= self.depth:
            raise UserError(
                f"Features of the last {count} layers were asked of {self.what}, which has {self.depth}. "
                f"Ask for 1 to {self.depth}."
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
        """For the fingerprint: what weights alone do not tell, such as the activation."""
        return type(self).__name__

    @contextmanager
    def _prepared(self, images: Images, count: int) -> Iterator[tuple[Tensor, int]]:
        """Normalized pixels, B 3 H W, and the number of images. Of no images, the pixels of a blank one."""
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
        """Around every pass, for encoders whose errors need words."""
        return nullcontext()


def pool(layer: Tokens, pooling: Pooling, what: str) -> Tensor:
    """One vector an image, B D: the mean of its patches, or its class token. what: the encoder, for messages."""
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
        """Such a model fails over shapes somewhere inside."""
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
