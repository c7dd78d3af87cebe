"""The optimizer and its schedules."""

from dataclasses import dataclass
from typing import Literal


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
        hold_from_epoch: from this epoch on, learning rate and weight decay stay where their cosines have brought them
            (released ViT-H: 250 of 300; by default they follow their cosines to the end).
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
    hold_from_epoch: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    ema_momentum: float = 0.996
    final_ema_momentum: float = 1.0
    clip_grad: float | None = None
