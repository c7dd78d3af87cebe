"""The optimizer of a run: AdamW for everything, or Muon for the matrices of the transformer blocks beside it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

_NEVER_DECAY = ("pos_embed", "positions", "_token", "relative_position_bias_table")


@dataclass
class Optimizer:
    """The optimizer and its schedules.

    Args:
        kind: "adamw" (published), or "muon" for the matrices inside transformer blocks, with AdamW for all the rest.
            Muon's updates are scaled to the size of AdamW's, so one learning rate serves both.
        lr: peak learning rate (paper: 8e-4 for B, 1e-3 for H, at batch 2048; by default 8e-4 · √(batch / 2048),
            but at least 5e-4).
        start_lr: learning rate at the start of the warm-up, as a share of lr (2e-4 / 8e-4).
        final_lr: learning rate at the end of the cosine, as a share of lr.
        warmup_epochs: length of the linear warm-up (paper: 15 of 600 for B and L, 40 of 300 for H; by default a
            twentieth of the epochs).
        weight_decay: weight decay at the start; never on biases, norms, tokens and positions.
        final_weight_decay: weight decay at the end of its cosine.
        betas: AdamW's moving-average factors.
        ema_momentum: momentum of the target encoder's moving average at the start.
        final_ema_momentum: and at the end of its straight line.
        clip_grad: largest norm of the gradient over all parameters; no clipping by default, as published.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    lr: float | None = None
    start_lr: float = 0.25
    final_lr: float = 0.00125
    warmup_epochs: float | None = None
    weight_decay: float = 0.04
    final_weight_decay: float = 0.4
    betas: tuple[float, float] = (0.9, 0.999)
    ema_momentum: float = 0.996
    final_ema_momentum: float = 1.0
    clip_grad: float | None = None


def build_optimizers(settings: Optimizer, model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """AdamW, behind Muon where that is asked for. Groups say by `decays` whether weight decay is meant for them."""
    hidden, decays, free = parameter_groups(model)
    if settings.kind == "adamw":
        decays, hidden = hidden + decays, []
    groups = [{"params": decays, "decays": True}, {"params": free, "decays": False}]
    adamw = torch.optim.AdamW(groups, lr=lr, betas=settings.betas, fused=True)
    if not hidden:
        return [adamw]
    muon = torch.optim.Muon([{"params": hidden, "decays": True}], lr=lr, adjust_lr_fn="match_rms_adamw")
    return [muon, adamw]


def parameter_groups(model: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Matrices inside transformer blocks; other matrices; and biases, norms, tokens and positions."""
    hidden: list[Tensor] = []
    decays: list[Tensor] = []
    free: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.squeeze().ndim < 2 or name.endswith(_NEVER_DECAY):
            free.append(parameter)
        else:
            (hidden if ".blocks." in name and parameter.ndim == 2 else decays).append(parameter)
    return hidden, decays, free


def set_rates(optimizers: list[torch.optim.Optimizer], lr: float, weight_decay: float) -> None:
    """What the schedules say for this step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
            group["weight_decay"] = weight_decay if group["decays"] else 0.0
