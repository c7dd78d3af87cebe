"""The weights, gradients and optimizer state that each device holds: all of them, or a share (FSDP).

FSDP splits everything but buffers, the target encoder included. What a step needs is gathered temporarily from the
other devices of the machine: the weights of one block after another, and those outside these blocks (see
training/sharding.py) for the whole step.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from flexpredict.methods.method import Method
from flexpredict.settings.recipe import SettledRecipe
from flexpredict.training.sharding import blocks_gathered_alone

# Times the largest block: itself, and the block before or after, which torch sends or receives meanwhile.
_BLOCKS_AT_ONCE = 2


@dataclass(frozen=True)
class Sharing:
    """The split of a model between devices. shards: number of parts; 1 if each device has the whole."""

    model: Method
    shards: int = 1

    @classmethod
    def of(cls, model: Method, recipe: SettledRecipe, ranks: int) -> "Sharing":
        """FSDP splits between the devices of a machine; each machine has a copy."""
        return cls(model, ranks // recipe.num_nodes if recipe.strategy == "fsdp" else 1)

    def held(self, tensors: Iterable[Tensor]) -> int:
        """Bytes of parameters, or tensors of their shapes, on the device that has most: their rows are split."""
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
        """Bytes of gradients not yet split, at most: those outside blocks are copied and split at the end."""
        rest, block = self._whole(trained=True)
        return rest + max(rest, _BLOCKS_AT_ONCE * block)

    @property
    def gathered_for_log(self) -> int:
        """Bytes gathered for the log, which is measured with all weights at once."""
        _, block = self._whole(trained=False)
        return bytes_of(self.model.parameters()) + _BLOCKS_AT_ONCE * block if self.shards > 1 else 0

    def _whole(self, trained: bool) -> tuple[int, int]:
        """Bytes of the weights outside all blocks that are gathered alone, and of the largest such block."""
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
    """Bytes of whole tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
