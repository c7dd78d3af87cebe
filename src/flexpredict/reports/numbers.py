"""Formats numbers and settings for people."""

import math
from collections.abc import Mapping
from typing import Any

from flexpredict.runs.series import is_finite


def format_number(value: float, digits: int = 3, unit: str = "") -> str:
    """`12.3k`, `0.120`, `8.00×10⁻⁴`: SI prefixes where they are customary, powers of ten elsewhere.

    All but whole numbers keep trailing zeros, so that adjacent numbers look alike.
    """
    if not is_finite(value):
        return "not finite"
    whole = value == 0 or (value == int(value) and not unit)
    # Round before choosing the prefix, or 999.9 would become 1000 instead of 1k.
    value = float(f"{value:.{digits - 1}e}")
    size = abs(value)
    if value != 0 and (size < 1e-3 or size >= 1e15):
        exponent = math.floor(math.log10(size))
        return f"{_plain(value / 10.0**exponent, digits, whole)}×10{_superscript(exponent)}{unit}"
    scale, prefix = _prefix(size)
    return _plain(value / scale, digits, whole) + prefix + unit


def percent(share: float) -> str:
    """Formats a share between 0 and 1."""
    return format_number(100 * share, unit="%")


def said(value: Any) -> str:
    """A setting or a result as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {said(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(said(item) for item in value)
    return str(value)


def position_kind(config: Mapping[str, Any]) -> str:
    """The kind of positions in a recipe; empty if not set."""
    positions = config.get("positions")
    kind = positions.get("kind") if isinstance(positions, dict) else positions
    return said(kind) if kind else ""


def _plain(value: float, digits: int, whole: bool) -> str:
    text = f"{value:.{digits}g}" if whole else f"{value:#.{digits}g}".removesuffix(".")
    return text.replace("-", "−")


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _prefix(size: float) -> tuple[float, str]:
    for scale, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= scale:
            return scale, sign
    return 1.0, ""
