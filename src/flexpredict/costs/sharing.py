"""What each device holds of weights, gradients and the optimizer's state: all of it, or its share of it (FSDP).

With FSDP the target encoder is shared as everything else is; only buffers are not. What a step needs is gathered from
the other devices of the machine for a time: the weights of one block after another, and those that belong to no such
block (see training/sharding.py) as long as the step takes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from flexpredict.methods.method import Method
from flexpredict.settings.recipe import SettledRecipe
from flexpredict.training.sharding import blocks_gathered_alone

# Of the largest block: it itself, and what torch sends or receives meanwhile for the block before or after.
_BLOCKS_AT_ONCE = 2


@dataclass(frozen=True)
class Sharing:
    """Of a model between devices. shards: into which it is split; 1 if each device has the whole."""

    model: Method
    shards: int = 1

    @classmethod
    def of(cls, model: Method, recipe: SettledRecipe, ranks: int) -> "Sharing":
        """FSDP shares between the devices of a machine; machines have copies."""
        return cls(model, ranks // recipe.num_nodes if recipe.strategy == "fsdp" else 1)

    def held(self, tensors: Iterable[Tensor]) -> int:
        """Bytes of parameters, or of anything of their shapes, on the device that has most: rows are shared out."""
        return sum(
            bytes_of([tensor]) // len(tensor) * math.ceil(len(tensor) / self.shards)
            if self.shards > 1
            else bytes_of([tensor])
            for tensor in tensors
        )

    @property
    def gathered_weights(self) -> int:
        """Bytes of other devices' weights during a step, at most."""
        rest, block = self._whole(trained=False)
        return rest + _BLOCKS_AT_ONCE * block

    @property
    def gathered_gradients(self) -> int:
        """Bytes of gradients that are not shared out yet, at most: those of the rest are, and copied, at the end."""
        rest, block = self._whole(trained=True)
        return rest + max(rest, _BLOCKS_AT_ONCE * block)

    @property
    def gathered_for_log(self) -> int:
        """Bytes: what is written to the log is measured with all weights at once."""
        _, block = self._whole(trained=False)
        return bytes_of(self.model.parameters()) + _BLOCKS_AT_ONCE * block if self.shards > 1 else 0

    def _whole(self, trained: bool) -> tuple[int, int]:
        """Bytes of the weights that are in no block which is gathered alone, and of the largest such block."""
        if self.shards == 1:
            return 0, 0
        wanted = [one for one in self.model.parameters() if one.requires_grad or not trained]
        numbers = {id(one) for one in wanted}
        blocks = [
            bytes_of(one for one in block.parameters() if id(one) in numbers)
            for block in blocks_gathered_alone(self.model)
        ]
        return bytes_of(wanted) - sum(blocks), max(blocks, default=0)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Whole."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
