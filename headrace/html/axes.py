"""Map values to pixels on a chart axis, and choose its tick values."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` on pixels ``start`` to ``end``; ``end`` may be smaller."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value; values beyond the axis map to its nearer end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return the round values on the axis, about ``most`` at most."""
        step = round_step((self.high - self.low) / most)
        first = round(self.low / step)
        values = (step * at for at in range(first, first + 3 * most))
        return [v for v in values if self.low - step * 1e-6 <= v <= self.high + step * 1e-6]


def round_step(least: float) -> float:
    """Return the smallest round number that is at least ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))


def spanning(
    values: Iterable[float], start: float, end: float, *, zero: bool = False, most: int = 6
) -> Axis:
    """Return an axis between round values that enclose ``values``, and 0 if ``zero``."""
    known = list(values)
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = min(low, 0.0) if zero else low
    if high - low < 1e-9:
        high = low + max(abs(low) * 0.1, 1e-3)
    step = round_step((high - low) / most)
    return Axis(floor(low / step + 1e-9) * step, -floor(-high / step + 1e-9) * step, start, end)


def tick_label(value: float) -> str:
    """Return the label of a tick: at most six significant digits."""
    text = f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3g}"
    return "0" if text == "-0" else text
