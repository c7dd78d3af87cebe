"""Memory of a step on one device: weights, what the optimizer keeps, and what forward keeps for backward.

As torch uses it with fused attention. Bytes of tensors only: libraries and the allocator's slack come on top
(on a GPU about a gigabyte).
"""

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from flexpredict.costs.passes import PREDICTOR, BlockSize, Pass
from flexpredict.methods.method import Method
from flexpredict.settings.recipe import SettledRecipe
from flexpredict.training.optimizer import parameter_groups

_FLOAT = 4  # bytes
_MOST_IMAGES = 1 << 20
# Copies of the matrices of one shape that Muon has at once while it makes them orthogonal.
_MUON_COPIES = 5


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: int  # of all networks
    optimizer: int  # its running means
    gradients: int  # of everything that is trained, and their copies where ranks add them up
    activations: int  # kept from the forward pass for the backward pass
    peak: int  # the most there is at one time


@dataclass(frozen=True)
class StepMemory:
    """The memory of a step as a function of the number of images."""

    model: Method  # may be without weights
    passes: Sequence[Pass]  # of the step with the longest contexts
    recipe: SettledRecipe  # says precision, optimizer, accumulation
    ranks: int = 1  # devices that share the work

    def of(self, images: int) -> Memory:
        """With this many images at a time."""
        weights = _bytes((*self.model.parameters(), *self.model.buffers()))
        gradients = _bytes(parameter for parameter in self.model.parameters() if parameter.requires_grad)
        buckets = gradients if self.ranks > 1 else 0  # in which DDP adds up gradients
        optimizer, update = self._optimizer()
        kept = {one.part: images * self._kept(one) for one in self.passes if one.trained}
        activations = sum(kept.values()) + self._low_precision_weights()
        # Before the first backward pass there are no gradients, unless the batch comes in parts.
        before = gradients if self.recipe.accumulate > 1 else 0
        first, last = self.passes[0], self.passes[-1]
        of_predictor = _bytes(self.model.predictor.parameters())
        moments = (
            before + images * self._working(first),
            before + activations + images * self._working(last) * last.read // last.tokens,
            max(before, of_predictor)
            + sum(size for part, size in kept.items() if part != PREDICTOR)
            + images * max(self._working(one) for one in self.passes),
            gradients + update,
        )
        pixels = images * self._pixels() * (_FLOAT + 1)  # as numbers, and as they were read
        peak = weights + optimizer + buckets + pixels + max(moments)
        return Memory(weights, optimizer, gradients + buckets, activations, peak)

    def largest_batch(self, available: float) -> int:
        """The most images at a time that fit into this many bytes; 0 if not even one does."""
        return bisect.bisect_right(range(1, _MOST_IMAGES), available, key=lambda images: self.of(images).peak)

    def _optimizer(self) -> tuple[int, int]:
        """What it keeps, and what it needs besides while it makes a step."""
        hidden, *others = parameter_groups(self.model)
        if self.recipe.optimizer.kind == "adamw":
            return 2 * _bytes([*hidden, *(tensor for group in others for tensor in group)]), 0
        shapes = Counter(matrix.shape for matrix in hidden)
        largest = max((count * math.prod(shape) * _FLOAT for shape, count in shapes.items()), default=0)
        adamw = 2 * _bytes(tensor for group in others for tensor in group)
        return _bytes(hidden) + adamw, _MUON_COPIES * largest

    def _kept(self, one: Pass) -> int:
        """For each image."""
        width = self._width
        blocks = sum(
            block.dim * one.tokens * _FLOAT
            if self._recomputed(one, read)
            else self._kept_by_block(block, one.tokens, read)
            for block, read in one.reads()
        )
        layers = sum(layer.rows * layer.inputs * width for layer in one.layers)
        # The last layer's norm has an input of its own; predictions and what was wanted are kept by the loss.
        predictions = max((layer.rows * (layer.inputs + 3 * layer.outputs) for layer in one.layers[1:2]), default=0)
        return one.sequences * blocks + layers + predictions * _FLOAT

    def _kept_by_block(self, block: BlockSize, tokens: int, read: int) -> int:
        """For one sequence: inputs of norms (float32), linear layers, attention and activation function."""
        width = self._width
        if read == tokens:
            numbers = block.inputs + 3 * block.attention + block.hidden
            return tokens * (2 * block.dim * _FLOAT + numbers * width + (block.heads + 4) * _FLOAT)
        everywhere = tokens * (block.dim * _FLOAT + (block.dim + 2 * block.attention) * width)
        numbers = block.inputs + block.attention + block.hidden
        return everywhere + read * (block.dim * _FLOAT + numbers * width)

    def _working(self, one: Pass) -> int:
        """For each image: what exists only while a block is computed."""
        block, tokens = one.blocks[0], one.tokens
        working = tokens * (2 * block.dim * _FLOAT + 2 * block.hidden * self._width)
        again = self._kept_by_block(block, tokens, tokens) if self._recomputed(one, tokens) else 0
        return one.sequences * (working + again)

    def _recomputed(self, one: Pass, read: int) -> bool:
        return self.recipe.checkpoint_activations and one.trained and read == one.tokens

    def _low_precision_weights(self) -> int:
        """Matrices in bfloat16, kept until their backward pass."""
        if self._width == _FLOAT:
            return 0
        hidden, others, _ = parameter_groups(self.model)
        return _bytes([*hidden, *others]) // 2

    def _pixels(self) -> int:
        """Of an image."""
        encoder = self.model.context_encoder
        return 3 * math.prod(encoder.grid) * math.prod(encoder.patch_size)

    @property
    def _width(self) -> int:
        """Bytes of a number in linear layers and attention."""
        return 2 if self.recipe.precision == "bf16-mixed" else _FLOAT


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
