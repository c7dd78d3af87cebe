"""The passes of a step: which network runs on how many tokens, and whether it is trained.

Operations and memory are both computed from these. Operations are those of matrix products, 2 m n k each, that the
result depends on: without tokens that are not read, and without recomputation to save memory. Only sizes are used, so
the model may have no weights (on torch's meta device).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from flexpredict.masking import Masks, sample_masks
from flexpredict.methods.data2vec import Data2Vec
from flexpredict.methods.ijepa import IJEPA
from flexpredict.methods.mae import MAE
from flexpredict.methods.method import Method
from flexpredict.model.blocks import is_plain
from flexpredict.model.encoder import Encoder
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking
from flexpredict.sizes import Grid

CONTEXT, TARGET, PREDICTOR = "context encoder", "target encoder", "predictor"
# Matrix products of a layer: its output, the gradient of its weight, and that of its input.
FORWARD, WEIGHTS, TRAINED = 1, 2, 3


@dataclass(frozen=True)
class Tokens:
    """How much of an image the networks see."""

    patches: int  # of the whole image
    context: int  # patches in each context
    contexts: int  # of an image
    targets: int  # blocks for each context
    length: int  # predictions for each block

    @property
    def seen(self) -> int:
        """Patches in all contexts of an image."""
        return self.contexts * self.context

    @property
    def predicted(self) -> int:
        """Predictions for an image."""
        return self.contexts * self.targets * self.length


@dataclass(frozen=True)
class BlockSize:
    """Sizes of a transformer block."""

    dim: int  # features of a token
    heads: int  # of the attention
    attention: int  # features of the queries, as of keys and values
    inputs: int  # features that go into its linear layers, all together
    weights: int  # numbers in the matrices of its linear layers
    hidden: int  # features between the two layers of its MLP
    partial: bool  # whether it can be computed for some of its tokens only

    @classmethod
    def of(cls, block: nn.Module) -> "BlockSize":
        layers = [layer for layer in block.modules() if isinstance(layer, nn.Linear)]
        attention, dim = getattr(block, "attn", None), layers[0].in_features
        qkv = getattr(attention, "qkv", None)
        widths = [layer.out_features for name, layer in block.named_modules() if name.endswith("fc1")]
        return cls(
            dim=dim,
            heads=getattr(attention, "num_heads", 1),
            attention=qkv.out_features // 3 if isinstance(qkv, nn.Linear) else dim,
            inputs=sum(layer.in_features for layer in layers),
            weights=sum(layer.weight.numel() for layer in layers),
            hidden=sum(widths),
            partial=is_plain(block),
        )


@dataclass(frozen=True)
class Layer:
    """A linear layer besides those of the blocks. rows: for each image. times: one of FORWARD, WEIGHTS, TRAINED."""

    inputs: int
    outputs: int
    rows: int
    times: int


@dataclass(frozen=True)
class Pass:
    """A network that runs once in a step."""

    part: str  # its name
    blocks: tuple[BlockSize, ...]  # its transformer blocks
    sequences: int  # for each image
    tokens: int  # in each sequence
    read: int  # tokens of the last block's output that are used
    trained: bool  # whether gradients go through it
    layers: tuple[Layer, ...]  # its other linear layers

    def reads(self) -> Iterable[tuple[BlockSize, int]]:
        """Each block, and how many of its tokens are computed to the end."""
        for block in self.blocks[:-1]:
            yield block, self.tokens
        last = self.blocks[-1]
        yield last, min(self.read, self.tokens) if last.partial else self.tokens


def flops_by_part(passes: Iterable[Pass]) -> dict[str, int]:
    """Operations of each part for one image, forward and backward."""
    return {one.part: pass_flops(one) for one in passes}


def pass_flops(one: Pass, backward: bool = True) -> int:
    """Operations for one image. backward: count the gradients, too, if it is trained."""
    blocks = sum(block_flops(block, one.tokens, read) for block, read in one.reads())
    times = TRAINED if one.trained and backward else FORWARD
    layers = (
        2 * layer.rows * layer.inputs * layer.outputs * (layer.times if backward else FORWARD) for layer in one.layers
    )
    return times * one.sequences * blocks + sum(layers)


def block_flops(block: BlockSize, tokens: int, read: int) -> int:
    """Forward operations for one sequence: keys and values of all tokens, the rest for tokens that are read."""
    keys_and_values = 2 * block.dim * block.attention
    products = tokens * keys_and_values + read * (block.weights - keys_and_values)
    return 2 * products + 4 * read * tokens * block.attention


def tokens_of(model: Method, masks: Masks, grid: Grid) -> Tokens:
    """The tokens of masks from `sample_masks`. grid: of patches."""
    contexts, targets, length = masks.targets.shape[1:]
    return Tokens(math.prod(grid), masks.context.shape[-1] * _cell(model) ** 2, contexts, targets, length)


def sample_tokens(model: Method, masking: Masking, grid: Grid, batch: int, steps: int) -> list[Tokens]:
    """The tokens of masks of this many steps. Contexts are cut to the smallest of a batch, so its size matters."""
    cells = mask_grid(model, grid)
    drawn = (sample_masks(masking, cells, stream_key(0, "costs", step), batch) for step in range(steps))
    return [tokens_of(model, masks, grid) for masks in drawn]


def mask_grid(model: Method, grid: Grid) -> Grid:
    """The grid on which masks are drawn, for a grid of patches."""
    return grid[0] // _cell(model), grid[1] // _cell(model)


def passes_of(model: Method, tokens: Tokens) -> list[Pass]:
    """The passes of a step for one image, in order."""
    if isinstance(model, IJEPA):
        return _ijepa(model, tokens)
    if isinstance(model, MAE):
        return _mae(model, tokens)
    assert isinstance(model, Data2Vec)
    return _data2vec(model, tokens)


def _ijepa(model: IJEPA, tokens: Tokens) -> list[Pass]:
    encoder, everything = model.context_encoder, _prefix(model.context_encoder) + tokens.patches
    read = tokens.predicted if model.reads_targets_only else everything
    embedding = (_embedding(encoder, tokens.patches, FORWARD),)
    return [
        Pass(TARGET, _blocks(encoder.vit.blocks), 1, everything, read, False, embedding),
        _context(encoder, tokens),
        _predictor(model, tokens, seen=tokens.context),
    ]


def _mae(model: MAE, tokens: Tokens) -> list[Pass]:
    context = _context(model.context_encoder, tokens)
    return [context, _predictor(model, tokens, seen=context.tokens)]


def _context(encoder: Encoder, tokens: Tokens) -> Pass:
    """The pass of the encoder over the contexts."""
    seen, layers = _prefix(encoder) + tokens.context, (_embedding(encoder, tokens.seen, WEIGHTS),)
    return Pass(CONTEXT, _blocks(encoder.vit.blocks), tokens.contexts, seen, seen, True, layers)


def _predictor(model: IJEPA | MAE, tokens: Tokens, seen: int) -> Pass:
    """seen: tokens that it gets of each context."""
    predictor, dim = model.predictor, model.predictor.projection.out_features
    layers = [
        Layer(predictor.projection.in_features, dim, tokens.contexts * seen, TRAINED),
        Layer(dim, predictor.output.out_features, tokens.predicted, TRAINED),
        *(
            Layer(predictor.stochastic.noise_matrix.shape[1], dim, rows, WEIGHTS)
            for rows in _noisy_rows(predictor, tokens)
        ),
    ]
    blocks = _blocks(predictor.blocks)
    sequences = tokens.contexts * tokens.targets
    return Pass(PREDICTOR, blocks, sequences, seen + tokens.length, tokens.length, True, tuple(layers))


def _data2vec(model: Data2Vec, tokens: Tokens) -> list[Pass]:
    encoder = model.context_encoder
    blocks, everything = _blocks(encoder.vit.blocks), _prefix(encoder) + tokens.patches
    layers = (
        _embedding(encoder, tokens.seen, WEIGHTS),
        Layer(encoder.dim, encoder.dim, tokens.predicted, TRAINED),
        *(_embedding(encoder, rows, WEIGHTS) for rows in _noisy_rows(model.predictor, tokens)),
    )
    embedding = (_embedding(encoder, tokens.patches, FORWARD),)
    return [
        Pass(TARGET, blocks, 1, everything, everything, False, embedding),
        Pass(CONTEXT, blocks, tokens.contexts, everything, tokens.length, True, layers),
    ]


def _noisy_rows(masked_tokens: Any, tokens: Tokens) -> list[int]:
    """How many tokens of an image get noise: masked tokens and context tokens."""
    rows = {"masked": tokens.predicted, "context": tokens.seen} if masked_tokens.stochastic.noise_std else {}
    return [count for name, count in rows.items() if masked_tokens.noise_on in (name, "both")]


def _embedding(encoder: Encoder, rows: int, times: int) -> Layer:
    weight = encoder.vit.patch_embed.proj.weight
    return Layer(weight[0].numel(), weight.shape[0], rows, times)


def _blocks(blocks: Any) -> tuple[BlockSize, ...]:
    return tuple(BlockSize.of(block) for block in blocks)


def _cell(model: Method) -> int:
    """Side in patches of what is masked and predicted."""
    return model.cell if isinstance(model, IJEPA) else 1


def _prefix(encoder: Encoder) -> int:
    return int(encoder.vit.num_prefix_tokens)
