"""Finds the encoders in a checkpoint, and the tensors that belong to each.

One rule fits all training scripts: whatever stands before the name of a patch embedding is the prefix of an encoder.
"""

import re
from collections import Counter

from torch import Tensor

from flexpredict.encoders.checkpoints.hugging_face_names import to_timm_names
from flexpredict.errors import UserError, printable, some_of
from flexpredict.settings.extraction import Which

# The embedding of patches in timm's names (which are those of nearly all published code) and in Hugging Face's.
_BEGINNING = re.compile(r"^(|.*\.)(patch_embed\.proj\.weight|embeddings\.patch_embeddings\.projection\.weight)$")
_TARGET_WORDS = {"target_encoder", "teacher", "ema", "model_ema", "state_dict_ema", "momentum_encoder"}
_CONTEXT_WORDS = {"encoder", "context_encoder", "student", "online_encoder", "model", "state_dict"}
# Tensors beside or on top of an encoder, which features do not need.
_NOT_ENCODER = re.compile(
    r"^(head|head_dist|fc|fc_norm|mlp_head|pre_logits|pooler|classifier|lm_head|decoder\w*|mask_token|masked_embed|"
    r"cls_pt_layers|predictor\w*|\w+_head)(\.|$)|relative_position_index$"
)
_INDEX = "relative_position_index"  # in each block; it follows from the grid
# DINOv2's names for registers and gated MLPs, and timm's.
_DINOV2_NAMES = (("register_tokens", "reg_token"), (".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2."))


def choose_encoder(tensors: dict[str, Tensor], which: Which, shown: str) -> tuple[str, str]:
    """The name prefix of the wanted encoder, and its role in words."""
    prefixes = _prefixes(tensors)
    if not prefixes:
        raise UserError(
            f"{shown} is not a checkpoint of a vision transformer: nothing in it embeds patches "
            f"(patch_embed.proj.weight). It holds {len(tensors)} tensors, such as {listed(sorted(tensors))}."
        )
    targets, contexts = pair_of_encoders(tensors)
    if len(prefixes) == 1 and which == "target":
        return prefixes[0], "target encoder" if targets else "encoder"
    chosen = targets if which == "target" else contexts
    if len(chosen) == 1:
        return chosen[0], f"{which} encoder"
    if len(prefixes) == 1:
        raise UserError(f"There is only one encoder in {shown}. Leave which out.")
    raise UserError(
        f"There are {len(prefixes)} encoders in {shown}, and it is not clear which is the {which} encoder: their "
        f"names begin with {listed([prefix or 'nothing' for prefix in prefixes])}."
    )


def pair_of_encoders(tensors: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """Prefixes of moving averages, and of the encoders they may average: those with a known name, or all others."""
    prefixes = _prefixes(tensors)
    targets = [prefix for prefix in prefixes if set(prefix.split(".")) & _TARGET_WORDS]
    others = [prefix for prefix in prefixes if prefix not in targets] if targets else []
    return targets, [prefix for prefix in others if set(prefix.split(".")) & _CONTEXT_WORDS] or others


def _prefixes(tensors: dict[str, Tensor]) -> list[str]:
    return [match.group(1) for match in map(_BEGINNING.match, tensors) if match]


def encoder_tensors(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with the prefix, under timm's names."""
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if any(name.startswith("embeddings.") for name in inner):
        inner = to_timm_names(inner)
    # DINOv2 may have its blocks in chunks.
    renamed = {re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): tensor for name, tensor in inner.items()}
    for theirs, ours in _DINOV2_NAMES:
        renamed = {name.replace(theirs, ours): tensor for name, tensor in renamed.items()}
    _place_class_token(renamed)
    return renamed


def _place_class_token(tensors: dict[str, Tensor]) -> None:
    """With registers, DINOv2 has a position for the class token only; adding it to that token is equivalent."""
    registers, positions = tensors.get("reg_token"), tensors.get("pos_embed")
    if registers is None or positions is None or "cls_token" not in tensors:
        return
    side = int((positions.shape[1] - 1) ** 0.5)
    if side * side == positions.shape[1] - 1:
        tensors["cls_token"] = tensors["cls_token"] + positions[:, :1]
        tensors["pos_embed"] = positions[:, 1:]


def is_needed(name: str) -> bool:
    """Whether the features of an encoder depend on this tensor; the name is timm's."""
    return not _NOT_ENCODER.search(name)


def count_left_out(tensors: dict[str, Tensor], inner: dict[str, Tensor], prefix: str) -> Counter[str]:
    """Numbers of tensors outside the encoder and on top of it, by the part they belong to."""
    beside = prefix.split(".")[0]

    def part(name: str) -> str:
        first, *rest = name.split(".")
        return f"{first}.{rest[0]}" if first == beside and len(rest) > 1 else first

    outside = Counter(part(name) for name in tensors if not name.startswith(prefix))
    inside = Counter(_INDEX if name.endswith(_INDEX) else name.split(".")[0] for name in inner if not is_needed(name))
    return outside + inside


def listed(names: list[str], most: int = 6) -> str:
    """The first of these names, in characters that any terminal can show."""
    return printable(some_of(names, most))
