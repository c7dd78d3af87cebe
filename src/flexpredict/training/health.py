"""The health of training: numbers that show a collapse, or features of mere position, and warnings in words."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flexpredict.methods.method import MaskedTokens, Prediction
from flexpredict.model.location_share import location_share
from flexpredict.model.position_noise import ConditionalNoise, DiagonalNoise, UntiedNoise
from flexpredict.model.positions import location_blur, noise_to_signal
from flexpredict.runs.metrics import Record

_TOKENS = 1024  # enough to estimate a rank of a few hundred, and cheap


@torch.no_grad()
def feature_health(features: Tensor) -> Record:
    """Spread and effective rank of the features that would collapse if training did: ... D."""
    tokens = features.detach().flatten(0, -2).float()
    tokens = tokens[:: max(1, len(tokens) // _TOKENS)][:_TOKENS]
    return {"target_spread": float(tokens.std(dim=0).mean()), "target_rank": effective_rank(tokens)}


def location_health(prediction: Prediction, contexts: int) -> Record:
    """Location share of the same features, all `contexts` of an image together; empty if samples are too few."""
    features, places = prediction.features, prediction.places
    rows = len(features) // contexts
    share = location_share(features.reshape(rows, -1, features.shape[-1]), places.reshape(rows, -1))
    return {} if math.isnan(share) else {"location_share": share}


def effective_rank(features: Tensor) -> float:
    """RankMe: exponential of the entropy of the normalized singular values. features: N D."""
    singular_values = torch.linalg.svdvals(features)
    shares = singular_values / singular_values.sum().clamp_min(1e-12) + 1e-7
    return float(torch.exp(-(shares * shares.log()).sum()))


@torch.no_grad()
def position_health(tokens: MaskedTokens, key: int) -> Record:
    """Sizes of A and m̃, and how much the noise blurs the positions of tokens that get it."""
    stochastic, positions = tokens.stochastic, tokens.positions
    matrix, level = stochastic.noise_matrix, float(stochastic.level())
    health: Record = {}
    if isinstance(stochastic, ConditionalNoise):
        health["noise_scale"] = float(stochastic.last_scale)
        level *= health["noise_scale"]
    if isinstance(stochastic, (UntiedNoise, DiagonalNoise)):
        health["noise_matrix_norm"] = float(matrix.norm())
    blur, kept = location_blur(matrix, positions, tokens.grid, level, key)
    return {
        "A_norm": float(stochastic.projection.weight.norm()),
        "mask_token_norm": float(tokens.mask_token.norm()),
        "noise_std": level,
        "noise_to_signal": noise_to_signal(matrix, positions, level),
        "location_blur": blur,
        "location_kept": kept,
        **health,
    }


@dataclass
class Watch:
    """Checks each record, and warns once per cause of features that are losing their use."""

    best: dict[str, float] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def look(self, record: Record) -> list[str]:
        """New warnings for this record."""
        warnings = []
        for name, sign in _SIGNS.items():
            if name not in record:
                continue
            now = record[name]
            best = self.best[name] = sign.better(self.best.get(name, now), now)
            if sign.alarming(now, best) and name not in self.said:
                self.said.add(name)
                warnings.append(sign.text.format(now=now, best=best))
        return warnings


@dataclass(frozen=True)
class _Sign:
    """The warning to give when a number is far from the best it has been."""

    text: str
    better: Callable[[float, float], float] = max
    alarming: Callable[[float, float], bool] = lambda now, best: now < 0.25 * best


def _drifts_to_location(now: float, best: float) -> bool:
    """Most of the variance, and clearly more than before: an untrained encoder may start at about half."""
    return now > 0.6 and now > best + 0.1


_SIGNS = {
    "target_rank": _Sign(
        "The target features are collapsing: their effective rank fell from {best:.1f} to {now:.1f}. "
        "Try a lower learning rate, a longer warm-up, or a higher optimizer.ema_momentum.",
    ),
    "target_spread": _Sign(
        "The target features are becoming all alike: their spread fell from {best:.2f} to {now:.2f}. "
        "Try a lower learning rate, a longer warm-up, or a higher optimizer.ema_momentum.",
    ),
    "A_norm": _Sign(
        "‖A‖ is falling toward zero ({best:.2f} to {now:.2f}): the predictor gives up the context to avoid the "
        "noise. Try a lower positions.noise_to_signal or a lower optimizer.final_weight_decay.",
    ),
    "noise_matrix_norm": _Sign(
        "The noise is being switched off: its own matrix fell from {best:.2f} to {now:.2f}. Use "
        "positions.covariance=tied, with which noise and context share one matrix.",
    ),
    "location_share": _Sign(
        "The features encode little but the position of the patch: their location share rose from {best:.0%} to "
        "{now:.0%}. Try stochastic positions (positions.kind=stochastic) or a higher positions.noise_to_signal.",
        better=min,
        alarming=_drifts_to_location,
    ),
}
