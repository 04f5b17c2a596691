"""Where does a value stand in a chart, and which values are written beside its axes?"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` on pixels from ``start`` to ``end`` (which may be less)."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value; of one beyond the axis, that of its end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values on the axis, at most about so many."""
        step = round_step((self.high - self.low) / most)
        first = round(self.low / step)
        values = (step * at for at in range(first, first + 3 * most))
        return [v for v in values if self.low - step * 1e-6 <= v <= self.high + step * 1e-6]


def round_step(least: float) -> float:
    """The smallest round number that is no less."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in STEPS if step * power >= least * (1 - 1e-9))


def spanning(
    values: Iterable[float], start: float, end: float, *, zero: bool = False, most: int = 6
) -> Axis:
    """An axis from a round value below all of them (0 if ``zero``) to a round one above."""
    known = list(values)
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = min(low, 0.0) if zero else low
    if high - low < 1e-9:
        high = low + max(abs(low) * 0.1, 1e-3)
    step = round_step((high - low) / most)
    return Axis(floor(low / step + 1e-9) * step, -floor(-high / step + 1e-9) * step, start, end)


def tick_label(value: float) -> str:
    """A value beside an axis: no more digits than it needs."""
    text = f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3g}"
    return "0" if text == "-0" else text
