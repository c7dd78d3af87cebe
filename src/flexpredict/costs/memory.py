"""Memory of a step on one device: weights, optimizer state, and what the forward pass keeps for the backward pass.

As torch uses it with fused attention and in the device's precision: on a CPU bfloat16 is for linear layers only
(training/precision.py). Bytes of tensors only: libraries and the allocator's slack come on top (on a GPU about a
gigabyte).
"""

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flexpredict.costs.passes import PREDICTOR, BlockSize, Pass
from flexpredict.costs.sharing import Sharing, bytes_of
from flexpredict.methods.method import Method
from flexpredict.settings.recipe import SettledRecipe
from flexpredict.training.optimizer import parameter_groups

_FLOAT = 4  # bytes
_MOST_IMAGES = 1 << 20
# Copies of the matrices of one shape that Muon has at once while it makes them orthogonal.
_MUON_COPIES = 5


@dataclass(frozen=True)
class Memory:
    """Bytes on one device; with FSDP its share of weights, of the optimizer's means and of gradients."""

    weights: int  # of all networks
    optimizer: int  # its running means
    gradients: int  # of everything that is trained, and their copies where ranks add them up
    gathered: int  # with FSDP, weights and gradients that are whole temporarily; else 0
    activations: int  # kept from the forward pass for the backward pass
    peak: int  # the maximum at one time


@dataclass(frozen=True)
class StepMemory:
    """The memory of a step as a function of the number of images."""

    model: Method  # may be without weights
    passes: Sequence[Pass]  # of the step with the longest contexts
    recipe: SettledRecipe  # says precision, optimizer, accumulation, strategy
    device: str  # its kind, as torch calls it
    ranks: int = 1  # devices that share the work

    def of(self, images: int) -> Memory:
        """Memory with this many images at a time."""
        model, sharing, in_parts = self.model, self.sharing, self.recipe.accumulate > 1
        weights = sharing.held(model.parameters()) + bytes_of(model.buffers())
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # FSDP splits gradients when the last part of a batch has been added to them.
        gradients = bytes_of(trained) if in_parts else sharing.held(trained)
        buckets = gradients if self.ranks > 1 and self.recipe.strategy != "fsdp" else 0  # in which DDP adds them up
        optimizer, update = self._optimizer()
        whole, whole_gradients = sharing.gathered_weights, sharing.gathered_gradients
        kept = {one.part: images * self._kept(one) for one in self.passes if one.trained}
        activations = sum(kept.values()) + self._low_precision_weights()
        # Before the first backward pass there are no gradients, unless the batch comes in parts.
        before = gradients if in_parts else 0
        first, last = self.passes[0], self.passes[-1]
        moments = (
            before + whole + images * self._working(first),
            before + whole + activations + images * self._working(last) * last.read // last.tokens,
            max(before, sharing.held(model.predictor.parameters()))
            + whole
            + whole_gradients
            + sum(size for part, size in kept.items() if part != PREDICTOR)
            + images * max(self._working(one) for one in self.passes),
            gradients + max(update, whole + whole_gradients),
            sharing.gathered_for_log,
        )
        pixels = images * self._pixels() * (_FLOAT + 1)  # as float32, and as bytes as they were read
        peak = weights + optimizer + buckets + pixels + max(moments)
        return Memory(weights, optimizer, gradients + buckets, whole + whole_gradients, activations, peak)

    def largest_batch(self, available: float) -> int:
        """The most images at a time that fit into this many bytes; 0 if not even one does."""
        return bisect.bisect_right(range(1, _MOST_IMAGES), available, key=lambda images: self.of(images).peak)

    def _optimizer(self) -> tuple[int, int]:
        """Bytes that the optimizer keeps, and that it needs in addition during its step."""
        hidden, *others = parameter_groups(self.model)
        held = self.sharing.held
        if self.recipe.optimizer.kind == "adamw":
            return 2 * held([*hidden, *(tensor for group in others for tensor in group)]), 0
        shapes = Counter(matrix.shape for matrix in hidden)
        largest = max((count * math.prod(shape) * _FLOAT for shape, count in shapes.items()), default=0)
        adamw = 2 * held(tensor for group in others for tensor in group)
        return held(hidden) + adamw, _MUON_COPIES * largest

    def _kept(self, one: Pass) -> int:
        """Bytes kept for each image."""
        blocks = sum(
            block.dim * one.tokens * _FLOAT
            if self._recomputed(one, read)
            else self._kept_by_block(block, one.tokens, read)
            for block, read in one.reads()
        )
        layers = sum(layer.rows * layer.inputs * self._factor for layer in one.layers)
        # The last layer's norm has an input of its own; predictions and targets are kept by the loss.
        predictions = max((layer.rows * (layer.inputs + 3 * layer.outputs) for layer in one.layers[1:2]), default=0)
        return one.sequences * blocks + layers + predictions * _FLOAT

    def _kept_by_block(self, block: BlockSize, tokens: int, read: int) -> int:
        """Bytes for one sequence: inputs of norms (float32), linear layers, attention and activation function."""
        factor, width = self._factor, self._width
        # Attention keeps its output, which is also the input of the next layer unless that is rounded.
        output = 0 if factor == width else block.attention * width
        inside = block.inputs * factor + block.hidden * width + output
        if read == tokens:
            return tokens * (
                2 * block.dim * _FLOAT + inside + 3 * block.attention * width + (block.heads + 4) * _FLOAT
            )
        everywhere = tokens * (block.dim * (_FLOAT + factor) + 2 * block.attention * width)
        return everywhere + read * (block.dim * _FLOAT + inside + block.attention * width)

    def _working(self, one: Pass) -> int:
        """Bytes for each image that exist only while a block is computed."""
        block, tokens = one.blocks[0], one.tokens
        working = tokens * (2 * block.dim * _FLOAT + 2 * block.hidden * self._width)
        again = self._kept_by_block(block, tokens, tokens) if self._recomputed(one, tokens) else 0
        return one.sequences * (working + again)

    def _recomputed(self, one: Pass, read: int) -> bool:
        return self.recipe.checkpoint_activations and one.trained and read == one.tokens

    def _low_precision_weights(self) -> int:
        """Matrices in bfloat16, kept until their backward pass."""
        if self._factor == _FLOAT:
            return 0
        hidden, others, _ = parameter_groups(self.model)
        return bytes_of([*hidden, *others]) // 2

    def _pixels(self) -> int:
        """Numbers in an image."""
        encoder = self.model.context_encoder
        return 3 * math.prod(encoder.grid) * math.prod(encoder.patch_size)

    @property
    def sharing(self) -> Sharing:
        """The split between devices."""
        return Sharing.of(self.model, self.recipe, self.ranks)

    @property
    def _factor(self) -> int:
        """Bytes of a number that a linear layer multiplies."""
        return 2 if self.recipe.precision == "bf16-mixed" else _FLOAT

    @property
    def _width(self) -> int:
        """Bytes of a number in attention and activation functions, and in outputs of linear layers."""
        return _FLOAT if self.device == "cpu" else self._factor
