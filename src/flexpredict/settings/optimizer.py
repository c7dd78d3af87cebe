"""The optimizer and its schedules."""

from dataclasses import dataclass
from typing import Literal

from flexpredict.settings.ranges import ranged


@dataclass
class Optimizer:
    """The optimizer and its schedules.

    Args:
        kind: "adamw" (published), or "muon" for the matrices inside transformer blocks, with AdamW for all the rest
            (the default of small runs).
        lr: peak learning rate of AdamW (paper: 8e-4 for B, 1e-3 for H, at batch 2048; by default
            8e-4 · √(batch / 2048), but at least 5e-4; small runs 3e-3).
        muon_lr: peak learning rate of Muon, for kind=muon; both rates follow one schedule.
        encoder_lr: learning rate of the encoder, as a share of lr (continued runs 0.01, else 1).
        predictor_warmup_epochs: epochs in which only the predictor learns and the encoder stays as it is (by default
            a quarter of the epochs if the encoder is pre-trained and the predictor is new, else 0).
        start_lr: learning rate at the start of the warm-up, as a share of lr (published 0.25; small runs 0).
        final_lr: learning rate at the end of the cosine, as a share of lr (published 0.00125; small runs 0.01).
        warmup_epochs: length of the linear warm-up (paper: 15 of 600 for B and L, 40 of 300 for H; by default a
            twentieth of the epochs).
        weight_decay: weight decay at the start; never on biases, norms, tokens and positions (published 0.04; small
            runs 0.05).
        final_weight_decay: weight decay at the end of its cosine (published 0.4; small runs 0.05).
        hold_from_epoch: from this epoch on, learning rate and weight decay stay at the values that they have reached
            (released ViT-H: 250 of 300; by default they follow their cosines to the end).
        betas: AdamW's moving-average factors.
        ema_momentum: momentum of the target encoder's moving average at the start (published 0.996; small runs
            0.99).
        final_ema_momentum: momentum at the end; it changes linearly.
        ema_by_steps: limit the momentum at step n to (1 + n) / (10 + n), so that even a slow average follows the
            weights from the beginning.
        clip_grad: largest norm of the gradient over all parameters; no clipping by default, as published.
    """

    kind: Literal["adamw", "muon"] | None = None
    lr: float | None = ranged(None, least=0)
    muon_lr: float = ranged(0.02, above=0)
    encoder_lr: float | None = ranged(None, least=0)
    predictor_warmup_epochs: float | None = ranged(None, least=0)
    start_lr: float | None = ranged(None, least=0)
    final_lr: float | None = ranged(None, least=0)
    warmup_epochs: float | None = ranged(None, least=0)
    weight_decay: float | None = ranged(None, least=0)
    final_weight_decay: float | None = ranged(None, least=0)
    hold_from_epoch: float | None = ranged(None, least=0)
    betas: tuple[float, float] = ranged((0.9, 0.999), least=0, below=1)
    ema_momentum: float | None = ranged(None, least=0, most=1)
    final_ema_momentum: float = ranged(1.0, least=0, most=1)
    ema_by_steps: bool = False
    clip_grad: float | None = ranged(None, above=0)


@dataclass
class SettledOptimizer(Optimizer):
    """An optimizer with every setting filled in."""

    kind: Literal["adamw", "muon"] = "adamw"
    lr: float = 0.0
    encoder_lr: float = 1.0
    predictor_warmup_epochs: float = 0.0
    start_lr: float = 0.0
    final_lr: float = 0.0
    warmup_epochs: float = 0.0
    weight_decay: float = 0.0
    final_weight_decay: float = 0.0
    ema_momentum: float = 0.0
