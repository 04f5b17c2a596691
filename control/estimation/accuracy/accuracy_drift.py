"""Drift: a measured accuracy that has left the interval of its profile.

A path has drifted if the 99.9 % interval of its newest measurements (``recent_accuracy.py``) and
the 95 % interval of its profile are disjoint. For measurements by shadows, the bounds of their bias
widen the measured interval (``shadow_accuracy.py``).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from control.estimation.accuracy.accuracy_sums import AccuracySums
from control.estimation.accuracy.recent_accuracy import Z_999
from control.estimation.accuracy.shadow_accuracy import bounds
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.records import AccuracyRow
from schemas.variant_id import variant_id

FEWEST = 30  # measured queries
BRANCHES, STEPS = " + ", " > "  # between the paths of a query's branches, and within a path


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The profile's accuracy of a path with its 95 % interval, 0 to 1."""

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The newest accuracy of a path with its 99.9 % interval, 0 to 1, over ``queries``.

    ``reference`` is the path of the shadows, "" for labels. ``since_s`` is the time of the oldest
    answer.
    """

    path: str
    reference: str
    queries: int
    since_s: float
    accuracy: float
    low: float
    high: float
    expected: float | None
    expected_low: float | None
    expected_high: float | None

    @property
    def drifted(self) -> bool:
        """Whether the measured interval and the profile's are disjoint."""
        if self.expected_low is None or self.expected_high is None or self.queries < FEWEST:
            return False
        return self.low > self.expected_high or self.high < self.expected_low


def row_accuracy(row: AccuracyRow) -> Measured | None:
    """Return the accuracy in a row of ``MeasuredAccuracy.recent``; None if it has no estimate."""
    sums = sums_of(row)
    agreement = sums.accuracy
    if agreement is None:
        return None
    low, high = sums.interval(Z_999)
    accuracy = agreement
    if row.reference:
        reference = row.reference_accuracy
        if reference is None:
            return None
        accuracy = agreement * reference
        nearest = min(max(reference, low), high)
        low, high = bounds(low, reference)[0], bounds(nearest, reference)[1]
    return Measured(
        path=row.path, reference=row.reference, queries=row.queries, since_s=row.hour_s,
        accuracy=accuracy, low=low, high=high, expected=row.expected,
        expected_low=row.expected_low, expected_high=row.expected_high,
    )  # fmt: skip


def all_measured(rows: Iterable[AccuracyRow]) -> list[Measured]:
    """Return the accuracies in the rows, ordered by path, labels before shadows."""
    found = [row_accuracy(row) for row in rows]
    return sorted(
        [each for each in found if each is not None], key=lambda each: (each.path, each.reference)
    )


def drifted_paths(rows: Iterable[AccuracyRow]) -> tuple[Measured, ...]:
    """Return the paths whose accuracy has left the interval of its profile."""
    return tuple(each for each in all_measured(rows) if each.drifted)


def drift_text(found: Measured) -> str:
    """Return the measured accuracy beside the profile's, in per cent."""
    low, high = found.expected_low or 0.0, found.expected_high or 1.0
    by = f"shadows along {found.reference}" if found.reference else "labels"
    return (
        f"{found.path} measures {100 * found.accuracy:.1f} % ({100 * found.low:.1f} to "
        f"{100 * found.high:.1f}) over its last {found.queries:,} {by}; its profile has "
        f"{100 * (found.expected or 0.0):.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    )


def accuracies_to_plan_by(found: Iterable[Measured]) -> dict[str, float]:
    """Return the measured accuracy by path; {} while none has drifted.

    Labels take precedence over shadows. Queries whose branches took different paths are left out,
    because plans are made for single paths.
    """
    listed = [each for each in found if each.queries >= FEWEST and BRANCHES not in each.path]
    if not any(each.drifted for each in listed):
        return {}
    by_path: dict[str, float] = {}
    for each in sorted(listed, key=lambda one: (bool(one.reference), -one.queries)):
        by_path.setdefault(each.path, each.accuracy)
    return by_path


def expected_of(table: ProfileTable, path: str) -> Expected | None:
    """Return the profile's accuracy of a path's text, as the mean over its branches.

    The sample size of the interval is the number of queries that measured the whole path, else the
    number of samples in the profile; without either, the interval is a point. Return None for a
    variant without a profile.
    """
    parts = [_along(table, tuple(part.split(STEPS))) for part in path.split(BRANCHES)]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return Expected(
        accuracy=_mean(part.accuracy for part in known),
        low=_mean(part.low for part in known),
        high=_mean(part.high for part in known),
    )


def _along(table: ProfileTable, keys: tuple[str, ...]) -> Expected | None:
    for each in table.paths:
        if each.path == keys:
            return _interval(each.accuracy, each.queries)
    try:
        accuracy = math.prod(table.accuracy(*variant_id(key)) for key in keys)
    except ProfileError:
        return None
    samples = table.provenance.get("samples")
    return _interval(accuracy, samples if isinstance(samples, int) else 0)


def _interval(accuracy: float, queries: int) -> Expected:
    if queries < 1:
        return Expected(accuracy=accuracy, low=accuracy, high=accuracy)
    right = accuracy * queries
    sums = AccuracySums(
        queries=queries, right=right, of=queries, right_right=right, right_of=right, of_of=queries
    )
    low, high = sums.interval()
    return Expected(accuracy=accuracy, low=low, high=high)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def sums_of(row: AccuracyRow) -> AccuracySums:
    """Return the sums of a row."""
    return AccuracySums(
        queries=row.queries, right=row.right, of=row.of, right_right=row.right_right,
        right_of=row.right_of, of_of=row.of_of,
    )  # fmt: skip
