"""Positions of tokens, and the noise on them."""

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from flexpredict.errors import UserError
from flexpredict.settings.ranges import check_ranges, ranged

WEIGHT_STD = 0.02  # of the entries of a new A
Covariance = Literal["tied", "fixed", "untied", "diagonal", "conditional"]
NoiseOn = Literal["masked", "context", "both"]


@dataclass
class Positions:
    """Positions of tokens, and the noise on them.

    Args:
        kind: "stochastic" (StoP; the default of ijepa), "sincos" (the default of the other methods, which gain
            nothing from noise) or "learned".
        noise_std: standard deviation of the noise n (published: 0.25, the default of large runs). 0 is sin-cos
            exactly. The same value is less noise in a narrower encoder: see noise_to_signal.
        noise_to_signal: the noise level as ‖A n‖ / ‖ψ‖ at the start, comparable between widths (paper, ViT-B: 0.2; by
            default 0.5 in small runs). Give this or noise_std; a run's config.yaml also has the resulting noise_std.
        convention: "paper": m̃ is added and b is not; "released": the authors' code, b is added and m̃ is not (by
            default the paper's, or that of the checkpoint a run starts from).
        covariance: of the noise. "tied": A Aᵀ, with the A of the context (paper); "fixed": the identity; "untied": a
            learned matrix of its own, which nothing keeps from shrinking; "diagonal": a learned diagonal of its own;
            "conditional": tied, with a level for each image, between half and twice noise_std, that is predicted from
            its context. All start at the same ‖noise‖ / ‖ψ‖.
        noise_on: which tokens have noise on their positions: "masked" (paper), "context" or "both".
        hold: keep ‖A n‖ / ‖ψ‖ at its initial value; otherwise it follows ‖A‖, up or down (paper).
        l1: weight of an L1 penalty on A, the sum of the absolute values of its entries, for every kind of positions.
        schedule: the noise level over the run: "constant" (paper), or "linear" or "cosine" to final_level.
        final_level: noise level at the end, as a share of that at the start.
    """

    kind: Literal["stochastic", "sincos", "learned"] | None = None
    noise_std: float | None = ranged(None, least=0)
    noise_to_signal: float | None = ranged(None, least=0)
    convention: Literal["paper", "released"] | None = None
    covariance: Covariance = "tied"
    noise_on: NoiseOn = "masked"
    hold: bool = False
    l1: float = ranged(0.0, least=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    final_level: float = ranged(1.0, least=0)

    def level(self, in_features: int, weight_std: float = WEIGHT_STD) -> float:
        """The noise_std that these settings give for a new A with this many columns."""
        self.check()
        if not self.stochastic:
            return 0.0
        if self.noise_to_signal is None:
            return 0.25 if self.noise_std is None else self.noise_std
        level = noise_std_at_start(self.noise_to_signal, in_features, weight_std)
        if self.noise_std is None:
            return level
        # noise_std was settled before, perhaps with the expected instead of the actual entries of A.
        if not math.isclose(self.noise_std, level, rel_tol=0.1):
            raise UserError(
                f"The noise level is given twice: positions.noise_to_signal={self.noise_to_signal:g} would be a "
                f"noise_std of {level:.4g} here, but positions.noise_std={self.noise_std:.4g}. Give one of them."
            )
        return self.noise_std

    def settled(self, in_features: int, weight_std: float = WEIGHT_STD) -> "Positions":
        """These settings with noise_std filled in, if there is noise."""
        level = self.level(in_features, weight_std)
        return replace(self, noise_std=level) if self.stochastic else self

    @property
    def stochastic(self) -> bool:
        """Whether positions are stochastic, which is the default."""
        return self.kind in (None, "stochastic")

    def of(self, method: str) -> "Positions":
        """These settings with `kind` filled in: the method's default, or stochastic if the noise is set."""
        silent = self == Positions(l1=self.l1)
        kind = self.kind or ("sincos" if method != "ijepa" and silent else "stochastic")
        return replace(self, kind=kind)

    def check(self) -> None:
        """Refuse settings that contradict each other, whatever the model."""
        check_ranges(self, "positions.")
        if not self.stochastic:
            self._refuse(
                f"positions.kind={self.kind} has no noise. Leave them out, or use positions.kind=stochastic.",
                *("noise_std", "noise_to_signal", "covariance", "noise_on", "hold", "schedule", "final_level"),
            )
            return
        if self.covariance in ("untied", "diagonal", "conditional") and 0.0 in (self.noise_std, self.noise_to_signal):
            raise UserError(
                f"positions.covariance={self.covariance} learns the noise, and at noise level 0 there is none. "
                "Give a level, or leave positions.covariance out."
            )
        if self.convention == "released":
            self._refuse(
                "positions.convention=released is the authors' code as it is, with noise through A on masked tokens. "
                "Leave them out, or use positions.convention=paper.",
                *("covariance", "noise_on", "hold"),
            )
        if self.covariance != "tied":
            self._refuse(
                "only the tied covariance shrinks with A. Leave it out, or use positions.covariance=tied.", "hold"
            )
        if self.schedule == "constant":
            self._refuse(
                "positions.schedule=constant keeps the noise level as it is. Leave it out, or use "
                "positions.schedule=linear or cosine.",
                "final_level",
            )

    def _refuse(self, reason: str, *names: str) -> None:
        usual = {field.name: field.default for field in fields(self)}
        changed = [f"positions.{name}={getattr(self, name)}" for name in names if getattr(self, name) != usual[name]]
        if changed:
            raise UserError(f"{' and '.join(changed)} does not work: {reason}")


def noise_std_at_start(ratio: float, encoder_dim: int, weight_std: float = WEIGHT_STD) -> float:
    """The noise_std that gives this noise-to-signal ratio when A is new (entries of standard deviation `weight_std`).

    E‖A n‖² = noise_std² d_p d_e weight_std², and ‖ψ‖² = d_p / 2 since each sine has its cosine.
    """
    return ratio / (weight_std * math.sqrt(2 * encoder_dim))
