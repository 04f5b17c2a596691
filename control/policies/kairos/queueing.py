"""Estimate the throughput of a mix with queueing, from the program of its fluid bound.

At the fluid bound every device is always busy, so queues grow without bound. Queries that the same
types serve within the SLO share a pool: the n devices of these types, which serve the queries that
the program sends to them, with mean service time m1 and second moment m2. If b of them are busy on
average, a query waits with Erlang's probability C(n, b), and a wait exceeds d with the probability
exp(-d / tau) of M/G/n (Lee and Longton):

    tau = m2 / (2 m1) / (n - b)               late = sum_ik y_ik C exp(-(T - t_ik) / tau)

where y_ik is the share of all queries that is of class k and served by type i. The estimate is the
highest throughput at which 1 - ``ATTAINMENT`` are late. The types that serve the largest queries
are scarce, so the program is also solved with only a share of their time, for each of ``SHARES``,
and the best estimate counts. There is no parameter to fit. The estimate is conservative: a query
whose device is busy may find another device free that the program does not use for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.policies.kairos.device_mixes import Floats
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes

ATTAINMENT = 0.99  # as of ``headrace capacity``
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
HALVINGS = 12  # of the load: to 0.03 %


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Devices and the queries sent to them: ``shares`` of all queries, each with the ``slack_s``
    that it may wait. At a load of 1 ``busy`` devices are busy; ``residual_s`` is m2 / (2 m1)."""

    devices: int
    busy: float
    residual_s: float
    shares: Floats
    slack_s: Floats

    def late(self, load: float) -> float:
        """Return the share of all queries that wait too long here."""
        busy = load * self.busy
        if busy >= self.devices:
            return float(self.shares.sum())
        tau = self.residual_s / (self.devices - busy)
        return erlang_c(self.devices, busy) * float(self.shares @ np.exp(-self.slack_s / tau))


def carried(times: ServiceTimes, mix: Sequence[int]) -> float:
    """Return the estimated throughput of a mix in queries/s; 0 if it does not serve every class."""
    fluid, counts = FluidBound(times), np.array(mix, dtype=float)
    served = times.probabilities > 0
    scarce = times.feasible[:, np.flatnonzero(served)[-1]]
    return max(_estimate(fluid, counts, np.where(scarce, share, 1.0)) for share in SHARES)


def erlang_c(devices: int, busy: float) -> float:
    """Return Erlang's C: the probability that all devices are busy, ``busy`` of them on average."""
    blocked = 1.0
    for each in range(1, devices + 1):
        blocked = busy * blocked / (each + busy * blocked)
    return blocked / (1 - busy / devices * (1 - blocked))


def _estimate(fluid: FluidBound, counts: Floats, used: Floats) -> float:
    """Return the throughput of a mix by the program in which a share of each type is ``used``."""
    shares = fluid.shares(counts * used)
    pools = _pools(fluid.times, counts, counts * used, shares)
    if not pools:
        return 0.0
    low, high = 0.0, 1 / float(used.min())
    for _ in range(HALVINGS):
        load = (low + high) / 2
        fits = sum(pool.late(load) for pool in pools) <= 1 - ATTAINMENT
        low, high = (load, high) if fits else (low, load)
    return low * fluid.exact(counts * used)


def _pools(times: ServiceTimes, counts: Floats, busy: Floats, shares: Floats) -> list[DevicePool]:
    reach = times.feasible & (shares.sum(axis=1) > 0)[:, None]
    slack_s = np.maximum(times.slo_s - times.latency_s, 0.0)
    classes = np.flatnonzero(shares.sum(axis=0) > 0)
    kinds, kind = np.unique(reach[:, classes], axis=1, return_inverse=True)
    found = []
    for at, types in enumerate(kinds.T):
        sent, seconds = shares[types], times.latency_s[types]
        here = np.ix_(types, classes[kind.ravel() == at])
        found.append(
            DevicePool(
                devices=int(counts[types].sum()),
                busy=float(busy[types].sum()),
                residual_s=float((sent * seconds**2).sum() / (sent * seconds).sum() / 2),
                shares=shares[here].ravel(),
                slack_s=slack_s[here].ravel(),
            )
        )
    return found
