"""Latency histogram: the bucket counts that reports carry, and quantiles computed from them."""

from bisect import bisect_left
from collections.abc import Mapping

# Each a fifth above the one before, so a quantile is within about a tenth: 0.1 ms to 100 s.
_BOUNDS_S = tuple(1e-4 * 2 ** (step / 4) for step in range(81))
_NAMES = (*(f"latency_s/{bound:.4g}" for bound in _BOUNDS_S), "latency_s/inf")


def bucket(latency_s: float) -> str:
    """Return the name of a latency's bucket: "latency_s/" and the bucket's upper bound."""
    return _NAMES[bisect_left(_BOUNDS_S, latency_s)]


def quantile_s(counts: Mapping[str, float], quantile: float) -> float | None:
    """Return the latency that a fraction ``quantile`` (0..1) does not exceed; None without counts.

    Interpolates linearly within a bucket; latencies above the highest bound count as that bound.
    ``counts`` may be rates, and may contain other names.
    """
    held = [(i, counts[name]) for i, name in enumerate(_NAMES) if counts.get(name, 0.0) > 0]
    left = quantile * sum(count for _, count in held)
    for i, count in held:
        if left <= count:
            return _between(i, left / count)
        left -= count
    return _between(held[-1][0], 1.0) if held else None


def _between(i: int, part: float) -> float:
    high = _BOUNDS_S[min(i, len(_BOUNDS_S) - 1)]
    low = _BOUNDS_S[i - 1] if i else 0.0
    return low + part * (high - low)
