"""Run a pipeline in virtual time: its nodes, arrivals, faults and metrics.

The nodes are those that run live; ``streams/simulated/simulated_driver.py`` replaces Kafka, clock
and devices. The result is a function of the ``Run``: equal runs give equal metrics on any machine,
except for CPU seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from control.checks.structure_check import check_structure
from control.checks.violations import sentences
from headrace.arrivals.arrival_processes import Times
from headrace.config.cluster import NOBODY
from headrace.config.cluster_cost import run_costs
from headrace.errors import PipelineError
from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.simulation.faults import (
    BROKER_PAUSE,
    CONTROL_DOWN,
    DEATH,
    SLOW,
    Fault,
    random_faults,
    with_bursts,
)
from headrace.simulation.rented_fleet import LEAVE_S, RentedFleet
from headrace.simulation.run_input import Run, queries, stamped, start_times
from headrace.simulation.simulation_nodes import CONTROL, SimulatedNodes, VirtualSolver
from headrace.simulation.warm_start import GivenPlan, filed
from headrace.status.readiness import Readiness
from schemas.effects import QUERIES, Arrived, Effect, Event, Observer, Send
from streams.control_app.host import RESTORED, ControlHost
from streams.cpu_seconds import cpu_seconds
from streams.observers.run_metrics import RunMetrics
from streams.simulated.simulated_driver import Simulated
from streams.simulated.world import rate_of
from streams.topics import physical, topics

START_WITHIN_S = 120.0  # virtual: arrivals begin then at the latest, ready or not
SETTLE_S = 1.0  # between readiness and the first arrival
SLICE_S = 0.25  # arrivals are added in slices of this length
PATIENCE_S = 1.0  # wait for answers after the last query's deadline and grace

Advance = Callable[[int], None]  # called with the number of queries sent
Watch = Callable[[RunMetrics], Observer]


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a run."""

    metrics: RunMetrics
    queries: int
    devices_mean: float
    events: int
    cpu_s: float  # without solves
    solve_cpu_s: float
    first_s: float  # virtual time at which the arrivals began
    last_s: float  # and at which the last query arrived
    usd_per_h: float | None = None  # mean cost of devices that were rented while it ran

    def as_json(self, run: Run) -> dict[str, Any]:
        """Return the run's row, with the keys of ``headrace simulate --json``."""
        metrics, counts = self.metrics, self.metrics.counts
        row: dict[str, Any] = {"policy": run.policy, "seed": run.seed, "queries": self.queries}
        row |= counts
        row["violation"] = _rounded(metrics.violation)
        row["branch_violation"] = _rounded(metrics.branch_violation)
        row["accuracy"] = _rounded(metrics.accuracy)
        row["accuracy_leaf_mean"] = _rounded(metrics.accuracy_leaf_mean)
        row["devices_mean"] = round(self.devices_mean, 3)
        row |= {f"p{n}_ms": metrics.latency_ms(n / 100) for n in (50, 95, 99)}
        row["stage_queries"] = metrics.stage_queries
        if run.file.pipeline.slo_classes:
            row["classes"] = metrics.classes
        seconds = self.last_s - self.first_s - run.warm_up_s
        row |= run_costs(run.file.cluster, metrics.counts["answered"], seconds, self.usd_per_h)
        row["events"] = self.events
        row["cpu_seconds"] = round(self.cpu_s, 3)
        row["solve_cpu_seconds"] = round(self.solve_cpu_s, 3)
        if run.warm_up_s:
            row["warm_up_s"] = run.warm_up_s
        return row


def simulated(
    run: Run, advance: Advance, observers: Sequence[Observer] = (), watch: Watch | None = None
) -> Ended:
    """Play a run to its end; ``watch`` makes an observer from the run's metrics.

    Raises ``PipelineError`` if a variant has no profile.
    """
    began = cpu_seconds()
    played = _Simulation(run, observers, watch)
    times = played.play(advance)
    counted = int(len(times) - np.searchsorted(times, run.warm_up_s))
    metrics = played.metrics
    metrics.close(counted)
    last_s = played.first_s + (float(times[-1]) if len(times) else 0.0)
    return Ended(
        metrics,
        counted,
        metrics.devices_mean(last_s),
        played.system.events,
        cpu_seconds() - began - played.solver.cpu_s,
        played.solver.cpu_s,
        played.first_s,
        last_s,
        played.usd_per_h,
    )


class _Records:
    """An observer that passes the records that are sent to ``Readiness``."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self._readiness.see(e.record for e in effects if type(e) is Send)


class _Simulation:
    """A run under way."""

    def __init__(self, run: Run, observers: Sequence[Observer], watch: Watch | None) -> None:
        self.run = run
        self.first_s = self._last_s = 0.0
        self._first_usd = self._last_usd = 0.0
        self._faults: list[Fault] = []  # under way
        self.nodes = SimulatedNodes(run, lambda: self.system.now, lambda: self.first_s)
        self.pipeline, self.devices = self.nodes.pipeline, self.nodes.devices
        self.solver = VirtualSolver(run.solve_s, run.dilate)
        self.metrics = RunMetrics(self.pipeline, self.nodes.accuracies)
        self._readiness = Readiness(self.pipeline, self.nodes.names, 0.0, answered=True)
        self._records = _Records(self._readiness)
        watchers = () if watch is None else (watch(self.metrics),)
        after_s = start_times(run, CONTROL, self.nodes.names)
        nodes = {
            name: self.nodes.node(name, after_s.get(name, 0.0))
            for name in (CONTROL, *self.nodes.names)
        }
        self._given: GivenPlan | None = None
        if run.start is not None:
            violations = check_structure(run.start.plan, self.pipeline)
            if violations:
                raise PipelineError(f"the plan to start with is none: {sentences(violations)}")
            self._given = GivenPlan(filed(run.start.plan, self.pipeline))
            nodes[CONTROL] = ControlHost(self._given)
        self.system = Simulated(
            self.pipeline,
            nodes,
            self.nodes.batches,
            self.nodes.delays(),
            after_s=after_s,
            solve=self.solver,
            scale=lambda effect: self.fleet.scale(effect),
            charged_s=self.nodes.charged_s,
            # Watchers precede the metrics: at the end of a second they see none of the next.
            observers=(*watchers, self.metrics, self._records, *observers),
            keep=RESTORED,
        )
        self.fleet = RentedFleet(run.file.cluster, self.devices, self.system, self.nodes)

    @property
    def usd_per_h(self) -> float | None:
        """The mean cost of the devices, $ per hour; None if none are rented while it runs."""
        seconds = self._last_s - self.first_s
        if self.run.file.cluster.scale == NOBODY or seconds <= 0:
            return None
        return (self._last_usd - self._first_usd) / seconds * 3600

    def play(self, advance: Advance) -> Times:
        """Run from the first plan to the last answer; return arrival times since ``first_s``."""
        run, system = self.run, self.system
        times = run.arrivals.drawn(np.random.default_rng(run.seed))
        length_s = float(times[-1]) if len(times) else 0.0
        faults = (*run.faults, *self._random_faults(length_s))
        times = with_bursts(times, faults, np.random.default_rng([run.seed, 3]))
        self.nodes.machine.rate = rate_of(times, run.dilate)
        self._start()
        first_s = self.first_s = system.now
        self._first_usd = self.fleet.usd
        for fault in faults:
            self._schedule(fault)
        system.at(first_s + run.warm_up_s, lambda: self.metrics.begin(first_s + run.warm_up_s))
        if run.start is not None:
            system.at(first_s + run.start.plans_from_s, self._begin_planning)
        self._feed(times, advance)
        self._last_usd, self._last_s = self.fleet.usd, system.now
        longest_s = max(self.pipeline.slo_s, *self.pipeline.slo_classes.values(), 0.0)
        # No query is answered while the broker is away, so wait for the last fault to end. The
        # count begins after the warm-up, also where all arrivals are within it.
        over = [first_s + f.at_s + f.for_s for f in faults if f.for_s < float("inf")]
        ends_s = max([system.now, first_s + run.warm_up_s, *over])
        system.run(ends_s + longest_s + self.pipeline.grace_s + PATIENCE_S)
        return times

    def _start(self) -> None:
        """Run until every worker has loaded its variant, at most ``START_WITHIN_S``."""
        while self._readiness.missing() and self.system.now < START_WITHIN_S:
            self.system.run(self.system.now + 0.1)
        self.system.forget(self._records)
        begins_s = self.system.now + SETTLE_S
        phase_s = self.run.phase_s if self.run.start is None else self.run.start.phase_s
        if phase_s is not None:
            begins_s += (phase_s - begins_s) % 1
        self.system.run(begins_s)

    def _feed(self, times: Times, advance: Advance) -> None:
        system, first_s = self.system, self.first_s
        sent = 0
        stamps = stamped(self.run, times, first_s)
        partitions = {t.name: t.partitions for t in topics(self.pipeline)}
        slots = cycle(range(partitions[physical(self.pipeline.name, QUERIES)]))
        sending = cycle(queries(self.run, len(times)))
        while sent < len(times):
            # Skip to the next slice with an arrival: idle time costs only its own events.
            until_s = float(times[sent]) + SLICE_S
            ahead = int(np.searchsorted(times, until_s, "right"))
            ats_s, own = (first_s + times[sent:ahead]).tolist(), stamps[sent:ahead].tolist()
            # The endless iterators after the times: an iterator after the shortest loses an item.
            system.inputs(QUERIES, zip(ats_s, slots, sending, own, strict=False))
            sent = ahead
            system.run(first_s + until_s)
            advance(sent)

    # ------------------------------------------------------------------ faults

    def _random_faults(self, length_s: float) -> tuple[Fault, ...]:
        rng = np.random.default_rng([self.run.seed, 4])
        return random_faults(self.run.random_faults, length_s, tuple(self.devices), rng)

    def _schedule(self, fault: Fault) -> None:
        at_s = self.first_s + fault.at_s
        if fault.kind in _FAULTS:
            self.system.at(at_s, partial(self._begin, fault))
            if fault.for_s < float("inf"):
                self.system.at(at_s + fault.for_s, partial(self._end, fault))

    def _begin(self, fault: Fault) -> None:
        self._faults.append(fault)
        _FAULTS[fault.kind][0](self, fault)

    def _end(self, fault: Fault) -> None:
        """End a fault; where others of its kind last on its device, only a slow-down changes."""
        self._faults.remove(fault)
        ends = _FAULTS[fault.kind][1]
        if ends is not None and (fault.kind == SLOW or not self._alike(fault)):
            ends(self, fault)

    def _alike(self, fault: Fault) -> list[Fault]:
        """Return the faults under way of the same kind on the same device."""
        of = (fault.kind, fault.device)
        return [each for each in self._faults if (each.kind, each.device) == of]

    def _die(self, fault: Fault) -> None:
        if fault.notice_s > 0:
            self._revoke(fault)
            return
        self.system.kill(fault.device)
        self._lose(fault)

    def _revoke(self, fault: Fault) -> None:
        """Let the device serve until it must hand over its work to end within the notice."""
        if fault.for_s == float("inf"):
            self.fleet.revoke(fault.device)
        ends_s = min(fault.notice_s, fault.for_s)
        hands_over_s = min(ends_s, LEAVE_S)
        ended = partial(self.fleet.ended, fault.device)
        self.system.at(
            self.system.now + (ends_s - hands_over_s),
            partial(self.system.retire, fault.device, hands_over_s, ended),
        )

    def _lose(self, fault: Fault) -> None:
        if fault.for_s == float("inf"):
            self.fleet.lost(fault.device)

    def _return(self, fault: Fault) -> None:
        if self.fleet.has(fault.device):  # else it was released meanwhile
            self.system.start(fault.device, self.nodes.node(fault.device, self.system.now))

    def _slow(self, fault: Fault) -> None:
        """Let the largest factor under way count, 1 without any."""
        factors = [each.factor for each in self._alike(fault)]
        self.system.slow(fault.device, max(factors, default=1.0))

    def _lose_control(self, fault: Fault) -> None:
        self.system.kill(CONTROL)

    def _regain_control(self, fault: Fault) -> None:
        self._begin_planning()

    def _begin_planning(self) -> None:
        node, now = self.nodes.node(CONTROL, self.system.now), self.system.now
        if self._given is not None:
            self._given.hand_over(node)
        for topic in RESTORED:
            for slot, log in self.system.written(topic).items():
                for offset, (record, at_s) in enumerate(log):
                    node.handle(Arrived(record, topic, slot, offset, at_s), now)
        self.system.start(CONTROL, node)

    def _pause_broker(self, fault: Fault) -> None:
        self.system.stop_broker(fault.for_s)


# The begin and end of each fault. Bursts are part of the arrivals (headrace/simulation/faults.py).
_FAULTS: dict[
    str, tuple[Callable[[_Simulation, Fault], None], Callable[[_Simulation, Fault], None] | None]
]
_FAULTS = {
    DEATH: (_Simulation._die, _Simulation._return),
    SLOW: (_Simulation._slow, _Simulation._slow),
    CONTROL_DOWN: (_Simulation._lose_control, _Simulation._regain_control),
    BROKER_PAUSE: (_Simulation._pause_broker, None),
}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def figures_of(run: Run, advance: Advance) -> Figures:
    """Play a run to its end; raises ``PipelineError`` if a variant has no profile."""
    watches: list[StepTimes] = []

    def watch(metrics: RunMetrics) -> StepTimes:
        watches.append(StepTimes(metrics))
        return watches[-1]

    ended = simulated(run, advance, watch=watch)
    return figures(ended.metrics, watches[0], ended.last_s)
