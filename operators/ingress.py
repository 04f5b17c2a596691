"""Ingress: stamp the deadline, admit or refuse, send to the first stage.

A query is known by its place on the input topic (``Origin``). Ingress reads a partition in order
and tells egress what it took in, many queries at a time, so that egress awaits every query, also
one whose work is lost on the way.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from control.per_query.admission import Admission
from operators.bursts import Runs
from operators.dead_letter import dead_letter
from operators.drop_reasons import (
    OVER_CAPACITY,
    PAUSED,
    Reason,
    bad_input,
    dropped,
    no_worker,
    read_late,
)
from operators.input_place import InputPlaces
from operators.plan_follower import PlanFollower
from operators.record_size import brief, excess
from operators.reporter import Reporter
from schemas.effects import (
    OUTPUTS,
    QUERIES,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Send,
    Wake,
    Woke,
    work_topic,
)
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import (
    Garbled,
    Item,
    Notice,
    Noticed,
    Origin,
    Plan,
    Query,
    Selection,
    Work,
)

NOTICE_S = 0.01  # queries are noticed, and their offsets committed, so much later
TASK = "ingress"  # the name under which ingress ends a query


class Ingress:
    """The node. ``partitions`` of the input topic are its own; ``share`` is its part of the
    plan's capacity (1 / number of ingress processes). ``upto`` are the places behind what an
    earlier life committed, by partition (``operators/input_place.py``)."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        partitions: Sequence[int],
        *,
        incarnation: float,
        share: float = 1.0,
        upto: Mapping[int, int] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._share = share
        self._root = pipeline.root.name
        self._topic = work_topic(self._root)
        self._plans = PlanFollower(pipeline.name)
        self._runs = Runs(pipeline, alone=share == 1.0)
        self._admission = Admission(None, 1.0, 0.0)
        self._places = InputPlaces(upto or {})
        self._pending: dict[int, list[Noticed]] = {}
        self._flushing = False
        self._flush_s = 0.0
        self._reporter = Reporter(name, "ingress", pipeline.name, incarnation)
        self._counts = self._reporter.counts
        self._counts.update(arrived=0, admitted=0, refused=0, dropped=0, regressed=0, missing=0)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            record = event.record
            if type(record) is Query:
                return self._query(event, record, now)
            if type(record) is Garbled and event.topic == QUERIES:
                return self._garbled(event, record, now)
            if type(record) is Plan:
                return self._plan(record, now)
            if type(record) is Selection:
                self._runs.take(record, self._plans.plan, now)
            return []
        if type(event) is Woke:
            return self._woke(now)
        return []

    # ------------------------------------------------------------------ queries

    def _query(self, event: Arrived, query: Query, now: float) -> list[Effect]:
        event = self._placed(event)
        name = query.id or f"{event.slot}-{event.offset}"
        deadline = self._deadline(query, event.at_s, now)
        if deadline is None:
            known = ", ".join(sorted(self._pipeline.slo_classes)) or "none"
            return self._refuse(
                event, name, event.at_s + self._pipeline.slo_s,
                bad_input(
                    f"SLO class {query.slo_class!r} is unknown; the pipeline file has: {known}"
                ),
                now,
            )  # fmt: skip
        if now > deadline:
            return self._too_late(event, name, deadline, now)
        too_large = excess(query.payload)
        refusal = bad_input(too_large) if too_large else self._refusal(now)
        if refusal is not None:
            return self._refuse(event, name, deadline, refusal, now)
        self._counts["admitted"] += 1
        slot, follow = self._runs.pick(now)
        work = self._work(event, name, deadline, Item(value=query.payload), follow=follow)
        return [Send(self._topic, work, slot), *self._notice(event, Noticed(
            query_id=name, offset=event.offset, created_s=event.at_s, deadline_s=deadline,
        ), now)]  # fmt: skip

    def _placed(self, event: Arrived) -> Arrived:
        """Return the record with its place for its offset, which differ once the topic went
        back."""
        places, counts = self._places, self._counts
        place = places.take(event.slot, event.offset)
        counts["arrived"] += 1
        counts["regressed"], counts["missing"] = places.regressed, places.missing
        return event if place == event.offset else replace(event, offset=place)

    def _deadline(self, query: Query, created_s: float, now: float) -> float | None:
        """Return when a query is due, capped: every part of it is kept in memory until then."""
        if query.deadline_s is not None:
            deadline_s = query.deadline_s
        elif not query.slo_class:
            deadline_s = created_s + self._slo_s
        elif query.slo_class in self._pipeline.slo_classes:
            deadline_s = created_s + self._pipeline.slo_classes[query.slo_class]
        else:
            return None
        most_s = max(self._pipeline.longest_deadline_s, self._slo_s)
        return min(deadline_s, min(created_s, now) + most_s)

    @property
    def _slo_s(self) -> float:
        plan = self._plans.plan
        return plan.settings.slo_s if plan else self._pipeline.slo_s

    def _refusal(self, now: float) -> Reason | None:
        plan = self._plans.plan
        if plan is not None and plan.settings.paused:
            return PAUSED
        if not self._runs:
            return no_worker(self._root)
        if not self._admission.admit(now):
            return OVER_CAPACITY
        return None

    def _refuse(
        self, event: Arrived, name: str, deadline: float, reason: Reason, now: float
    ) -> list[Effect]:
        self._counts["refused"] += 1
        noticed = Noticed(
            query_id=name, offset=event.offset, created_s=event.at_s, deadline_s=deadline,
            refused=brief(reason.text), reason_code=reason.code,
        )  # fmt: skip
        return self._notice(event, noticed, now)

    def _too_late(self, event: Arrived, name: str, deadline: float, now: float) -> list[Effect]:
        self._counts["dropped"] += 1
        end = dropped(TASK, read_late(now - deadline))
        work = self._work(event, name, deadline, Item(end=end), task="")
        return [
            Send(OUTPUTS, work, self._egress_slot(event.slot)),
            *self._notice(event, Noticed(
                query_id=name, offset=event.offset, created_s=event.at_s, deadline_s=deadline,
            ), now),
        ]  # fmt: skip

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        event = self._placed(event)
        name = garbled.id or f"{event.slot}-{event.offset}"
        deadline = event.at_s + self._slo_s
        return [
            dead_letter(event, garbled, self._reporter.name, now),
            *self._refuse(event, name, deadline, bad_input(garbled.reason), now),
        ]

    def _work(
        self,
        event: Arrived,
        name: str,
        deadline: float,
        item: Item,
        task: str | None = None,
        follow: int = 0,
    ) -> Work:
        return Work(
            query_id=name,
            origin=Origin(event.slot, event.offset),
            task=self._root if task is None else task,
            created_s=event.at_s,
            deadline_s=deadline,
            epoch=self._plans.epoch,
            items=(item,),
            follow=follow,
        )

    # ------------------------------------------------------------------ notices

    def _notice(self, event: Arrived, noticed: Noticed, now: float) -> list[Effect]:
        self._pending.setdefault(event.slot, []).append(noticed)
        if self._flushing:
            return []
        # One notice for many queries, and out of the way of the work that it tells of: egress
        # takes an answer that is faster than its notice.
        self._flushing = True
        self._flush_s = now + NOTICE_S
        return [Wake(self._flush_s)]

    def _flush(self) -> list[Effect]:
        self._flushing = False
        upto = self._places.upto
        effects: list[Effect] = [
            Send(
                OUTPUTS,
                Notice(partition=partition, upto=upto[partition], queries=tuple(queries)),
                self._egress_slot(partition),
            )
            for partition, queries in self._pending.items()
        ]
        done = tuple(Done(p, *self._places.committed(p)) for p in self._pending)
        self._pending = {}
        return [*effects, Assign(QUERIES, done=done)] if done else []

    def _egress_slot(self, partition: int) -> int:
        return partition % self._pipeline.egress_partitions

    # ------------------------------------------------------------------ plans and time

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._plans.accept(plan):
            return []
        self._runs.change(plan, now)
        rate = None if plan.capacity_qps is None else plan.capacity_qps * self._share
        burst = (rate or 0.0) * plan.settings.slo_s
        self._admission.change(rate, burst, now)
        self._reporter.follow(plan.epoch, NodeState.READY)
        # Reading starts with the first plan: before it nobody could take a query.
        return [Assign(QUERIES, self._partitions)]

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self._plans.started else self._plans.start()
        if self._flushing and now >= self._flush_s:
            effects += self._flush()
        return [*effects, *self._reporter.due(now)]
