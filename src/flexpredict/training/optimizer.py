"""The optimizer of a run: AdamW for all, or Muon for the matrices of transformer blocks and AdamW for the rest."""

from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.settings.optimizer import SettledOptimizer
from flexpredict.training.muon import Muon

_NEVER_DECAY = ("pos_embed", "positions", "_token", "relative_position_bias_table")


def build_optimizers(settings: SettledOptimizer, model: nn.Module) -> list[torch.optim.Optimizer]:
    """AdamW alone, or Muon and AdamW.

    In each parameter group, `decays` says whether weight decay applies, and `encoder` whether it is the encoder's.
    """
    hidden, decays, free = parameter_groups(model)
    if settings.kind == "adamw":
        decays, hidden = hidden + decays, []
    encoder = {id(parameter) for parameter in model.get_submodule("context_encoder").parameters()}

    def groups(parameters: list[Tensor], decays: bool) -> list[dict[str, Any]]:
        parts: dict[bool, list[Tensor]] = {True: [], False: []}
        for parameter in parameters:
            parts[id(parameter) in encoder].append(parameter)
        return [{"params": part, "decays": decays, "encoder": name} for name, part in parts.items()]

    adamw = torch.optim.AdamW(
        [*groups(decays, True), *groups(free, False)], lr=settings.lr, betas=settings.betas, fused=True
    )
    return [Muon(groups(hidden, True), lr=settings.muon_lr), adamw] if hidden else [adamw]


def parameter_groups(model: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Matrices inside transformer blocks; other matrices; and biases, norms, tokens and positions."""
    hidden: list[Tensor] = []
    decays: list[Tensor] = []
    free: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if sum(side > 1 for side in parameter.shape) < 2 or name.endswith(_NEVER_DECAY):
            free.append(parameter)
        else:
            (hidden if ".blocks." in name and parameter.ndim == 2 else decays).append(parameter)
    return hidden, decays, free


def set_rates(
    optimizers: list[torch.optim.Optimizer], share: float, weight_decay: float, encoder_share: float = 1.0
) -> None:
    """Set the rates of a step. share: of the peak learning rate; encoder_share: the encoder's share of that."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * optimizer.defaults["lr"] * (encoder_share if group["encoder"] else 1.0)
            group["weight_decay"] = weight_decay if group["decays"] else 0.0
