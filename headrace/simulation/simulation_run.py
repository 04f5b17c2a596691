"""Run a pipeline in virtual time: its nodes, arrivals, faults and metrics.

The nodes are those that run live; ``streams/simulated/simulated_driver.py`` replaces Kafka, clock
and devices. The result is a function of the ``Run``: equal runs give equal metrics on any machine,
except for CPU seconds.
"""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from control.checks.structure_check import check_structure
from control.checks.violations import sentences
from control.controller.controller import Controller
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.solvers import TABLE, solve, virtual_s
from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Arrivals, Recorded, Times
from headrace.config.cluster_cost import costs
from headrace.config.pipeline_file import PipelineFile, load_profile, planning_profile
from headrace.config.topology import Share, cluster_workers
from headrace.errors import PipelineError
from headrace.roles.dispatching import dispatcher, per_query
from headrace.roles.wiring import accuracies, latency_of, variant_of
from headrace.simulation.faults import (
    BROKER_PAUSE,
    CONTROL_DOWN,
    DEATH,
    SLOW,
    Fault,
    random_faults,
    with_bursts,
)
from headrace.simulation.warm_start import GivenPlan, Start, filed
from headrace.status.readiness import Readiness
from operators.egress import Egress
from operators.ingress import Ingress
from operators.models.emulated import Emulated, Stretched
from operators.serving.worker import Worker
from profiles.measurements import EMULATED
from profiles.profile_table import ProfileTable
from schemas.effects import (
    QUERIES,
    Arrived,
    Effect,
    Event,
    Failed,
    Observer,
    Send,
    Solve,
    Solved,
)
from schemas.pipeline import Pipeline
from schemas.records import Query
from streams.control_app.host import RESTORED, ControlHost
from streams.observers.run_metrics import RunMetrics
from streams.simulated.delays import (
    ANY_SIZE,
    STAMP_S,
    Delay,
    Delays,
    DelayTrace,
    as_seen,
    beside,
    drawn,
    replayed,
    steady,
)
from streams.simulated.simulated_driver import BatchLatency, Simulated
from streams.simulated.world import Occupancy, World, WorldReplay, rate_of
from streams.topics import physical, topics

START_WITHIN_S = 120.0  # virtual: arrivals begin then at the latest, ready or not
SETTLE_S = 1.0  # between readiness and the first arrival
SLICE_S = 0.25  # arrivals are added in slices of this length
PATIENCE_S = 1.0  # wait for answers after the last query's deadline and grace

# Solved tables by problem and the id of its start; keeping the start keeps its id unique.
_TABLES: dict[tuple[Any, int], tuple[Any, Any]] = {}
MOST_TABLES = 1024

CONTROL = "control"
Advance = Callable[[int], None]  # called with the number of queries sent
Watch = Callable[[RunMetrics], Observer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The complete input of a run."""

    file: PipelineFile
    policy: str
    seed: int
    arrivals: Arrivals
    faults: tuple[Fault, ...] = ()
    random_faults: int = 0
    warm_up_s: float = 0.0
    latency: str = ""  # a quantile of the profile; "": drawn
    solve_s: float | None = None
    dilate: float = 1.0  # as in streams/live/dilation.py: delays and solves shrink by this factor
    world: World | None = None  # None: built-in delays, batches as the profile has them
    replay: DelayTrace | None = None  # of the run that is to be repeated; instead of a world
    start: Start | None = None  # None: the control app plans from the start
    sizes: SizeDistribution | None = None  # of queries, if the arrivals have none
    hops: bool = True  # False: all delays of broker and machine are 0


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a run."""

    account: RunMetrics
    queries: int
    devices_mean: float
    events: int
    cpu_s: float  # without solves
    solve_cpu_s: float
    first_s: float  # virtual time at which the arrivals began
    last_s: float  # and at which the last query arrived

    def as_json(self, run: Run) -> dict[str, Any]:
        """Return the run's row, with the keys of ``headrace simulate --json``."""
        account, counts = self.account, self.account.counts
        row: dict[str, Any] = {"policy": run.policy, "seed": run.seed, "queries": self.queries}
        row |= counts
        row["violation"] = _rounded(account.violation)
        row["branch_violation"] = _rounded(account.branch_violation)
        row["accuracy"] = _rounded(account.accuracy)
        row["accuracy_leaf_mean"] = _rounded(account.accuracy_leaf_mean)
        row["devices_mean"] = round(self.devices_mean, 3)
        row |= {f"p{n}_ms": account.latency_ms(n / 100) for n in (50, 95, 99)}
        row["stage_queries"] = account.stage_queries
        seconds = self.last_s - self.first_s - run.warm_up_s
        row |= costs(run.file.cluster, account.counts["answered"], seconds)
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
    began = _cpu_s()
    played = _Simulation(run, observers, watch)
    times = played.play(advance)
    counted = int(len(times) - np.searchsorted(times, run.warm_up_s))
    account = played.account
    account.close(counted)
    last_s = played.first_s + (float(times[-1]) if len(times) else 0.0)
    return Ended(
        account,
        counted,
        account.devices_mean(last_s),
        played.system.events,
        _cpu_s() - began - played.solver.cpu_s,
        played.solver.cpu_s,
        played.first_s,
        last_s,
    )


class _Solver:
    """Solves synchronously, returns the virtual seconds, and sums the real CPU seconds."""

    def __init__(self, seconds: float | None, dilate: float) -> None:
        self.cpu_s = 0.0
        self._seconds = seconds
        self._dilate = dilate

    def __call__(self, effect: Solve) -> tuple[Solved | Failed, float]:
        began = _cpu_s()
        seconds = self._seconds
        if seconds is None:
            seconds = virtual_s(effect.solver) / self._dilate
        try:
            return Solved(effect.job, _found(effect)), seconds
        except PlanError as error:
            return Failed(effect.job, str(error)), seconds
        finally:
            self.cpu_s += _cpu_s() - began


def _found(effect: Solve) -> Any:
    """Return a solver's result. Tables are cached: the seeds of a comparison share them."""
    if effect.solver != TABLE:
        return solve(effect.solver, effect.problem)
    # The start of the search may decide a tie, so it is part of the key.
    asked = (effect.problem, id(effect.problem.start))
    if asked not in _TABLES:
        if len(_TABLES) >= MOST_TABLES:
            _TABLES.clear()
        _TABLES[asked] = solve(effect.solver, effect.problem), effect.problem.start
    return _TABLES[asked][0]


class _Records:
    """An observer that passes the records that are sent to ``Readiness``."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self._readiness.see(e.record for e in effects if type(e) is Send)


class _Machine:
    """The calibrated world of a run, None without one, and the run's load on it.

    ``rate`` is that of the arrivals, once they are drawn.
    """

    def __init__(self, run: Run, of: "_Simulation") -> None:
        real = [name for name, device in of.devices.items() if device != EMULATED]
        self.occupancy = Occupancy(real)
        self.rate = rate_of((), run.dilate)
        self.world = None if run.world is None else WorldReplay(
            run.world, lambda *stream: np.random.default_rng([run.seed, 7, *stream]),
            now=lambda: of.system.now - of.first_s if of.first_s else 0.0,
            rate=lambda from_s, until_s: self.rate(from_s, until_s),
            busy=lambda: self.occupancy.busy(of.system.now), dilate=run.dilate,
        )  # fmt: skip


class _Simulation:
    """A run under way."""

    def __init__(self, run: Run, observers: Sequence[Observer], watch: Watch | None) -> None:
        self.run = run
        self.pipeline = replace(run.file.pipeline, policy=run.policy)
        self.profile = planning_profile(run.file)
        self._planned_by = per_query(run.file, self.profile, run.sizes)
        _check_profiled(
            run.file, self.pipeline, {(e.task, e.variant) for e in self.profile.entries}
        )
        self.devices = devices(run.file)
        self.solver = _Solver(run.solve_s, run.dilate)
        self._measured = load_profile(run.file)
        self.account = RunMetrics(self.pipeline, accuracies(self._measured))
        self.first_s = 0.0
        self._machine = _Machine(run, self)
        self._rngs = {
            name: np.random.default_rng([run.seed, 2, number])
            for number, name in enumerate(self.devices)
        }
        names = (*self.devices, *self._shared("ingress"), *self._shared("egress"))
        self._readiness = Readiness(self.pipeline, names, 0.0, answered=True)
        self._records = _Records(self._readiness)
        watchers = () if watch is None else (watch(self.account),)
        nodes = {name: self._node(name, 0.0) for name in (CONTROL, *names)}
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
            self._make,
            self._delays(),
            solve=self.solver,
            # Watchers precede the metrics: at the end of a second they see none of the next.
            observers=(*watchers, self.account, self._records, *observers),
            keep=RESTORED,
        )

    def play(self, advance: Advance) -> Times:
        """Run from the first plan to the last answer; return arrival times since ``first_s``."""
        run, system = self.run, self.system
        times = run.arrivals.drawn(np.random.default_rng(run.seed))
        length_s = float(times[-1]) if len(times) else 0.0
        faults = (*run.faults, *self._random_faults(length_s))
        times = with_bursts(times, faults, np.random.default_rng([run.seed, 3]))
        self._machine.rate = rate_of(times, run.dilate)
        self._start()
        first_s = self.first_s = system.now
        for fault in faults:
            self._schedule(fault)
        system.at(first_s + run.warm_up_s, lambda: self.account.begin(first_s + run.warm_up_s))
        if run.start is not None:
            system.at(first_s + run.start.plans_from_s, self._begin_planning)
        self._feed(times, advance)
        longest_s = max(self.pipeline.slo_s, *self.pipeline.slo_classes.values(), 0.0)
        # No query is answered while the broker is away, so wait for the last fault to end.
        over = [first_s + f.at_s + f.for_s for f in faults if f.for_s < float("inf")]
        ends_s = max([system.now, *over])
        system.run(ends_s + longest_s + self.pipeline.grace_s + PATIENCE_S)
        return times

    def _start(self) -> None:
        """Run until every worker has loaded its variant, at most ``START_WITHIN_S``."""
        while self._readiness.missing() and self.system.now < START_WITHIN_S:
            self.system.run(self.system.now + 0.1)
        self.system.forget(self._records)
        begins_s = self.system.now + SETTLE_S
        if self.run.start is not None:
            begins_s += (self.run.start.phase_s - begins_s) % 1
        self.system.run(begins_s)

    def _feed(self, times: Times, advance: Advance) -> None:
        system, first_s = self.system, self.first_s
        sent = 0
        stamps, queries = self._stamped(times), self._queries(len(times))
        slots = {t.name: t.partitions for t in topics(self.pipeline)}
        partitions = slots[physical(self.pipeline.name, QUERIES)]
        while sent < len(times):
            # Skip to the next slice with an arrival: idle time costs only its own events.
            until_s = float(times[sent]) + SLICE_S
            ahead = int(np.searchsorted(times, until_s, "right"))
            due = zip(times[sent:ahead].tolist(), stamps[sent:ahead].tolist(), strict=True)
            for number, (at_s, stamp_s) in enumerate(due, sent):
                query = queries[number % len(queries)]
                system.input(first_s + at_s, QUERIES, number % partitions, query, stamp_s)
            sent = ahead
            system.run(first_s + until_s)
            advance(sent)

    def _queries(self, count: int) -> list[Query]:
        """Return the queries in order of arrival; a single shared one if they have no sizes."""
        arrivals, sizes = self.run.arrivals, self.run.sizes
        rng = np.random.default_rng([self.run.seed, 6])
        if isinstance(arrivals, Recorded) and arrivals.sizes:
            recorded = arrivals.sizes
            # Queries added by bursts draw from the recorded sizes.
            extra = rng.choice(recorded, max(count - len(recorded), 0)).tolist()
            return [Query(payload=None, size=int(size)) for size in (*recorded, *extra)]
        if sizes is None or count == 0:
            return [Query(payload=None)]
        drawn = rng.choice(sizes.sizes, size=count, p=sizes.probabilities)
        return [Query(payload=None, size=int(size)) for size in drawn]

    def _stamped(self, times: Times) -> Times:
        """Return the CreateTimes of arrivals: whole ms of wall time, rounded down.

        The CreateTime of a counted query is never before the count begins.
        """
        step_s, first_s = STAMP_S / self.run.dilate, self.first_s
        if not self.run.hops:
            return first_s + times
        # The clock's phase within a ms at the first arrival is random.
        ahead_s = np.random.default_rng([self.run.seed, 5]).uniform(0.0, step_s)
        early = first_s + np.floor((times + ahead_s) / step_s) * step_s - ahead_s
        begins = np.where(times < self.run.warm_up_s, first_s, first_s + self.run.warm_up_s)
        return np.maximum(early, begins)

    # ------------------------------------------------------------------ nodes

    def _shared(self, role: str) -> tuple[str, ...]:
        return tuple(f"{role}-{i}" for i in range(getattr(self.run.file.cluster, role)))

    def _node(self, name: str, now: float) -> Any:
        pipeline, cluster = self.pipeline, self.run.file.cluster
        role, _, index = name.partition("-")
        if name == CONTROL:
            memory = dict(cluster.memory)
            return ControlHost(Controller(pipeline, self._planned_by, len(self.devices), memory))
        if role == "ingress":
            slots = {t.name: t.partitions for t in topics(pipeline)}
            mine = Share(int(index), cluster.ingress).mine(slots[physical(pipeline.name, QUERIES)])
            return Ingress(
                name, pipeline, mine, incarnation=now, share=1.0 / cluster.ingress,
                dispatcher=dispatcher(self.run.file, int(index), self.profile), number=int(index),
            )  # fmt: skip
        if role == "egress":
            # No combine function: it could not handle the placeholder outputs of a simulation.
            mine = Share(int(index), cluster.egress).mine(pipeline.egress_partitions)
            known = accuracies(self.profile)
            return Egress(name, pipeline, mine, incarnation=now, accuracies=known)
        device = self.devices[name]
        return Worker(
            name, pipeline, device, incarnation=now,
            latency=latency_of(self.profile, device),
            planned=latency_of(self.profile, device, "p95"),
        )  # fmt: skip

    def _make(self, node: str, key: str) -> BatchLatency:
        stretches = {} if self.devices[node] == EMULATED else self._stretches(node, key)
        if not stretches:
            return self._emulated(self.profile, node, key, self.run.latency)
        return Stretched(
            self._emulated(self._measured, node, key, "p50"),
            lambda batch: stretches.get(batch, stretches[ANY_SIZE])(),
        )

    def _stretches(self, node: str, key: str) -> dict[int, Delay]:
        """Return the measured slow-down by batch size; empty if none of the task was measured."""
        trace, task = self.run.replay, variant_of(self.pipeline, key).task
        if trace is None:
            world = self._machine.world
            return {} if world is None else world.stretches(task)
        again = partial(
            replayed, seconds=trace.seconds, rng=self._rngs[node], moment=self._moment,
            together=False,
        )  # fmt: skip
        return {size: again(seen) for (of, size), seen in trace.stretch.items() if of == task}

    def _emulated(self, table: ProfileTable, node: str, key: str, latency: str) -> Emulated:
        variant = variant_of(self.pipeline, key)
        return Emulated(
            table, variant, self.pipeline.task(variant.task).children, self._rngs[node],
            device=self.devices[node], latency=latency, one_of=self.pipeline.branches == "untied",
        )  # fmt: skip

    def _delays(self) -> Delays:
        rng = np.random.default_rng([self.run.seed, 1])
        if not self.run.hops:
            return steady(0.0)
        if self.run.replay is not None:
            return as_seen(self.run.replay, rng, self.run.dilate, self._moment)
        if self._machine.world is None:
            return drawn(rng, dilate=self.run.dilate)
        return replace(self._machine.world.delays(), began=self._machine.occupancy.begin)

    def _moment(self) -> float:
        """Return the moment of the recorded trace to replay now."""
        assert self.run.replay is not None
        return beside(self.system.now - self.first_s, self.run.replay.seconds)

    # ------------------------------------------------------------------ faults

    def _random_faults(self, length_s: float) -> tuple[Fault, ...]:
        rng = np.random.default_rng([self.run.seed, 4])
        return random_faults(self.run.random_faults, length_s, tuple(self.devices), rng)

    def _schedule(self, fault: Fault) -> None:
        begins, ends = _FAULTS.get(fault.kind, (None, None))
        at_s = self.first_s + fault.at_s
        if begins is not None:
            self.system.at(at_s, partial(begins, self, fault))
        if ends is not None and fault.for_s < float("inf"):
            self.system.at(at_s + fault.for_s, partial(ends, self, fault))

    def _die(self, fault: Fault) -> None:
        self.system.kill(fault.device)

    def _return(self, fault: Fault) -> None:
        self.system.start(fault.device, self._node(fault.device, self.system.now))

    def _slow(self, fault: Fault) -> None:
        self.system.slow(fault.device, fault.factor)

    def _recover(self, fault: Fault) -> None:
        self.system.slow(fault.device, 1.0)

    def _lose_control(self, fault: Fault) -> None:
        self.system.kill(CONTROL)

    def _regain_control(self, fault: Fault) -> None:
        self._begin_planning()

    def _begin_planning(self) -> None:
        node, now = self._node(CONTROL, self.system.now), self.system.now
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
    SLOW: (_Simulation._slow, _Simulation._recover),
    CONTROL_DOWN: (_Simulation._lose_control, _Simulation._regain_control),
    BROKER_PAUSE: (_Simulation._pause_broker, None),
}


def devices(file: PipelineFile) -> dict[str, str]:
    """Return the device of each worker by node name; names are those of a live run."""
    return {
        name: device
        for device, count in file.cluster.devices
        for role in cluster_workers(file.cluster, device, count)
        for name in role.nodes
    }


def _check_profiled(file: PipelineFile, pipeline: Pipeline, known: set[tuple[str, str]]) -> None:
    for task in pipeline.tasks:
        for variant in task.variants:
            if (task.name, variant.name) not in known:
                raise PipelineError(
                    f"{file.path}: {variant.key} has no profile to simulate it by; run "
                    f"`headrace profile {file.path.name}`"
                )


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
