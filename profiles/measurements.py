"""Measurements in a profile: latency by batch, fan-out, one variant on one device, one path.

Every value checks itself at birth and raises ``ProfileError``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from schemas.user_errors import HeadraceError
from schemas.variant_id import variant_key

EMULATED = "emulated"
QUANTILES = ("mean", "p50", "p90", "p95", "p99")


class ProfileError(HeadraceError, ValueError):
    """A profile that is inconsistent, or lacks the requested measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds that ``repeats`` runs of one batch size took."""

    batch: int
    repeats: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float

    def __post_init__(self) -> None:
        """Raise ``ProfileError`` unless sizes and times are positive and quantiles grow."""
        for count in (self.batch, self.repeats):
            if not isinstance(count, int) or count < 1:
                raise ProfileError(f"batch and repeats are whole numbers from 1, not {count!r}")
        quantiles = (self.p50_s, self.p90_s, self.p95_s, self.p99_s)
        for seconds in (self.mean_s, *quantiles):
            if not 0 < seconds < math.inf:
                raise ProfileError(f"batch {self.batch} took {seconds} s; it must be above 0")
        if list(quantiles) != sorted(quantiles):
            raise ProfileError(
                f"batch {self.batch}: p50, p90, p95 and p99 are {quantiles}; each must be at least "
                "the one before"
            )


@dataclass(frozen=True, slots=True)
class FanOut:
    """Items for one child: the mean for plans, the distribution for emulation."""

    mean: float
    counts: Mapping[int, float]  # number of items -> probability

    def __post_init__(self) -> None:
        """Raise ``ProfileError`` unless the counts are a distribution over 0, 1, 2 ..."""
        if not 0 <= self.mean < math.inf:
            raise ProfileError(f"a mean fan-out of {self.mean} is none; it must be 0 or above")
        if not self.counts or min(self.counts) < 0:
            raise ProfileError(f"fan-out counts {dict(self.counts)} must name numbers from 0 up")
        total = math.fsum(self.counts.values())
        if min(self.counts.values()) < 0 or not math.isclose(total, 1, abs_tol=1e-6):
            raise ProfileError(f"the probabilities of a fan-out sum to {total:g}; it must be 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The measurements of one variant on one device.

    ``load_s`` is the loading time with the libraries imported already, ``memory_bytes`` the growth
    of a fresh process, imports included (on a GPU: of its memory there, 0 if unknown).
    """

    task: str
    variant: str
    device: str
    operator: str
    weights_sha256: str  # "" where the variant has no weights
    load_s: float
    memory_bytes: int
    accuracy: float  # 0..1
    children: Mapping[str, FanOut]
    latency: tuple[Latency, ...]  # by growing batch

    @property
    def key(self) -> str:
        """The variant's text form, "task/variant"."""
        return variant_key(self.task, self.variant)

    def __post_init__(self) -> None:
        """Raise ``ProfileError``, naming the entry, for impossible measurements."""
        if not 0 <= self.accuracy <= 1:
            raise ProfileError(f"{self.name}: accuracy is {self.accuracy}; it must be in 0..1")
        if not 0 <= self.load_s < math.inf or not 0 <= self.memory_bytes < math.inf:
            raise ProfileError(f"{self.name}: load time and memory must be 0 or above")
        if not self.latency:
            raise ProfileError(f"{self.name}: no latency was measured; run `headrace profile`")
        batches = [row.batch for row in self.latency]
        if any(a >= b for a, b in pairwise(batches)):
            raise ProfileError(f"{self.name}: batches are {batches}; they must grow")

    @property
    def name(self) -> str:
        """The name in messages: "task/variant on device"."""
        return f"{variant_key(self.task, self.variant)} on {self.device}"

    @property
    def largest(self) -> int:
        """The largest measured batch."""
        return self.latency[-1].batch


@dataclass(frozen=True, slots=True)
class PathAccuracy:
    """The accuracy of a whole path of variants, root to leaf, over a number of queries."""

    path: tuple[str, ...]  # "task/variant"
    accuracy: float  # 0..1
    queries: int

    def __post_init__(self) -> None:
        """Raise ``ProfileError``, naming the path, for impossible measurements."""
        if not self.path or not 1 <= self.queries < math.inf or not 0 <= self.accuracy <= 1:
            raise ProfileError(
                f"the path {' > '.join(self.path) or '(empty)'} has accuracy {self.accuracy} over "
                f"{self.queries} queries; it must be in 0..1 over 1 or more"
            )
