"""Learning rate, weight decay, momentum and noise level as pure functions of the step."""

import math
from typing import Literal

from flexpredict.settings.optimizer import SettledOptimizer


def warmup_cosine(step: int, steps: int, warmup: int, start: float, peak: float, final: float) -> float:
    """A straight line from start to peak over `warmup` steps, then half a cosine down to final."""
    if step < warmup:
        return start + (peak - start) * step / warmup
    return cosine(step - warmup, steps - warmup, peak, final)


def cosine(step: int, steps: int, start: float, final: float) -> float:
    """Half a cosine from start (step 0) to final (step `steps`)."""
    return final + (start - final) * 0.5 * (1.0 + math.cos(math.pi * min(step / max(steps, 1), 1.0)))


def linear(step: int, steps: int, start: float, final: float) -> float:
    """A straight line from start (step 0) to final (step `steps`)."""
    return start + (final - start) * min(step / max(steps, 1), 1.0)


def ema_momentum(step: int, steps: int, settings: SettledOptimizer) -> float:
    """The momentum of the target encoder's moving average."""
    momentum = linear(step, steps, settings.ema_momentum, settings.final_ema_momentum)
    return min(momentum, (1 + step) / (10 + step)) if settings.ema_by_steps else momentum


def noise_share(schedule: Literal["constant", "linear", "cosine"], step: int, steps: int, final: float) -> float:
    """The noise level as a share of that at the start."""
    if schedule == "constant":
        return 1.0
    return {"linear": linear, "cosine": cosine}[schedule](step, steps, 1.0, final)
