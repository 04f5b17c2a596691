"""The dispatcher of an inner task: a node of its own.

Workers of the parent task send their items to the task's waiting topic instead of a worker's slot.
The dispatcher queues them, decides once per drain of arrivals (``dispatcher.py``) and sends each
item to a free device. A queued item is uncommitted, so it is read again after a restart; egress
counts an item that was sent twice once.
"""

from msgspec.structs import replace

from control.per_query.waiting_slots import first_completion_slot
from operators.dead_letter import dead_letter
from operators.dispatch.dispatcher import Dispatcher
from operators.drop_reasons import dropped, past_saving
from operators.offset_tracker import Progress
from operators.plan_follower import PlanFollower
from operators.reporter import Reporter
from operators.wake_up import WakeUp
from schemas.effects import (
    COMPLETIONS,
    OUTPUTS,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Send,
    Woke,
    waiting_topic,
    work_topic,
)
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import Completion, Garbled, Item, Plan, Work


class TaskDispatcher:
    """The node. ``number`` is its partition of the waiting topic."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        task: str,
        dispatcher: Dispatcher,
        *,
        incarnation: float,
        number: int = 0,
    ) -> None:
        first = first_completion_slot(pipeline, task)
        if first is None:
            raise ValueError(f"task {task!r} of pipeline {pipeline.name!r} has no dispatcher")
        self._task, self._number, self._partitions = task, number, pipeline.egress_partitions
        self._topic = waiting_topic(task)
        self._completions = first + number
        self._plans = PlanFollower(pipeline.name)
        self._dispatcher = dispatcher
        self._progress = Progress()
        self._decision_wake_up = WakeUp()
        self._reporter = Reporter(name, "dispatcher", pipeline, incarnation)
        self._reporter.counts.update(arrived=0, sent=0, dropped=0)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            return self._arrived(event, now)
        if type(event) is Woke:
            return self._woke(now)
        return []

    def _arrived(self, event: Arrived, now: float) -> list[Effect]:
        record = event.record
        if type(record) is Work:
            return self._hold(event, record, now)
        if type(record) is Completion:
            self._dispatcher.completed(record, now)
            return self._soon(now) if self._dispatcher.waiting else []
        if type(record) is Plan:
            return self._plan(record, now)
        if type(record) is Garbled and event.topic == self._topic:
            return self._garbled(event, record, now)
        return []

    def _hold(self, event: Arrived, work: Work, now: float) -> list[Effect]:
        """Queue the items of a record one by one."""
        if not self._progress.begin(event.offset, len(work.items)):
            return []
        self._reporter.count("arrived", len(work.items))
        for item in work.items:
            self._dispatcher.add(replace(work, items=(item,)), event.offset)
        return self._soon(now)

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        letter = dead_letter(event, garbled, self._reporter.name, now)
        return [letter, *self._commit()] if self._progress.begin(event.offset, 0) else []

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._plans.accept(plan):
            return []
        self._dispatcher.change(plan, now)
        self._reporter.follow(plan.epoch, NodeState.READY)
        return [
            Assign(COMPLETIONS, (self._completions,)),
            Assign(self._topic, (self._number,)),
            *self._soon(now),
        ]

    def _soon(self, now: float) -> list[Effect]:
        """Wake for one decision per drain of arrivals, not per record."""
        return self._decision_wake_up.by(now)

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self._plans.started else self._plans.start()
        if now >= self._decision_wake_up.at_s:
            effects += self._dispatch(now)
        return [*effects, *self._reporter.due(now)]

    def _dispatch(self, now: float) -> list[Effect]:
        self._decision_wake_up.clear()
        self._reporter.count("decisions")
        picks, gone = self._dispatcher.decide(now)
        effects: list[Effect] = []
        for waiting, slot in picks:
            effects.append(Send(work_topic(self._task), self._stamped(waiting.work), slot))
            self._progress.finish(waiting.place)
        for waiting, short_s in gone:
            effects.append(self._given_up(waiting.work, short_s))
            self._progress.finish(waiting.place)
        self._reporter.count("sent", len(picks))
        self._reporter.count("dropped", len(gone))
        effects += self._decision_wake_up.by(self._dispatcher.next_s(now))
        return [*effects, *self._commit()]

    def _stamped(self, work: Work) -> Work:
        return replace(work, epoch=self._plans.epoch)

    def _given_up(self, work: Work, short_s: float) -> Effect:
        item, why = work.items[0], past_saving("every device", short_s)
        end = dropped(self._task, why)
        ended = Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
        gone = replace(work, task="", items=(ended,))
        return Send(OUTPUTS, gone, work.origin.partition % self._partitions)

    def _commit(self) -> list[Effect]:
        if not self._progress.advance():
            return []
        return [Assign(self._topic, done=(Done(self._number, self._progress.done),))]
