"""Draw charts as SVG without scripts: lines over time, distributions, points with intervals.

Colours are classes (``s0`` to ``s7``) that ``headrace/html/page.py`` defines for light and dark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
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


WIDTH, HEIGHT, SPOTS_HEIGHT = 920.0, 250.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 72.0, 16.0, 14.0, 44.0
CHARACTER = 7.0  # approximate width of a label's character, pixels
LINE = 15.0  # vertical distance between labels, pixels

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A named series of points; None makes a gap. ``steps``: a value holds until the next one."""

    name: str
    css: str
    points: Sequence[Point]
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """A point with the half-width of its interval in x (0: none) and what its interval in y has
    below and above it; drawn small if it has no name."""

    name: str
    css: str
    x: float
    y: float
    half_x: float = 0.0
    below_y: float = 0.0
    above_y: float = 0.0


@dataclass(frozen=True, slots=True)
class UprightLine:
    """A labelled vertical line at a value of the x axis."""

    x: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLabels:
    """Axis labels with units; ``about`` describes the chart for screen readers."""

    x: str
    y: str
    about: str


def line_chart(
    lines: Sequence[ChartLine], labels: ChartLabels, *,
    zero: bool = True, rules: Sequence[UprightLine] = (),
    height: float = HEIGHT, x_most: float | None = None, holds: Sequence[float] = (),
) -> str:  # fmt: skip
    """Draw lines over a common x axis; the y axis includes 0 if ``zero``, and all of ``holds``."""
    across = [x for line in lines for x, _ in line.points] + [rule.x for rule in rules]
    if x_most is not None:
        across = [x for x in across if x <= x_most] + [x_most]
    x_axis = spanning(across, LEFT, WIDTH - RIGHT, zero=True, most=10)
    x_axis = Axis(x_axis.low, max(across, default=1.0), LEFT, WIDTH - RIGHT)
    up = [y for line in lines for _, y in line.points if y is not None]
    y_axis = spanning([*up, *holds] or [0.0, 100.0], height - BOTTOM, TOP, zero=zero, most=5)
    parts = [_frame(x_axis, y_axis, labels, height)]
    parts += [_upright(rule, x_axis, height) for rule in rules]
    parts += [_line(line, x_axis, y_axis) for line in lines]
    return _svg(parts, labels.about, height)


def spot_chart(spots: Sequence[Spot], labels: ChartLabels, *, x_most: float = 100.0) -> str:
    """Draw labelled points in a plane; y is a percentage, and x is from 0 to ``x_most``."""
    across = _reach(((s.x - s.half_x, s.x + s.half_x) for s in spots), x_most)
    x_axis = spanning(across, LEFT, WIDTH - 130.0, most=8)
    up = _reach(((s.y - s.below_y, s.y + s.above_y) for s in spots), 100.0)
    y_axis = spanning(up, SPOTS_HEIGHT - BOTTOM, TOP, most=5)
    parts = [_frame(x_axis, y_axis, labels, SPOTS_HEIGHT)]
    parts += [_spot(spot, x_axis, y_axis) for spot in spots]
    parts += _names([spot for spot in spots if spot.name], x_axis, y_axis)
    return _svg(parts, labels.about, SPOTS_HEIGHT)


def _svg(parts: Iterable[str], about: str, height: float) -> str:
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escape(about)}">{"".join(parts)}</svg></div>'
    )


def _frame(x_axis: Axis, y_axis: Axis, labels: ChartLabels, height: float) -> str:
    floor_px, right = y_axis.start, x_axis.end
    parts = []
    for value in y_axis.ticks(5):
        y = y_axis.at(value)
        parts.append(
            f'<line class="grid" x1="{LEFT:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">'
            f"{tick_label(value)}</text>"
        )
    for value in x_axis.ticks(10):
        x = x_axis.at(value)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{floor_px + 17:g}" text-anchor="middle">'
            f"{tick_label(value)}</text>"
        )
    middle = (TOP + floor_px) / 2
    parts.append(
        f'<line class="axis" x1="{LEFT:g}" x2="{right:g}" y1="{floor_px:g}" y2="{floor_px:g}"/>'
        f'<text class="label" x="{(LEFT + right) / 2:g}" y="{height - 8:g}" '
        f'text-anchor="middle">{escape(labels.x)}</text>'
        f'<text class="label" transform="translate(14 {middle:g}) rotate(-90)" '
        f'text-anchor="middle">{escape(labels.y)}</text>'
    )
    return "".join(parts)


def _line(line: ChartLine, x_axis: Axis, y_axis: Axis) -> str:
    """Draw a line within the x axis, broken at its gaps."""
    pieces = []
    shown = [point for point in line.points if x_axis.low <= point[0] <= x_axis.high]
    for known, group in groupby(shown, key=lambda point: point[1] is not None):
        if known:
            places = [(x_axis.at(x), y_axis.at(y or 0.0)) for x, y in group]
            pieces.append("M" + _path(places, line.steps))
    drawn = f'<path d="{"".join(pieces)}"/>' if pieces else ""
    return f'<g class="line {line.css}"><title>{escape(line.name)}</title>{drawn}</g>'


def _path(places: Sequence[tuple[float, float]], steps: bool) -> str:
    if not steps:
        # A path of one point would be invisible.
        ends = places if len(places) > 1 else [*places, (places[0][0] + 1, places[0][1])]
        return "L".join(f"{x:.1f} {y:.1f}" for x, y in ends)
    (x, y), *rest = places
    text = f"{x:.1f} {y:.1f}"
    for after, height in rest:
        text += f"V{height:.1f}H{after:.1f}"
    return text if rest else f"{text}h1"


def _upright(rule: UprightLine, x_axis: Axis, height: float) -> str:
    x, base = x_axis.at(rule.x), height - BOTTOM - 8
    return (
        f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:g}" y2="{height - BOTTOM:g}"/>'
        f'<text class="tick over" x="{x + 5:.1f}" y="{base:g}">{escape(rule.name)}</text>'
    )


def _reach(intervals: Iterable[tuple[float, float]], most: float) -> list[float]:
    return [min(max(edge, 0.0), most) for interval in intervals for edge in interval]


def _spot(spot: Spot, x_axis: Axis, y_axis: Axis) -> str:
    x, y = x_axis.at(spot.x), y_axis.at(spot.y)
    if not spot.name:
        return f'<circle class="small {spot.css}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    left, right = x_axis.at(spot.x - spot.half_x), x_axis.at(spot.x + spot.half_x)
    low, high = y_axis.at(spot.y - spot.below_y), y_axis.at(spot.y + spot.above_y)
    return (
        f'<g class="spot {spot.css}"><title>{escape(spot.name)}</title>'
        f'<path d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/></g>'
    )


def _names(spots: Sequence[Spot], x_axis: Axis, y_axis: Axis) -> list[str]:
    """Place names to the right of their points, moved down until they do not overlap."""
    placed: list[tuple[float, float, float]] = []  # left, right, base line
    parts = []
    for spot in sorted(spots, key=lambda each: (-each.y, each.x)):
        left = x_axis.at(spot.x) + 11
        right, base = left + CHARACTER * len(spot.name), y_axis.at(spot.y) + 4
        while any(a < right and left < b and abs(base - at) < LINE for a, b, at in placed):
            base += 2.0
        placed.append((left, right, base))
        name = escape(spot.name)
        parts.append(f'<text class="name {spot.css}" x="{left:.1f}" y="{base:.1f}">{name}</text>')
    return parts
