"""Accuracy of labelled answers from sums over queries, with an interval.

A label gives the number of right parts of an answer: r_i of o_i. The accuracy is
p = sum r / sum o. Errors in the parts of one answer are correlated, so the sampling unit is the
query, not the part: the interval is Wilson's with the effective number of trials

    n* = p (1 - p) (sum o)^2 / sum (r_i - p o_i)^2

of the ratio estimator (Korn and Graubard, "Confidence intervals for proportions with small expected
number of positive counts estimated from survey data", 1998). With one part per query, n* is the
number of queries and the interval is the usual Wilson interval.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

Z_95 = 1.959964  # of the normal distribution, two-sided 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracySums:
    """Sums over labelled queries of parts right, parts, and their products."""

    queries: int = 0
    right: float = 0.0
    of: float = 0.0
    right_right: float = 0.0
    right_of: float = 0.0
    of_of: float = 0.0

    def plus(self, right: float, of: float) -> "AccuracySums":
        """Return the sums with one more query, ``right`` of ``of`` parts of which are right."""
        one = AccuracySums(
            queries=1, right=right, of=of, right_right=right * right, right_of=right * of,
            of_of=of * of,
        )  # fmt: skip
        return merged_sums((self, one))

    @property
    def accuracy(self) -> float | None:
        """The share of right parts, 0 to 1; None without a part."""
        return min(1.0, self.right / self.of) if self.of else None

    def interval(self, z: float = Z_95) -> tuple[float, float]:
        """Return the lower and upper bound of the accuracy; (0, 1) without a part."""
        p = self.accuracy
        if p is None:
            return 0.0, 1.0
        n = self._trials(p)
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))

    def _trials(self, p: float) -> float:
        """Return the effective number of trials: between 1 and the number of parts or queries."""
        spread = self.right_right - 2 * p * self.right_of + p * p * self.of_of
        most = max(float(self.queries), self.of)
        if p in (0.0, 1.0):
            return float(self.queries)
        if spread <= 0.0:
            return most
        return min(most, max(1.0, p * (1 - p) * self.of**2 / spread))


def merged_sums(parts: Iterable[AccuracySums]) -> AccuracySums:
    """Return the sums over the queries of all ``parts``."""
    found = list(parts)
    return AccuracySums(
        queries=sum(each.queries for each in found),
        right=sum(each.right for each in found),
        of=sum(each.of for each in found),
        right_right=sum(each.right_right for each in found),
        right_of=sum(each.right_of for each in found),
        of_of=sum(each.of_of for each in found),
    )
