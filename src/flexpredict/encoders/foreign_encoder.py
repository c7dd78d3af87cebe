"""What encoders that another library runs have in common."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError, in_a_line


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
