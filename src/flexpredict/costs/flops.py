"""Floating-point operations of a step: the matrix products only, 2 m n k each.

Counted is what the result depends on: no token that nobody reads, and nothing that is computed twice to save memory.
"""

from collections.abc import Iterable

from flexpredict.costs.passes import FORWARD, TRAINED, BlockSize, Pass


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
