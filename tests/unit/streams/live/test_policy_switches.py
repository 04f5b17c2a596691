"""A worker with real operators whose policy alternates between sessions and one variant."""

import queue
from dataclasses import replace
from typing import Any

import pytest

from operators.serving.worker import Worker
from schemas.effects import Effect, Event, Infer, Inferred, Load, Loaded, Unload, Woke
from schemas.enumerations import NodeState
from schemas.pipeline import Task
from schemas.records import ANSWERED, Plan, Settings, Work
from streams.live.executors import ModelExecutor
from tests.builders import a_lease, a_plan, a_variant, a_work, an_item, arrived, reports, sent
from tests.session_world import a_query_plan, a_session_pipeline

PIPELINE = replace(a_session_pipeline(), tasks=(Task(name="scan", variants=(a_variant("scan"),)),))
S, V = "scan/v@scale=1", "scan/v"


class Gated:
    """An operator whose load waits while its gate is shut."""

    gates: dict[str, queue.SimpleQueue[None]]

    def __init__(self, variant: str) -> None:
        self._variant = variant

    def load(self, device: str) -> None:
        if self._variant in self.gates:
            self.gates[self._variant].get(timeout=30)

    def predict(self, batch: list[Any]) -> list[Any]:
        return list(batch)


class Rig:
    """A worker and its executor; loads of the variants in ``shut`` wait for ``open``."""

    def __init__(self, *shut: str) -> None:
        self.gates: dict[str, queue.SimpleQueue[None]] = {
            each: queue.SimpleQueue() for each in shut
        }
        made = type("Operator", (Gated,), {"gates": self.gates})
        self._posted: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.executor = ModelExecutor(made, "cpu", self._posted.put, clock=lambda: 0.0)
        self._worker = Worker("w", PIPELINE, "cpu", incarnation=0.0)
        self._waits = self._offset = self._epoch = 0
        self.effects: list[Effect] = []
        self._handle(Woke())

    def _handle(self, event: Event) -> None:
        for effect in self._worker.handle(event, 0.0):
            self.effects.append(effect)
            if isinstance(effect, Load):
                self.executor.load(effect)
            elif isinstance(effect, Unload):
                self.executor.unload(effect)
            elif isinstance(effect, Infer):
                self.executor.infer(effect)

    def follow(self, policy: str) -> None:
        """Follow a plan of a policy; a plan for sessions names ``S``."""
        self._epoch += 1
        plans = (a_query_plan(S),) if policy == "compass" else ()
        plan: Plan = a_plan(
            [a_lease(task="scan", batch=1)], self._epoch,
            settings=Settings(policy=policy, slo_s=1.0), sessions=plans,
        )  # fmt: skip
        self._handle(arrived(plan))

    def until(self, kind: type[Loaded | Inferred]) -> None:
        """Handle events of the executor up to one of ``kind``."""
        while True:
            event = self._posted.get(timeout=30)
            self._handle(event)
            self._handle(Woke())
            if isinstance(event, kind):
                return

    def answer(self, *, session: bool) -> str:
        """Return the outcome of an item that is sent now, and the reason of a failure."""
        self.effects.clear()
        asked = a_query_plan(S) if session else None
        work = a_work(self._offset, an_item(), task="scan", session=asked)
        self._handle(arrived(work, offset=self._offset))
        self._offset += 1
        self._handle(Woke())
        self._handle(self._posted.get(timeout=30))
        (done,) = sent(self.effects, "outputs")
        assert isinstance(done, Work)
        (item,) = done.items
        return item.end.reason or item.end.outcome if item.end else ANSWERED

    def state(self) -> NodeState:
        """Return the state of the worker's next report."""
        self.effects.clear()
        for event in self._worker.handle(Woke(), 10.0):
            self.effects.append(event)
        return reports(self.effects)[-1].state

    def on_device(self) -> set[str]:
        """Return the variants loaded by the executor."""
        return set(self.executor._operators)


def test_sessions_are_served_again_after_another_policy() -> None:
    rig = Rig()
    for _ in range(2):
        rig.follow("compass")
        rig.until(Loaded)
        assert rig.answer(session=True) == ANSWERED
        rig.follow("static")
        rig.until(Loaded)
        assert rig.answer(session=False) == ANSWERED
        assert rig.on_device() == {V}


@pytest.mark.parametrize("first", [V, S])
def test_sessions_that_begin_while_the_variant_is_loaded_are_served(first: str) -> None:
    rig = Rig(V, S)
    rig.follow("static")
    rig.follow("compass")
    for each in (first, *{V, S} - {first}):
        rig.gates[each].put(None)
        rig.until(Loaded)
    assert rig.answer(session=True) == ANSWERED
    assert rig.on_device() == {S}
    rig.follow("static")
    rig.gates[V].put(None)
    rig.until(Loaded)
    assert rig.state() is NodeState.READY


@pytest.mark.parametrize("first", [V, S])
def test_a_policy_that_follows_sessions_while_a_setting_is_loaded_serves(first: str) -> None:
    rig = Rig(V, S)
    rig.follow("compass")
    rig.follow("static")
    for each in (first, *{V, S} - {first}):
        rig.gates[each].put(None)
        rig.until(Loaded)
    assert rig.answer(session=False) == ANSWERED
    assert rig.on_device() == {V}
