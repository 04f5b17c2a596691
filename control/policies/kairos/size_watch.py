"""Detect that the sizes of queries differ from the distribution that a mix was made for.

Ingress counts the sizes of its queries in classes of a sixteenth of an octave. The newest
``NEWEST`` queries are compared with the distribution in use by the two-sample test of Kolmogorov
and Smirnov, at p < 0.001 (K45 of Kairos' claims). A class has many sizes, so the share of queries
up to a size is only known as an interval, and distances are measured from the interval.
"""

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate

from control.policies.kairos.query_sizes import SizeDistribution, observed_sizes
from schemas.count_names import count_name

NEWEST = 1_000
WINDOW = 10_000  # queries behind the distribution in use
CRITICAL = 1.95  # of the statistic times sqrt(n m / (n + m)), at p = 0.001
PER_OCTAVE = 16
GOLDEN = (math.sqrt(5) - 1) / 2
COUNT = "size"  # the name of the counts in ingress' reports: "size/128"


@lru_cache(65536)
def size_count(size: int) -> str:
    """Return the name of the count of a size's class: its largest size."""
    return f"{COUNT}/{class_of(size)}"


def class_of(size: int) -> int:
    """Return the largest size of the class of a size from 1 on."""
    number = max(0, math.ceil(math.log2(size) * PER_OCTAVE) - 1)
    while _end(number) < size:
        number += 1
    return _end(number)


def _end(number: int) -> int:
    return math.floor(2 ** (number / PER_OCTAVE) + 1e-9)


class SizeWatch:
    """The newest sizes, at most ``most``. ``distribution`` is in use until ``changed`` returns
    True; a guessed one until there are ``NEWEST`` queries."""

    def __init__(self, distribution: SizeDistribution, most: int, *, guessed: bool = False) -> None:
        self.distribution = distribution
        self._most, self._guessed = most, guessed
        self._behind = WINDOW  # queries behind the distribution
        self._counts: dict[str, tuple[float, dict[int, float]]] = {}  # incarnation, counts, by node
        self._window: deque[int] = deque(maxlen=WINDOW)
        self._untested = 0  # queries since the last test

    def take(self, node: str, incarnation: float, counts: Mapping[str, float]) -> None:
        """Record the cumulative counts of an ingress.

        The first counts of an incarnation cover its whole life. They fill the window but do not
        count as a change, unless nothing was known before.
        """
        known, before = self._counts.get(node, (None, {}))
        if known != incarnation:
            before = {}
            self._counts[node] = incarnation, before
        first = known != incarnation and bool(self._window)
        news: dict[int, int] = {}
        for name, value in counts.items():
            what, of = count_name(name)
            if what == COUNT:
                news[int(of)] = int(value - before.get(int(of), 0.0))
                before[int(of)] = value
        sizes = sampled_sizes(news, WINDOW)
        self._window.extend(min(size, self._most) for size in sizes)
        self._untested += 0 if first else len(sizes)

    def forget(self, node: str) -> None:
        """Forget the counts of an ingress that is gone; its sizes stay in the window."""
        self._counts.pop(node, None)

    def changed(self) -> bool:
        """Return whether the distribution in use has been replaced: by the newest sizes after a
        change, and once more when the window has filled."""
        if len(self._window) < NEWEST or self._untested < NEWEST // 10:
            return False
        self._untested = 0
        newest = list(self._window)[-NEWEST:]
        critical = CRITICAL * math.sqrt((NEWEST + self._behind) / (NEWEST * self._behind))
        if self._guessed or distance(Counter(newest), self.distribution) > critical:
            self._window = deque(newest, WINDOW)
        elif self._behind == WINDOW or len(self._window) < WINDOW:
            return False
        self._guessed = False
        self._behind = len(self._window)
        self.distribution = observed_sizes(self._window)
        return True


def sampled_sizes(counts: Mapping[int, int], most: int) -> list[int]:
    """Return at most ``most`` of the counted sizes, ordered so that any stretch has about the
    shares of the whole: multiples of the golden ratio mod 1 order the sorted sizes."""
    total = sum(counts.values())
    kept = min(total, most)
    ranked: list[int] = []
    passed = 0
    for size in sorted(counts):
        passed += counts[size]
        ranked += [size] * (passed * kept // total - len(ranked) if total else 0)
    return [ranked[at] for at in sorted(range(kept), key=lambda at: at * GOLDEN % 1)]


def distance(classes: Mapping[int, int], against: SizeDistribution) -> float:
    """Return the statistic of Kolmogorov and Smirnov: the largest distance between the two shares
    of queries up to a size. ``classes`` are counts by the largest size of each class."""
    ends = sorted(classes)
    total = sum(classes.values())
    shares = [0.0, *(n / total for n in accumulate(classes[end] for end in ends))]
    starts = [class_start(end) for end in ends]
    found, share = 0.0, 0.0
    for size, probability in zip(against.sizes, against.probabilities, strict=True):
        least = shares[bisect_right(ends, size)]
        most = shares[bisect_right(starts, size)]
        share += probability
        found = max(found, least - share, share - most)
    return found


def class_start(end: int) -> int:
    """Return the smallest size of the class that ends at ``end``."""
    number = round(math.log2(end) * PER_OCTAVE)
    while _end(number) >= end:
        number -= 1
        if number < 0:
            return 1
    return _end(number) + 1
