"""The parts of a simulated run: its nodes, their latencies and delays, and the solver.

The nodes are those that run live. Solves are synchronous; their virtual duration is the solver's
usual one or the run's own, at most its policy's deadline (``solve_within``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from control.controller.controller import Controller
from control.policies.solvers import TABLE, cut, solve, solve_limit_s, virtual_s
from control.problem.problem import PlanError
from headrace.config.profile_files import load_profile, planning_profile
from headrace.config.topology import Share, dispatchers
from headrace.planning.rentable import rentable_of
from headrace.roles.dispatching import (
    central_queues,
    ingress_part,
    planned_by,
    task_dispatcher,
)
from headrace.roles.profile_lookups import accuracies, latency_of, variant_of
from headrace.roles.workers.device_time import DeviceTime
from headrace.simulation.paid_batches import PaidBatches, own_rates
from headrace.simulation.run_input import Run, check_profiled, devices, real_workers
from operators.dispatch.task_dispatcher import TaskDispatcher
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.ingress.query_parts import even_parts
from operators.models.emulated import Emulated, Stretched
from operators.serving.worker import Worker
from profiles.profile_table import ProfileTable
from schemas.effects import QUERIES, Failed, Solve, Solved
from streams.control_app.host import ControlHost
from streams.cpu_seconds import cpu_seconds
from streams.simulated.delays import (
    ANY_SIZE,
    Delay,
    Delays,
    RecordedQueries,
    as_seen,
    beside,
    constant_delays,
    drawn,
    replayed,
)
from streams.simulated.simulated_driver import BatchLatency
from streams.simulated.world import Occupancy, rate_of
from streams.topics import physical, topics

Now = Callable[[], float]

CONTROL = "control"
# Solved tables by problem and the id of its start; keeping the start keeps its id unique.
_TABLES: dict[tuple[Any, int], tuple[Any, Any]] = {}
MOST_TABLES = 1024


class VirtualSolver:
    """Solves synchronously, returns the virtual seconds, and sums the real CPU seconds."""

    def __init__(self, seconds: float | None, dilate: float) -> None:
        self.cpu_s = 0.0
        self._seconds = seconds
        self._dilate = dilate

    def __call__(self, effect: Solve) -> tuple[Solved | Failed, float]:
        began = cpu_seconds()
        seconds = self._seconds
        if seconds is None:
            seconds = virtual_s(effect.solver) / self._dilate
        deadline_s = solve_limit_s(effect.problem)
        if seconds > deadline_s:
            effect = Solve(effect.job, effect.solver, cut(effect.problem, seconds))
            seconds = deadline_s
        try:
            return Solved(effect.job, _found(effect)), seconds
        except PlanError as error:
            return Failed(effect.job, str(error)), seconds
        finally:
            self.cpu_s += cpu_seconds() - began


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


class Machine:
    """The calibrated world of a run, None without one, and the run's load on it.

    ``rate`` is that of the arrivals, once they are drawn.
    """

    def __init__(self, run: Run, real: Sequence[str], now: Now, first_s: Now) -> None:
        self.occupancy = Occupancy(real)
        self.rate = rate_of((), run.dilate)
        self.world = None if run.world is None else run.world.replay(
            lambda *stream: np.random.default_rng([run.seed, 7, *stream]),
            now=lambda: now() - first_s() if first_s() else 0.0,
            rate=lambda from_s, until_s: self.rate(from_s, until_s),
            busy=lambda: self.occupancy.busy(now()), dilate=run.dilate,
        )  # fmt: skip


class SimulatedNodes:
    """The nodes of a run, by the names of a live one.

    ``now`` is the run's virtual time, ``first_s`` that of its first arrival (0: not yet known).
    """

    def __init__(self, run: Run, now: Now, first_s: Now) -> None:
        """Raise ``PipelineError`` if a variant has no profile."""
        self.run = run
        self.pipeline = replace(run.file.pipeline, policy=run.policy)
        self._file = replace(run.file, pipeline=self.pipeline)  # dispatches if the policy does
        self.profile = planning_profile(run.file)
        self._planned_by = planned_by(run.file, self.profile, run.sizes)
        check_profiled(run.file, self.profile)
        self._rentable = rentable_of(run.file)
        self.devices = devices(run.file)
        self._measured = load_profile(run.file)
        self.accuracies = accuracies(self._measured)
        self._rngs = {
            name: np.random.default_rng([run.seed, 2, number])
            for number, name in enumerate(self.devices)
        }
        self._now, self._first_s = now, first_s
        sent_s = () if run.replay is None else [at_s for at_s, _ in run.replay.ways_in]
        self._recorded = RecordedQueries(
            sent_s, np.random.default_rng([run.seed, 9]), self._since_s, self._beside_s
        )
        real = real_workers(run.file)
        self.machine = Machine(run, list(real), now, first_s)
        self._cpu_rates = own_rates(run.file, real)
        self._cpu_time: dict[str, DeviceTime] = {}  # by worker that pays for its batches
        cluster = run.file.cluster
        shared = (("ingress", cluster.ingress), ("egress", cluster.egress))
        self.names = (
            *self.devices,
            *(f"{role}-{i}" for role, count in shared for i in range(count)),
            *(
                role.name
                for task in self.pipeline.dispatched
                for role in dispatchers(task.name, self.pipeline.dispatchers)
            ),
        )

    def rent(self, name: str, device: str) -> None:
        """Add a worker on a device of a type, which ``node`` makes when it has booted."""
        self.devices[name] = device
        self._rngs[name] = np.random.default_rng([self.run.seed, 2, len(self._rngs)])
        self._cpu_rates |= own_rates(self.run.file, {name: device})

    def node(self, name: str, now: float) -> Any:
        """Return a node as a process that starts ``now`` makes it."""
        pipeline, cluster = self.pipeline, self.run.file.cluster
        role, _, index = name.partition("-")
        if name == CONTROL:
            memory = dict(cluster.memory)
            expected = len(self.devices)
            return ControlHost(
                Controller(pipeline, self._planned_by, expected, memory, rentable=self._rentable)
            )
        if role == "ingress":
            slots = {t.name: t.partitions for t in topics(pipeline)}
            share, count = (
                Share(int(index), cluster.ingress),
                slots[physical(pipeline.name, QUERIES)],
            )
            return Ingress(
                name, pipeline, share.mine(count), incarnation=now, share=share.part(count),
                dispatchers=central_queues(self._file, ingress_part(share, count), self.profile),
                number=int(index), accuracies=self.accuracies, split=even_parts,
            )  # fmt: skip
        if role == "dispatcher":
            task, _, number = index.rpartition("-")
            inner = task_dispatcher(self.run.file, task, int(number), self.profile)
            return TaskDispatcher(name, pipeline, task, inner, incarnation=now, number=int(number))
        if role == "egress":
            # No combine function: it could not handle the placeholder outputs of a simulation.
            mine = Share(int(index), cluster.egress).mine(pipeline.egress_partitions)
            known = accuracies(self.profile)
            return Egress(name, pipeline, mine, incarnation=now, accuracies=known)
        device = self.devices[name]
        if name in self._cpu_rates:
            self._cpu_time[name] = DeviceTime(1, self._cpu_rates[name], now)
        return Worker(
            name, pipeline, device, incarnation=now,
            latency=latency_of(self.profile, device),
            planned=latency_of(self.profile, device, "p95"),
        )  # fmt: skip

    def batches(self, node: str, key: str) -> BatchLatency:
        """Return the latencies of a variant ("task/variant") on a node's device."""
        account = self._cpu_time.get(node)
        emulated = self.run.file.cluster.emulated(self.devices[node])
        stretches = {} if emulated else self._stretches(node, key)
        if not stretches:
            if account is None:
                return self._emulated(self.profile, node, key, self.run.latency)
            measured = self._emulated(self._measured, node, key, self.run.latency)
            return PaidBatches(measured, account, self._now, lambda _: inf)
        median = self._emulated(self._measured, node, key, "p50")
        stretched = Stretched(median, lambda batch: stretches.get(batch, stretches[ANY_SIZE])())
        if account is None:
            return stretched
        charged = self._charged(key)
        return PaidBatches(
            stretched, account, self._now, lambda batch: charged() * median.latency_s(batch)
        )

    def _charged(self, key: str) -> Delay:
        """Return the most that a batch of a variant is charged, in medians."""
        task, trace = variant_of(self.pipeline, key).task, self.run.replay
        if trace is not None:
            most = trace.charged.get(task, inf)
            return lambda: most
        assert self.machine.world is not None
        return self.machine.world.charged(task)

    def charged_s(self, node: str) -> float:
        """Return the CPU seconds that a node's last batch was charged; 0 if it pays for none."""
        account = self._cpu_time.get(node)
        return 0.0 if account is None else account.charged_s[0]

    def _stretches(self, node: str, key: str) -> dict[int, Delay]:
        """Return the measured slow-down by batch size; empty if none of the task was measured on
        the node's device."""
        trace, of = self.run.replay, (variant_of(self.pipeline, key).task, self.devices[node])
        if trace is None:
            world = self.machine.world
            return {} if world is None else world.stretches(*of)
        again = partial(
            replayed, seconds=trace.seconds, rng=self._rngs[node], moment=self._recorded.moment
        )
        return {kind[2]: again(seen) for kind, seen in trace.stretch.items() if kind[:2] == of}

    def _emulated(self, table: ProfileTable, node: str, key: str, latency: str) -> Emulated:
        variant = variant_of(self.pipeline, key)
        return Emulated(
            table, variant, self.pipeline.task(variant.task).children, self._rngs[node],
            device=self.devices[node], latency=latency, one_of=self.pipeline.branches == "untied",
        )  # fmt: skip

    def delays(self) -> Delays:
        """Return the delays of broker and machine."""
        rng = np.random.default_rng([self.run.seed, 1])
        if not self.run.hops:
            return constant_delays(0.0)
        if self.run.replay is not None:
            return as_seen(self.run.replay, rng, self.run.dilate, self._recorded)
        if self.machine.world is None:
            return drawn(rng, dilate=self.run.dilate)
        return replace(self.machine.world.delays(), began=self.machine.occupancy.begin)

    def _since_s(self) -> float:
        return self._now() - self._first_s()

    def _beside_s(self) -> float:
        """Return the moment of the recorded trace that represents now."""
        assert self.run.replay is not None
        return beside(self._since_s(), self.run.replay.seconds)
