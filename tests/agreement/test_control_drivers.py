"""The control app's driver and the simulator: two roads to the same effects of the controller.

A run is simulated with its control app away for a while. What came to it on the control topics is
then brought to the driver that runs under Faust, on a virtual clock; ticks, solves, counts of the
input topic and what is read back after the absence are that driver's own.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, get_args

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from control.controller.controller import Controller
from control.policies.ramsis.tables import SelectionPlan
from control.policies.solvers import solve, virtual_s
from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Recorded
from headrace.config.pipeline_file import PipelineFile, planning_profile, read_pipeline_file
from headrace.simulation.faults import CONTROL_DOWN, Fault
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_nodes import CONTROL
from headrace.simulation.simulation_run import simulated
from schemas.codec.single_object import decode, encode
from schemas.effects import (
    COMMAND_RESULTS,
    PLANS,
    REPORTS,
    Arrived,
    ControlEffect,
    Count,
    Counted,
    Effect,
    Event,
    Failed,
    OperatorEffect,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.records import Selection
from streams.control_app import control_driver
from streams.control_app.control_driver import READ, ControlDriver
from streams.kafka.kafka_config import KafkaConfig
from streams.observers.tape import Tape, Taped
from streams.simulated import simulated_driver
from streams.topics import physical
from tests.virtual_loop import VirtualLoop

POSTCODE = Path(__file__).parents[2] / "examples" / "postcode" / "pipeline.yaml"
AWAY_S, FOR_S = 3.05, 1.5
LENGTH_S = 7.0  # behind the first arrival


def the_file(policy: str, folder: Path) -> PipelineFile:
    """The postcodes, or one task for the policies that plan for one."""
    if policy in ("ramsis", "kairos"):
        alone: Mapping[str, Sequence[str]] = {"read": ()}
        policies = {
            "ramsis": {"kind": "ramsis", "loads": [30, 60], "steps": 20, "longest_run": 1}
        }  # soon made
        return read_pipeline_file(
            a_cluster(folder, children=alone, fan_out=0, policy=policy, policies=policies)
        )
    return read_pipeline_file(POSTCODE)


def the_run(policy: str, folder: Path) -> Run:
    return Run(
        file=the_file(policy, folder),
        policy=policy,
        seed=3,
        arrivals=Recorded(np.arange(180) / 30.0),
        faults=(Fault(kind=CONTROL_DOWN, at_s=AWAY_S, for_s=FOR_S),),
    )


@dataclass
class Script:
    """What the simulated run did with its controller."""

    run: Run
    entries: list[Taped]
    gone_s: float  # the control app is away from then on
    back_s: float
    until_s: float

    def counted(self, now: float) -> Counted:
        """What a count of the input topic read at that time."""
        return next(
            entry.event
            for entry in self.entries
            if isinstance(entry.event, Counted) and entry.now == now
        )


def recorded(run: Run) -> Script:
    tape = Tape()
    ended = simulated(run, lambda sent: None, observers=[tape])
    gone_s, until_s = ended.first_s + AWAY_S, ended.first_s + LENGTH_S
    mine = [entry for entry in tape.entries if entry.node == CONTROL and entry.now < until_s]
    return Script(run, mine, gone_s, gone_s + FOR_S, until_s)


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
        """Nothing to end."""


@dataclass
class ScriptedBroker:
    """The input topic as it was counted in the simulation, and what was written and is kept."""

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

    def history(self) -> list[Arrived]:
        order = (PLANS, COMMAND_RESULTS)
        self.told = sorted(self.past, key=lambda event: order.index(event.topic))
        return self.told

    async def write(
        self, topic: str, value: bytes | None, slot: int | None, key: bytes | None
    ) -> None:
        for logical in (PLANS, COMMAND_RESULTS):
            if value is not None and topic == physical(self.script.run.file.pipeline.name, logical):
                at_s, offset = self.loop.now, len(self.past)
                self.past.append(Arrived(decode(value), logical, 0, offset, at_s))


@dataclass
class Watching:
    """A tape without what was read back."""

    broker: ScriptedBroker
    entries: list[tuple[float, Event, tuple[Effect, ...]]] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: list[Effect], now: float) -> None:
        if not any(event is known for known in self.broker.told):
            self.entries.append((now, event, tuple(effects)))


def driven(script: Script) -> list[tuple[float, Event, tuple[Effect, ...]]]:
    """The same run under the control app's driver."""
    loop = VirtualLoop()
    broker = ScriptedBroker(script, loop)
    watching = Watching(broker)
    run = script.run
    pipeline = replace(run.file.pipeline, policy=run.policy)

    def fresh() -> Controller:
        memory = dict(run.file.cluster.memory)
        return Controller(pipeline, planning_profile(run.file), len(devices(run.file)), memory)

    async def play() -> None:
        driver = ControlDriver(
            pipeline, fresh, KafkaConfig("127.0.0.1:1"), [watching], clock=loop.time,
            planners=VirtualSolver(loop), inputs=broker, past=broker.history,
        )  # fmt: skip
        all_of_them = [physical(pipeline.name, logical) for logical in READ]
        driver.assigned(all_of_them)
        loop.call_at(script.gone_s, driver.assigned, [])
        loop.call_at(script.back_s, driver.assigned, all_of_them)
        for entry in script.entries:
            if isinstance(entry.event, Arrived):
                loop.call_at(entry.now, driver.arrived, entry.event.topic, message(entry.event))
        served = asyncio.create_task(driver.run(broker.write))
        await asyncio.sleep(script.until_s)
        served.cancel()

    loop.run_until_complete(play())
    loop.close()
    return [entry for entry in watching.entries if entry[0] < script.until_s]


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


@pytest.mark.parametrize("policy", ["loki", "static", "proteus", "ramsis", "kairos"])
def test_both_drivers_of_the_controller_ask_for_the_same_effects_one_by_one(
    policy: str, tmp_path: Path
) -> None:
    script = recorded(the_run(policy, tmp_path))
    here = [(entry.now, entry.event, entry.effects) for entry in script.entries]
    there = driven(script)
    for number, (simulated_entry, live_entry) in enumerate(zip(here, there, strict=False)):
        assert comparable(live_entry) == comparable(simulated_entry), f"event {number} differs"
    assert len(here) == len(there)
    kinds = {type(event) for _, event, _ in here}
    assert kinds == {Arrived, Counted, Solved, Woke}
    asked = {type(effect) for _, _, effects in here for effect in effects}
    assert {Count, Solve} <= asked
    tables = [e for _, _, effects in here for e in effects if isinstance(e, Send)
              and isinstance(e.record, Selection)]  # fmt: skip
    assert bool(tables) == (policy == "ramsis")


# ---------------------------------------------------------------------- which effects there are


def kinds(union: UnionType) -> set[type]:
    return set(get_args(union))


def test_every_driver_performs_every_effect_of_what_it_runs() -> None:
    assert kinds(Effect) == kinds(OperatorEffect) | kinds(ControlEffect)
    assert set(control_driver._PERFORMED) == kinds(ControlEffect)
    inlined = kinds(Effect) - set(simulated_driver._PERFORMED)
    assert inlined == {Send, Wake}  # in its loop
