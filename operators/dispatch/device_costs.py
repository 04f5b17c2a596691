"""The cost of a second of each of a plan's devices, by the policy's ``prices``.

Costs follow the sizes of the queries and, if the policy learns, the latencies that devices took.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np

from control.policies.kairos.dispatch_options import LEARN, MARGINAL, PRICES
from control.policies.kairos.dispatch_rules import DeviceTable
from control.policies.kairos.latency_learning import LatencyModel
from control.policies.kairos.query_sizes import SizeDistribution, observed_sizes
from control.problem.problem import PlanError
from operators.dispatch.dispatch_profile import DispatchProfile
from schemas.pipeline import Policy

WINDOW = 10_000  # number of newest queries whose sizes count
ENOUGH_SIZES = 1_000
SIZE_CLASSES = 64
FIRST_PRICES = 64  # observations after which costs follow the learned latencies


class DeviceCosts:
    """The costs of the plan's devices in ``table``, which is None without a device."""

    __slots__ = (
        "_kinds", "_learned", "_observed", "_policy", "_priced_at", "_profile", "_sizes", "_slo_s",
        "table",
    )  # fmt: skip

    def __init__(self, profile: DispatchProfile, learned: LatencyModel) -> None:
        self.table: DeviceTable | None = None
        self._profile, self._learned = profile, learned
        self._policy: Policy | None = None
        self._kinds: Sequence[int] = ()
        self._slo_s = 0.0
        self._observed, self._priced_at = 0, FIRST_PRICES
        self._sizes: deque[int] = deque(maxlen=WINDOW)

    def change(self, policy: Policy, kinds: Sequence[int], slo_s: float) -> None:
        """Follow a plan: ``kinds`` are the indices of its devices' types in the profile."""
        self._policy, self._kinds, self._slo_s = policy, kinds, slo_s
        self.table = self._priced(policy) if kinds else None

    def add(self, size: int) -> None:
        """Take the size of a query."""
        self._sizes.append(self._profile.bounded(size))

    def recall(self, sizes: Iterable[int]) -> None:
        """Take the sizes of queries that earlier incarnations dispatched, oldest first."""
        self._sizes.extend(self._profile.bounded(size) for size in sizes)

    def learned(self) -> None:
        """Follow a latency that was learned: after twice as many of them each time, as latencies
        change less and less. Each plan prices the devices, too."""
        self._observed += 1
        if self._observed >= self._priced_at and self._policy is not None and self._kinds:
            self._priced_at = 2 * self._observed
            self.table = self._priced(self._policy)

    def threshold(self) -> int:
        """Return the largest size that every auxiliary type finishes within the SLO."""
        if self.table is None:
            return 0
        auxiliary = {
            kind for kind, base in zip(self._kinds, self.table.base, strict=True) if not base
        }
        return self._profile.within(auxiliary, self._slo_s)

    def _priced(self, policy: Policy) -> DeviceTable:
        mean_s = self._learned.mean_s if LEARN.of(policy) else self._profile.mean_s
        base, speeds = self._profile.speeds(mean_s)
        sizes = self._sizes_seen()
        if PRICES.of(policy) != MARGINAL or sizes is None:
            return DeviceTable.of(self._kinds, speeds, base)
        # Imported late: SciPy takes half a second to import, and most ingresses never dispatch.
        from control.policies.kairos.priced_devices import priced_devices
        from control.policies.kairos.throughput_bounds import ServiceTimes

        latency_s = [[mean_s(name, size) for size in sizes.sizes] for name in self._profile.types]
        times = ServiceTimes(np.array(latency_s), np.array(sizes.probabilities), self._slo_s)
        with suppress(PlanError):  # of latencies too different for the linear program
            return priced_devices(times, self._kinds, speeds, base)
        return DeviceTable.of(self._kinds, speeds, base)

    def _sizes_seen(self) -> SizeDistribution | None:
        """Return the sizes of the last ``WINDOW`` queries; the profile's if too few were seen."""
        if len(self._sizes) < ENOUGH_SIZES:
            return self._profile.sizes
        return observed_sizes(self._sizes, SIZE_CLASSES)
