"""The distribution of query sizes, from a file or from recent queries.

A size is the quantity that a query's latency depends on: samples to rank, tokens, pixels.
Distributions are over classes: the upper end of each class and its probability.
"""

import csv
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from schemas.user_errors import HeadraceError

HEADER = ["size", "probability"]
LARGEST = 10**9
TOLERANCE = 1e-3  # of the sum of the probabilities; they are normalised


class SizesError(HeadraceError, ValueError):
    """Raised for invalid sizes; the message names the place."""


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """Sizes in ascending order and the probability of each; probabilities sum to 1.

    Raises ``SizesError`` for sizes that are not whole numbers from 1, or not ascending, and for
    probabilities that are negative or all 0.
    """

    sizes: tuple[int, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.sizes or len(self.sizes) != len(self.probabilities):
            raise SizesError("a size distribution needs one size at least, each with a probability")
        if any(a >= b for a, b in pairwise(self.sizes)):
            raise SizesError("sizes must ascend and be named once; sort them")
        if self.sizes[0] < 1 or self.sizes[-1] > LARGEST:
            raise SizesError(
                f"sizes run from {self.sizes[0]} to {self.sizes[-1]}; they must be 1 to {LARGEST}"
            )
        total = math.fsum(self.probabilities)
        if min(self.probabilities) < 0 or not 0 < total < math.inf:
            raise SizesError("probabilities must be 0 or above, and one of them above 0")
        normalised = tuple(p / total for p in self.probabilities)
        object.__setattr__(self, "probabilities", normalised)

    @property
    def mean(self) -> float:
        """The mean size."""
        return math.fsum(s * p for s, p in zip(self.sizes, self.probabilities, strict=True))

    def quantile(self, share: float) -> int:
        """Return the smallest size that at least ``share`` of the queries do not exceed."""
        cumulative = list(accumulate(self.probabilities))
        at = bisect_left(cumulative, share - 1e-12)
        return self.sizes[min(at, len(self.sizes) - 1)]

    def drawn(self, uniform: float) -> int:
        """Return the size for a uniform draw from [0, 1)."""
        return self.quantile(uniform)


def observed_sizes(sizes: Iterable[int], most_classes: int = 256) -> SizeDistribution:
    """Return the distribution of observed sizes, in at most ``most_classes`` classes.

    With more distinct sizes, neighbours share a class, represented by its largest size. Raises
    ``SizesError`` if ``sizes`` is empty.
    """
    counts: dict[int, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    ordered = sorted(counts)
    if not ordered:
        raise SizesError("no sizes were observed; name a file of sizes instead")
    width = -(-len(ordered) // most_classes)
    classes = [ordered[at : at + width] for at in range(0, len(ordered), width)]
    return SizeDistribution(
        tuple(group[-1] for group in classes),
        tuple(float(sum(counts[size] for size in group)) for group in classes),
    )


def parsed_sizes(text: str, name: str) -> SizeDistribution:
    """Parse a CSV with the header ``size,probability``.

    ``name`` is the file name for messages. Raises ``SizesError`` with the line number.
    """
    rows = [row for row in csv.reader(text.splitlines())]
    if not rows or [cell.strip() for cell in rows[0]] != HEADER:
        raise SizesError(f"{name}:1: the header must be size,probability; add it")
    pairs = [_pair(row, f"{name}:{line}") for line, row in enumerate(rows[1:], 2)]
    if not pairs:
        raise SizesError(f"{name} has a header only; add a line for every size, as in 10,0.25")
    total = math.fsum(probability for _, probability in pairs)
    if abs(total - 1) > TOLERANCE:
        raise SizesError(f"{name}: the probabilities sum to {total:g}; they must sum to 1")
    try:
        return SizeDistribution(tuple(s for s, _ in pairs), tuple(p for _, p in pairs))
    except SizesError as error:
        raise SizesError(f"{name}: {error}") from error


def _pair(row: Sequence[str], where: str) -> tuple[int, float]:
    if len(row) != len(HEADER):
        raise SizesError(f"{where}: {','.join(row)!r} is no line size,probability, as in 10,0.25")
    try:
        size, probability = int(row[0]), float(row[1])
    except ValueError as error:
        raise SizesError(
            f"{where}: {','.join(row)!r}: a size is a whole number and a probability a number"
        ) from error
    if not 1 <= size <= LARGEST:
        raise SizesError(f"{where}: size {size} must be from 1 to {LARGEST}")
    if not 0 <= probability <= 1:
        raise SizesError(f"{where}: probability {row[1].strip()} must be from 0 to 1")
    return size, probability
