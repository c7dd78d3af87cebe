"""Is it learning or collapsing? Numbers that tell, and warnings in words."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from flexpredict.methods.method import MaskedTokens
from flexpredict.model.position_noise import ConditionalNoise, DiagonalNoise, UntiedNoise
from flexpredict.model.positions import location_blur, noise_to_signal
from flexpredict.runs.metrics import Record

_TOKENS = 1024  # enough to estimate a rank of a few hundred, and cheap


@torch.no_grad()
def feature_health(features: Tensor) -> Record:
    """Spread and effective rank of the features that would collapse, the targets' where they are: ... D."""
    tokens = features.detach().flatten(0, -2).float()
    tokens = tokens[:: max(1, len(tokens) // _TOKENS)][:_TOKENS]
    return {"target_spread": float(tokens.std(dim=0).mean()), "target_rank": effective_rank(tokens)}


def effective_rank(features: Tensor) -> float:
    """RankMe: exponential of the entropy of the normalised singular values. features: N D."""
    singular_values = torch.linalg.svdvals(features)
    shares = singular_values / singular_values.sum().clamp_min(1e-12) + 1e-7
    return float(torch.exp(-(shares * shares.log()).sum()))


@torch.no_grad()
def position_health(tokens: MaskedTokens, key: int) -> Record:
    """Size of A and m̃, and what the noise does to the positions of tokens that have it."""
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
    """Looks at each record and says, once a cause, what looks like collapse."""

    best: dict[str, float] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    def look(self, record: Record) -> list[str]:
        """Warnings that this record gives rise to."""
        warnings = []
        for name, (share, text) in _FALLS.items():
            if name not in record:
                continue
            best = self.best[name] = max(self.best.get(name, 0.0), record[name])
            if record[name] < share * best and name not in self.said:
                self.said.add(name)
                warnings.append(text.format(now=record[name], best=best))
        return warnings


# name: (warn below this share of the best value so far, in these words)
_FALLS = {
    "target_rank": (
        0.25,
        "The target features are collapsing: their effective rank fell from {best:.1f} to {now:.1f}. "
        "Try a lower learning rate, a longer warm-up, or a higher optimizer.ema_momentum.",
    ),
    "target_spread": (
        0.25,
        "The target features are becoming all alike: their spread fell from {best:.2f} to {now:.2f}. "
        "Try a lower learning rate, a longer warm-up, or a higher optimizer.ema_momentum.",
    ),
    "A_norm": (
        0.25,
        "‖A‖ is falling towards zero ({best:.2f} to {now:.2f}): the predictor gives up the context to be rid of the "
        "noise. Try a lower positions.noise_std or a lower final_weight_decay.",
    ),
    "noise_matrix_norm": (
        0.25,
        "The noise is being switched off: its own matrix fell from {best:.2f} to {now:.2f}. Nothing holds it up; "
        "positions.covariance=tied shares it with the context, which does.",
    ),
}
