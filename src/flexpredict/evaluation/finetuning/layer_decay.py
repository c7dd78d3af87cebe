"""Learning rates that fall layer by layer from the head to the embeddings; layers are found by parameter names."""

import re
from typing import Any

from torch import Tensor, nn

from flexpredict.errors import UserError

# blocks.3. in timm; encoder.layer.3. or layers.3. in Hugging Face's models.
_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers?)\.(\d+)\.")
_AFTER_BLOCKS = re.compile(r"(?:^|\.)(?:(?:fc_|post_)?(?:norm|layer_?norm)|head|pooler|attn_pool)\.")
_NEVER_DECAYS = ("pos_embed", "positions", "position_embeddings", "_token", "_tokens", "relative_position_bias_table")


def layer_of(name: str, depth: int) -> int:
    """Embeddings, positions and tokens are layer 0, block i is i + 1, the final norm and the head are depth + 1."""
    block = block_of(name)
    if block is not None:
        return block + 1
    return depth + 1 if _AFTER_BLOCKS.search(name) and "embed" not in name else 0


def block_of(name: str) -> int | None:
    """The number of the block that a parameter or module belongs to."""
    found = _BLOCK.search(name)
    return int(found.group(1)) if found else None


def layered_groups(model: nn.Module, depth: int, decay: float, what: str) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: `scale` multiplies the learning rate, `decays` tells if weights decay.

    A layer's scale is decay^(depth + 1 - layer), so 1 for the head. Weight decay applies to matrices only: not to
    biases, norms, tokens and positions.
    """
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if decay != 1:
        _refuse_other_layers({block_of(name) for name, _ in trained} - {None}, depth, what)
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for name, parameter in trained:
        scale = 1.0 if decay == 1 else decay ** (depth + 1 - layer_of(name, depth))
        decays = parameter.squeeze().ndim >= 2 and not name.endswith(_NEVER_DECAYS)
        groups.setdefault((scale, decays), []).append(parameter)
    return [
        {"params": parameters, "scale": scale, "decays": decays} for (scale, decays), parameters in groups.items()
    ]


def _refuse_other_layers(blocks: set[int | None], depth: int, what: str) -> None:
    if blocks != set(range(depth)):
        raise UserError(
            f"The {depth} layers of {what} cannot be told from the names of its parameters, so layers cannot have "
            "learning rates of their own. Use layer_decay=1."
        )
