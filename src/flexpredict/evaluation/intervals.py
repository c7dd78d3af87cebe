"""Mean and 95 % interval of a few repeated measurements."""

import math
from collections.abc import Sequence

# Student's t at 97.5 %, for 1, 2, … degrees of freedom; above, about 1 + 1.21 / freedom times the normal quantile.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.960


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and half the width of its 95 % interval (None for a single value)."""
    freedom = len(values) - 1
    mean = sum(values) / len(values)
    if freedom == 0:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / freedom)
    quantile = _T[freedom - 1] if freedom <= len(_T) else _NORMAL * (1 + 1.21 / freedom)
    return mean, quantile * deviation / math.sqrt(len(values))
