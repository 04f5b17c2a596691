"""The latencies that a dispatcher decides by, per device type and query size.

``Predictions`` are the profile's latencies, corrected by what devices took.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from control.policies.kairos.latency_learning import LatencyModel
from control.policies.kairos.matching import Vector
from control.policies.kairos.query_sizes import SizeDistribution

REFRESH = 32  # observations after which a type's cached predictions are recomputed

Seconds = Callable[[str, int], float]  # device type, size -> seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchProfile:
    """The devices' profile: mean and 95th percentile latency by type and size, in seconds.

    ``largest`` is the largest profiled size, ``base`` the base type ("": the type that is fastest
    at the largest size), ``sizes`` the expected sizes, None if unknown. With ``by_variant``,
    devices of one type run variants of different speeds, and ``types`` are (type, variant) names
    (``kind_of``).
    """

    mean_s: Seconds
    worst_s: Seconds
    types: tuple[str, ...]
    largest: int = 1
    base: str = ""
    sizes: SizeDistribution | None = None
    by_variant: bool = False

    def kind_of(self, type_: str, variant: str) -> str:
        """Return the entry of ``types`` for a device that runs a variant."""
        return device_kind(type_, variant) if self.by_variant else type_

    def bounded(self, size: int) -> int:
        """Clamp a query's size to the profiled range."""
        return min(max(size, 1), self.largest)

    def speeds(self, mean_s: Seconds) -> tuple[int, Vector]:
        """Return the base type's index, and each type's relative speed at the largest size, by the
        mean latencies learned so far."""
        largest_s = np.array([mean_s(name, self.largest) for name in self.types])
        named = self.base in self.types
        base = self.types.index(self.base) if named else int(np.argmin(largest_s))
        return base, largest_s[base] / largest_s

    def within(self, kinds: Collection[int], slo_s: float) -> int:
        """Return the largest size that every one of these types finishes within the SLO."""
        fits, largest = 0, self.largest
        while fits < largest:  # bisection: latencies grow with size, apart from noise
            middle = (fits + largest + 1) // 2
            if all(self.mean_s(self.types[kind], middle) <= slo_s for kind in kinds):
                fits = middle
            else:
                largest = middle - 1
        return fits


class Predictions:
    """The mean and 95th percentile latency of each type, in seconds, as learned so far."""

    __slots__ = ("_known", "_learned", "_profile")

    def __init__(self, profile: DispatchProfile, learned: LatencyModel) -> None:
        self._profile, self._learned = profile, learned
        self._known: dict[tuple[int, int], tuple[int, float, float]] = {}

    def of(self, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the means and the 95th percentiles by type for a query of a size."""
        bounded = self._profile.bounded(size)
        found = [self._predicted(kind, bounded) for kind in range(len(self._profile.types))]
        return tuple([mean_s for mean_s, _ in found]), tuple([worst_s for _, worst_s in found])

    def forget(self, kind: int) -> None:
        """Reset a type to its profile until its devices report latencies again."""
        self._learned.forget(self._profile.types[kind])
        self._known = {at: each for at, each in self._known.items() if at[0] != kind}

    def _predicted(self, kind: int, size: int) -> tuple[float, float]:
        type_ = self._profile.types[kind]
        version = self._learned.version(type_) // REFRESH
        known = self._known.get((kind, size))
        if known is None or known[0] != version:
            mean_s = self._learned.mean_s(type_, size)
            # The profile's spread bounds the learned one from below.
            spread = self._profile.worst_s(type_, size) / self._profile.mean_s(type_, size)
            worst_s = max(self._learned.p95_s(type_, size), mean_s * spread)
            known = self._known[kind, size] = (version, mean_s, worst_s)
        return known[1], known[2]


def device_kind(type_: str, variant: str) -> str:
    """Return the name of a device type together with the variant that it runs."""
    return f"{type_} with {variant}"


def dispatch_profile(
    types: tuple[str, ...],
    seconds: Callable[[str, int, str], float],
    largest: int,
    base: str = "",
    sizes: SizeDistribution | None = None,
    by_variant: bool = False,
) -> DispatchProfile:
    """Return a ``DispatchProfile`` over ``seconds(type, size, quantile)``, with a cache."""
    known: dict[tuple[str, int, str], float] = {}

    def of(quantile: str) -> Seconds:
        def looked_up(type_: str, size: int) -> float:
            key = (type_, size, quantile)
            if key not in known:
                known[key] = seconds(type_, min(size, largest), quantile)
            return known[key]

        return looked_up

    return DispatchProfile(
        mean_s=of("mean"), worst_s=of("p95"), types=types, largest=largest, base=base, sizes=sizes,
        by_variant=by_variant,
    )  # fmt: skip
