"""The devices of a mix, with costs by the fluid bound (``prices: marginal``)."""

from collections.abc import Sequence

import numpy as np

from control.policies.kairos.device_mixes import Floats
from control.policies.kairos.dispatch_rules import DeviceTable
from control.policies.kairos.matching import Blocking, Vector, device_costs
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes


def priced_devices(
    times: ServiceTimes, kinds: Sequence[int], speeds: Vector, base: int
) -> DeviceTable:
    """Return the table of devices of types ``kinds``, rows of ``times``; ``speeds`` are C_j by
    type, ``base`` is the base type."""
    mix = np.bincount(kinds, minlength=len(speeds)).astype(float)
    fluid = FluidBound(times)
    costs = device_costs(speeds, fluid.marginal(mix))
    return DeviceTable.of(kinds, costs, base, blocking_of(times, kinds, fluid.exact(mix)))


def blocking_of(times: ServiceTimes, kinds: Sequence[int], qps: float) -> tuple[Blocking, ...]:
    """Return the types of a mix whose queries keep others waiting for too long, at a throughput."""
    present = sorted(set(kinds))
    serves = times.feasible[present]
    found = []
    for kind, own in zip(present, serves, strict=True):
        alone = own & (serves.sum(axis=0) == 1) & (times.probabilities > 0)
        latency_s = times.latency_s[kind]
        may_wait_s = times.slo_s - latency_s[alone]
        longest_s = float(latency_s[own].max(initial=0.0))
        if len(present) > 1 and longest_s > may_wait_s.min(initial=np.inf):
            devices = tuple(j for j, each in enumerate(kinds) if each == kind)
            found.append(
                _blocking(devices, may_wait_s, qps * times.probabilities[alone], longest_s)
            )
    return tuple(found)


def _blocking(
    devices: tuple[int, ...], may_wait_s: Floats, qps: Floats, longest_s: float
) -> Blocking:
    busy_s = np.unique([*may_wait_s[may_wait_s < longest_s], longest_s])
    late = np.maximum(busy_s[:, None] - may_wait_s, 0.0) @ qps
    return Blocking(devices, busy_s, late)
