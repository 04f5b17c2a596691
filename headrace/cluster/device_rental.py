"""Rent and release devices of types while ``headrace up`` runs a pipeline (``cluster.scale``).

A rented device is a worker of its type on this machine. It starts when the boot time of its type
has passed; a released one hands over its work and ends. ``control/policies/kairos/renting.py``
decides.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import numpy as np

from control.policies import policy_named
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.renting import MEMORY_S, Mix, change_of, wanted_mix
from control.policies.kairos.throughput_bounds import FluidBound
from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import Role, rented_worker
from headrace.planning.device_mix import MixRequest, pool_of
from headrace.status.readiness import SETTLED
from schemas.codec.single_object import CodecError, decode
from schemas.records import Report
from streams.observers.metrics import Sample

DECIDE_EVERY_S = 1.0
RATE_OVER_S = 3.0  # a Poisson process at 20/s then errs by 13 %


class ReportsTopic(Protocol):
    """A follower of the reports topic."""

    def take(self, timeout_s: float) -> list[bytes]:
        """Return the new records."""

    def close(self) -> None:
        """End reading."""


class Fleet(Protocol):
    """Starts and ends the workers of rented devices."""

    def start_at(self, role: Role, due_s: float) -> None:
        """Start a role at a time of the fleet's clock."""

    def retire(self, name: str) -> None:
        """End a role for good."""


class ArrivalPeak:
    """The highest arrival rate of the last ``MEMORY_S`` seconds, from counts that only grow."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, float], float] = {}  # by ingress and its incarnation
        self._totals: deque[tuple[float, float]] = deque()  # time, queries up to then
        self._rates: deque[tuple[float, float]] = deque()

    def expect(self, rate_qps: float, now: float) -> None:
        """Take a rate that was not counted."""
        self._rates.append((now, rate_qps))

    def see(self, report: Report) -> None:
        """Take the count of an ingress."""
        if report.role == "ingress":
            self._counts[report.node, report.incarnation] = report.counts.get("arrived", 0.0)

    def qps(self, now: float) -> float:
        """Return the peak; call it about once a second."""
        totals, rates = self._totals, self._rates
        totals.append((now, sum(self._counts.values())))
        while now - totals[0][0] > RATE_OVER_S:
            before = totals.popleft()
            rates.append((now, (totals[-1][1] - before[1]) / (now - before[0])))
        while rates and now - rates[0][0] > MEMORY_S:
            rates.popleft()
        return max([rate for _, rate in rates], default=0.0)


class DeviceRental:
    """The rented devices of a run. Call ``tend`` a few times a second."""

    def __init__(
        self,
        file: PipelineFile,
        fleet: Fleet,
        reports: ReportsTopic,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert file.cluster.budget is not None
        self._pool: Pool = pool_of(file, MixRequest())[0]
        self._budget = file.cluster.budget
        policy = policy_named(file.pipeline, file.pipeline.policy)
        self._headroom = policy.headroom if policy else 1.0
        self._boot_s = {each.name: each.boot_s for each in file.cluster.types}
        self._fleet, self._reports, self._said, self._clock = fleet, reports, said, clock
        started = dict(file.cluster.devices)
        self._names: dict[str, list[str]] = {
            each.name: [rented_worker(each.name, n).name for n in range(started.get(each.name, 0))]
            for each in self._pool.types
        }
        self._numbers = {name: count(len(there)) for name, there in self._names.items()}
        self._ready: set[str] = set()
        self._decide_s = 0.0
        self.wanted: Mix = self.present
        # Until demand has been seen for a while, the mix of the start counts as needed.
        bound_qps = FluidBound(self._pool.times).exact(np.array(self.present, dtype=float))
        self._peak = ArrivalPeak()
        self._peak.expect(bound_qps / self._headroom, clock())

    @property
    def present(self) -> Mix:
        """The devices that run or boot, by type."""
        return tuple(len(there) for there in self._names.values())

    def close(self) -> None:
        """End reading reports; what was rented stays."""
        self._reports.close()

    def samples(self) -> Iterator[Sample]:
        """Yield the metric of the wanted workers by type."""
        for type_, wanted in zip(self._pool.types, self.wanted, strict=True):
            yield "workers_wanted", (type_.name,), float(wanted)

    def tend(self) -> None:
        """Read reports; once a second rent and release."""
        for value in self._reports.take(0.0):
            self._see(value)
        now = self._clock()
        if now < self._decide_s:
            return
        self._decide_s = now + DECIDE_EVERY_S
        demand_qps = self._peak.qps(now)
        self.wanted = wanted_mix(self._pool, demand_qps, self._headroom, self._budget, self.present)
        change = change_of(self._pool, self._budget, self.present, self._serving, self.wanted)
        for type_, rented, released in zip(
            self._pool.types, change.rent, change.release, strict=True
        ):
            if rented or released:
                what = f"{rented} rented" if rented else f"{released} released"
                self._said(f"{demand_qps:.1f} queries/s: {type_.name}: {what}")
            self._rent(type_.name, rented, now)
            self._release(type_.name, released)

    def _rent(self, type_: str, devices: int, now: float) -> None:
        for _ in range(devices):
            role = rented_worker(type_, next(self._numbers[type_]))
            self._names[type_].append(role.name)
            self._fleet.start_at(role, now + self._boot_s[type_])

    def _release(self, type_: str, devices: int) -> None:
        for _ in range(devices):
            name = self._names[type_].pop()  # the newest, which may boot still
            self._ready.discard(name)
            self._fleet.retire(name)

    @property
    def _serving(self) -> Mix:
        return tuple(sum(name in self._ready for name in there) for there in self._names.values())

    def _see(self, value: bytes) -> None:
        try:
            report = decode(value)
        except CodecError:  # a reader of another release; its next plan says so
            return
        if isinstance(report, Report):
            self._peak.see(report)
            if report.role == "worker" and report.state in SETTLED:
                self._ready.add(report.node)
