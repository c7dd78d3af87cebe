"""The passes of a step: which network runs on how many tokens, and whether it is trained.

Operations and memory are both reckoned from these. Operations are the matrix products only, 2 m n k each, and what
the result depends on: no token that nobody reads, and nothing that is computed twice to save memory. Only sizes are
looked at, so the model may be one without weights (on torch's meta device).
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
# Times that the matrix product of a layer is done: its output, the gradient of its weight, and that of its input.
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
    def predicted(self) -> int:
        """Predictions for an image."""
        return self.contexts * self.targets * self.length


@dataclass(frozen=True)
class BlockSize:
    """Sizes of a transformer block."""

    dim: int  # features of a token
    heads: int  # of the attention
    attention: int  # features of the queries, which are those of keys and values
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
    """For each image, forward and backward."""
    return {one.part: pass_flops(one) for one in passes}


def pass_flops(one: Pass, backward: bool = True) -> int:
    """For each image. backward: count the gradients, too, if it is trained."""
    blocks = sum(block_flops(block, one.tokens, read) for block, read in one.reads())
    times = TRAINED if one.trained and backward else FORWARD
    layers = (
        2 * layer.rows * layer.inputs * layer.outputs * (layer.times if backward else FORWARD) for layer in one.layers
    )
    return times * one.sequences * blocks + sum(layers)


def block_flops(block: BlockSize, tokens: int, read: int) -> int:
    """Forward, for one sequence: keys and values of all tokens, all the rest for those that are read."""
    keys_and_values = 2 * block.dim * block.attention
    products = tokens * keys_and_values + read * (block.weights - keys_and_values)
    return 2 * products + 4 * read * tokens * block.attention


def tokens_of(model: Method, masks: Masks, grid: Grid) -> Tokens:
    """Of masks as `sample_masks` gives them. grid: of patches."""
    contexts, targets, length = masks.targets.shape[1:]
    return Tokens(math.prod(grid), masks.context.shape[-1] * _cell(model) ** 2, contexts, targets, length)


def sample_tokens(model: Method, masking: Masking, grid: Grid, batch: int, steps: int) -> list[Tokens]:
    """Of the masks of so many steps. The contexts of a batch are cut to its smallest, so the batch matters."""
    cells = mask_grid(model, grid)
    drawn = (sample_masks(masking, cells, stream_key(0, "costs", step), batch) for step in range(steps))
    return [tokens_of(model, masks, grid) for masks in drawn]


def mask_grid(model: Method, grid: Grid) -> Grid:
    """On which masks are drawn, for a grid of patches."""
    return grid[0] // _cell(model), grid[1] // _cell(model)


def passes_of(model: Method, tokens: Tokens) -> list[Pass]:
    """What a step does for each image, in its order."""
    if isinstance(model, IJEPA):
        return _ijepa(model, tokens)
    if isinstance(model, MAE):
        return _mae(model, tokens)
    assert isinstance(model, Data2Vec)
    return _data2vec(model, tokens)


def _ijepa(model: IJEPA, tokens: Tokens) -> list[Pass]:
    encoder, prefix = model.context_encoder, _prefix(model.context_encoder)
    everything = prefix + tokens.patches
    return [
        Pass(
            TARGET,
            _blocks(encoder.vit.blocks),
            sequences=1,
            tokens=everything,
            read=tokens.predicted if model.reads_targets_only else everything,
            trained=False,
            layers=(_embedding(encoder, tokens.patches, FORWARD),),
        ),
        Pass(
            CONTEXT,
            _blocks(encoder.vit.blocks),
            sequences=tokens.contexts,
            tokens=prefix + tokens.context,
            read=prefix + tokens.context,
            trained=True,
            layers=(_embedding(encoder, tokens.contexts * tokens.context, WEIGHTS),),
        ),
        _predictor(model, tokens, seen=tokens.context),
    ]


def _mae(model: MAE, tokens: Tokens) -> list[Pass]:
    encoder, seen = model.context_encoder, _prefix(model.context_encoder) + tokens.context
    rows = tokens.contexts * tokens.context
    layers = (_embedding(encoder, rows, WEIGHTS),)
    return [
        Pass(CONTEXT, _blocks(encoder.vit.blocks), tokens.contexts, seen, seen, True, layers),
        _predictor(model, tokens, seen),
    ]


def _predictor(model: IJEPA | MAE, tokens: Tokens, seen: int) -> Pass:
    """seen: tokens that it gets of each context."""
    predictor, dim = model.predictor, model.predictor.projection.out_features
    features = predictor.projection.in_features
    layers = [
        Layer(features, dim, tokens.contexts * seen, TRAINED),
        Layer(dim, predictor.output.out_features, tokens.predicted, TRAINED),
    ]
    if predictor.stochastic.noise_std:
        noisy = {"masked": tokens.predicted, "context": tokens.contexts * tokens.context}
        width = predictor.stochastic.noise_matrix.shape[1]
        rows = (rows for name, rows in noisy.items() if predictor.noise_on in (name, "both"))
        layers += [Layer(width, dim, count, WEIGHTS) for count in rows]
    blocks = _blocks(predictor.blocks)
    sequences = tokens.contexts * tokens.targets
    return Pass(PREDICTOR, blocks, sequences, seen + tokens.length, tokens.length, True, tuple(layers))


def _data2vec(model: Data2Vec, tokens: Tokens) -> list[Pass]:
    encoder, prefix = model.context_encoder, _prefix(model.context_encoder)
    blocks, everything = _blocks(encoder.vit.blocks), prefix + tokens.patches
    seen, masked = tokens.contexts * tokens.context, tokens.predicted
    layers = [_embedding(encoder, seen, WEIGHTS), Layer(encoder.dim, encoder.dim, masked, TRAINED)]
    if model.predictor.stochastic.noise_std:
        noisy = {"masked": masked, "context": seen}
        layers += [
            _embedding(encoder, rows, WEIGHTS)
            for name, rows in noisy.items()
            if model.predictor.noise_on in (name, "both")
        ]
    embedding = (_embedding(encoder, tokens.patches, FORWARD),)
    return [
        Pass(TARGET, blocks, 1, everything, everything, False, embedding),
        Pass(CONTEXT, blocks, tokens.contexts, everything, tokens.length, True, tuple(layers)),
    ]


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
