"""Run a controller under both of its drivers: the simulation and the control app's driver.

The simulation records what its controller receives on the control topics. The driver that runs
under Faust then receives the same records, on a virtual clock. Ticks, solves, counts of the input
topic and records read back after an absence are that driver's own.
"""

import asyncio
import dataclasses
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from control.policies.ramsis.tables import SelectionPlan
from control.policies.solvers import solve, virtual_s
from control.problem.problem import PlanError
from headrace.planning.rentable import rentable_of
from headrace.roles.control_role import controller_maker
from headrace.simulation.faults import CONTROL_DOWN
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_nodes import CONTROL
from headrace.simulation.simulation_run import simulated
from schemas.codec.single_object import decode, encode
from schemas.effects import (
    COMMAND_RESULTS,
    PLANS,
    REPORTS,
    Arrived,
    Counted,
    Effect,
    Event,
    Failed,
    Solve,
    Solved,
)
from streams.codecs.wire import Fetched
from streams.control_app.control_driver import ControlDriver
from streams.control_app.control_effects import READ
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical
from tests.tape import Tape, Taped
from tests.virtual_loop import VirtualLoop


@dataclass
class Script:
    """What the simulated run did with its controller."""

    run: Run
    entries: list[Taped]
    until_s: float
    away_s: tuple[float, float] | None = None  # start and end of the absence of the control app

    def counted(self, now: float) -> Counted:
        """Return the count of the input topic at that time."""
        return next(
            entry.event
            for entry in self.entries
            if isinstance(entry.event, Counted) and entry.now == now
        )


def recorded(run: Run, length_s: float) -> Script:
    """Simulate a run; return what its controller did until ``length_s`` after the first arrival.

    The script contains one of the run's faults: an absence of the control app.
    """
    tape = Tape()
    ended = simulated(run, lambda sent: None, observers=[tape])
    until_s = ended.first_s + length_s
    mine = [entry for entry in tape.entries if entry.node == CONTROL and entry.now < until_s]
    down = [fault for fault in run.faults if fault.kind == CONTROL_DOWN]
    gone_s = [ended.first_s + fault.at_s for fault in down]
    away_s = (gone_s[0], gone_s[0] + down[0].for_s) if down else None
    return Script(run, mine, until_s, away_s)


@dataclass
class VirtualSolver:
    """Planners whose solves take virtual time."""

    loop: VirtualLoop

    def start(self, effect: Solve) -> Future[Any]:
        future: Future[Any] = Future()
        self.loop.call_later(virtual_s(effect.solver), self._end, effect, future)
        return future

    def _end(self, effect: Solve, future: Future[Any]) -> None:
        try:
            future.set_result(solve(effect.solver, effect.problem))
        except PlanError as error:
            future.set_exception(error)

    def outcome(self, effect: Solve, error: BaseException | None, found: object) -> Event:
        return Solved(effect.job, found) if error is None else Failed(effect.job, str(error))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


@dataclass
class ScriptedBroker:
    """The input topic as counted in the simulation, and the records that were written and kept."""

    script: Script
    loop: VirtualLoop
    past: list[Arrived] = field(default_factory=list)
    told: list[Arrived] = field(default_factory=list)

    def ends(self) -> dict[int, int]:
        return {0: self.script.counted(self.loop.now).arrived}

    def done(self) -> dict[int, int]:
        counted = self.script.counted(self.loop.now)
        return {0: counted.arrived - counted.waiting}

    def shared_ends(self) -> dict[str, int]:
        return {REPORTS: 0, PLANS: 0}

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]:
        return since, False

    def history(self) -> list[Arrived]:
        order = (PLANS, COMMAND_RESULTS)
        self.told = sorted(self.past, key=lambda event: order.index(event.topic))
        return self.told

    async def write(
        self, topic: str, value: bytes | None, slot: int | None, key: bytes | None
    ) -> int:
        for logical in (PLANS, COMMAND_RESULTS):
            if value is not None and topic == physical(self.script.run.file.pipeline.name, logical):
                at_s, offset = self.loop.now, len(self.past)
                self.past.append(Arrived(decode(value), logical, 0, offset, at_s))
        return len(self.past) - 1


@dataclass
class Watching:
    """A tape without the records that were read back."""

    broker: ScriptedBroker
    entries: list[tuple[float, Event, tuple[Effect, ...]]] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: list[Effect], now: float) -> None:
        if not any(event is known for known in self.broker.told):
            self.entries.append((now, event, tuple(effects)))


def driven(script: Script) -> list[tuple[float, Event, tuple[Effect, ...]]]:
    """Run the script under the control app's driver; return its entries."""
    loop = VirtualLoop()
    broker = ScriptedBroker(script, loop)
    watching = Watching(broker)
    run = script.run
    pipeline = replace(run.file.pipeline, policy=run.policy)

    fresh = controller_maker(replace(run.file, pipeline=pipeline), rentable_of(run.file))

    async def play() -> None:
        driver = ControlDriver(
            pipeline, fresh, KafkaConfig("127.0.0.1:1"), [watching],
            clock=loop.time, planners=VirtualSolver(loop), inputs=broker, past=broker.history,
        )  # fmt: skip
        all_of_them = [physical(pipeline.name, logical) for logical in READ]
        driver.assigned(all_of_them)
        if script.away_s is not None:
            loop.call_at(script.away_s[0], driver.assigned, [])
            loop.call_at(script.away_s[1], driver.assigned, all_of_them)
        for entry in script.entries:
            if isinstance(entry.event, Arrived):
                loop.call_at(entry.now, deliver, driver, entry.event)
        served = asyncio.create_task(driver.run(broker.write))
        await asyncio.sleep(script.until_s)
        served.cancel()
        await asyncio.wait([served])

    loop.run_until_complete(play())
    loop.close()
    return [entry for entry in watching.entries if entry[0] < script.until_s]


def deliver(driver: ControlDriver, event: Arrived) -> None:
    """Deliver a record as Faust does, or a report as the reader of reports does."""
    value = encode(event.record)
    if event.topic == REPORTS:
        name = physical("", REPORTS)
        driver.reported([Fetched(name, 0, event.offset, event.at_s, None, value, None)])
    else:
        driver.arrived(event.topic, message(event))


def message(event: Arrived) -> Any:
    return SimpleNamespace(
        topic=event.topic, partition=event.slot, offset=event.offset, timestamp=event.at_s,
        key=None, value=encode(event.record),
    )  # fmt: skip


def comparable(entry: tuple[float, Event, tuple[Effect, ...]]) -> tuple[Any, ...]:
    """Return an entry with a table as its fields: it holds an array, whose == is by element."""
    now, event, effects = entry
    if not (isinstance(event, Solved) and isinstance(event.plan, SelectionPlan)):
        return entry
    fields = {f.name: getattr(event.plan, f.name) for f in dataclasses.fields(event.plan)}
    return now, event.job, {**fields, "values": fields["values"].tobytes()}, effects


def assert_the_same(script: Script) -> list[tuple[float, Event, tuple[Effect, ...]]]:
    """Assert that both drivers bring the same events and get the same effects, one by one; return
    them."""
    here = [(entry.now, entry.event, entry.effects) for entry in script.entries]
    there = driven(script)
    for number, (simulated_entry, live_entry) in enumerate(zip(here, there, strict=False)):
        assert comparable(live_entry) == comparable(simulated_entry), f"event {number} differs"
    assert len(here) == len(there)
    return there
