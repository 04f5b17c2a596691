"""Ingress: stamp the deadline, admit or refuse, send to the root task.

A query is identified by its place on the input topic (``Origin``). Ingress reads a partition in
order and sends egress notices of the queries, many per record, so that egress awaits every query,
even one whose work is lost.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from control.per_query.class_admission import ClassAdmission
from control.policies.kairos.size_watch import size_count
from operators.bursts import Runs
from operators.dead_letter import dead_letter
from operators.dispatch.dispatch_queue import CentralQueue
from operators.drop_reasons import (
    OVER_CAPACITY,
    PAUSED,
    Reason,
    bad_input,
    dropped,
    no_worker,
    past_saving,
    read_late,
)
from operators.ingress.query_parts import Split, UnfitQuery, sized_items
from operators.ingress.session_queries import SessionQueries
from operators.ingress.shadow_sampler import shadow_sampler
from operators.input_place import InputPlaces
from operators.plan_follower import PlanFollower
from operators.record_size import brief, excess
from operators.reporter import Reporter
from operators.wake_up import WakeUp
from schemas.effects import (
    COMPLETIONS,
    OUTPUTS,
    QUERIES,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Send,
    Woke,
    work_topic,
)
from schemas.enumerations import NodeState
from schemas.pipeline import ClassShare, Pipeline
from schemas.records import (
    Completion,
    Garbled,
    Item,
    Notice,
    Noticed,
    Origin,
    Plan,
    Query,
    Selection,
    SessionPlan,
    Work,
)

NOTICE_S = 0.05  # delay of the notice and of the offset commit: one notice for many queries
REFUSAL_S = 0.01  # delay of the notice by which egress answers a refused query
UNKNOWN: Mapping[str, float] = {}
_COUNTED = ("arrived", "admitted", "refused", "dropped", "missing")
TASK = "ingress"  # the name under which ingress ends a query


class Ingress:
    """The ingress node; it owns ``partitions`` of the input topic.

    ``share`` is its part of the plan's capacity (that of its partitions among all), ``number`` its
    index among the ingress processes. ``places`` are its places on the input topic, starting at the
    first one that an earlier incarnation did not commit (``operators/input_place.py``).

    Under a plan that dispatches, queries wait in one of the ``dispatchers`` until a device is free.
    Where the policy plans sessions, a query follows the query plan of the session that it names.
    ``accuracies``, by "task/variant", select the most accurate path for shadows. ``split`` divides
    queries above the largest size. ``recent`` are the sizes of the last queries of earlier
    incarnations; they count again, as planners use the newest sizes.
    """

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        partitions: Sequence[int],
        *,
        incarnation: float,
        share: float = 1.0,
        places: InputPlaces | None = None,
        dispatchers: Sequence[CentralQueue] = (),
        number: int = 0,
        accuracies: Mapping[str, float] = UNKNOWN,
        split: Split | None = None,
        recent: Iterable[int] = (),
    ) -> None:
        self._pipeline, self._partitions = pipeline, tuple(partitions)
        self._share, self._root = share, pipeline.root.name
        self._topic = work_topic(self._root)
        self._plans = PlanFollower(pipeline.name)
        self._runs = Runs(pipeline, alone=share == 1.0)
        self._has_worker = False  # whether the root task has a worker
        self._admission = _class_admission(pipeline)
        self._epoch = 0
        self._sizes, self._slo_s, self._split = pipeline.size, pipeline.slo_s, split
        self._most_s = max(pipeline.longest_deadline_s, pipeline.slo_s)
        self._places = places = places or InputPlaces({})
        self._shadows = shadow_sampler(pipeline, accuracies)
        self._dispatchers, self._number = dispatchers, number
        self._dispatcher: CentralQueue | None = None  # of the plan in force
        self._decision_wake_up = WakeUp()  # of the dispatcher
        self._sessions = SessionQueries()
        self._pending: dict[int, list[Noticed]] = {}
        self._flush_wake_up = WakeUp()  # of the notices
        self._reporter = Reporter(name, "ingress", pipeline, incarnation)
        self._counts = self._reporter.counts
        self._counts |= dict.fromkeys(_COUNTED, 0) | {"regressed": places.regressed}
        for size in recent:
            self._count_size(size)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            record = event.record
            if type(record) is Query:
                return self._query(event, record, now)
            if type(record) is Completion:
                return self._completed(record, now)
            if type(record) is Garbled and event.topic == QUERIES:
                return self._garbled(event, record, now)
            if type(record) is Plan:
                return self._plan(record, now)
            if type(record) is Selection:
                self._selection(record, now)
            return []
        if type(event) is Woke:
            return self._woke(now)
        return []

    # ------------------------------------------------------------------ queries

    def _query(self, event: Arrived, query: Query, now: float) -> list[Effect]:
        event = self._placed(event)
        name = query.id or f"{event.slot}-{event.offset}"
        plan = self._sessions.plan_of(query.session) if query.session else None
        deadline = self._deadline(query, plan, event.at_s, now)
        if deadline is None:
            known = ", ".join(sorted(self._pipeline.slo_classes)) or "none"
            unknown = f"SLO class {query.slo_class!r} is unknown; the pipeline file has: {known}"
            noticed = _noticed(event, name, event.at_s + self._pipeline.slo_s)
            return self._refuse(event, noticed, bad_input(unknown), now)
        session = self._sessions.known(query.session) if query.session else ""
        slo_class = query.slo_class and self._class_of(query)
        noticed = _noticed(event, name, deadline, slo_class, session)
        if now > deadline:
            return self._too_late(event, noticed, now)
        try:
            items = self._items(query)
        except UnfitQuery as error:
            return self._refuse(event, noticed, bad_input(str(error)), now)
        refusal = self._refusal(query.session, noticed, now)
        if refusal is not None:
            return self._refuse(event, noticed, refusal, now)
        return self._admit(event, noticed, items, plan, now)

    def _admit(
        self,
        event: Arrived,
        noticed: Noticed,
        items: list[tuple[Item, int]],
        plan: SessionPlan | None,
        now: float,
    ) -> list[Effect]:
        """Send the items of an admitted query onward, each as work of its own."""
        self._counts["admitted"] += 1
        effects: list[Effect] = []
        for item, size in items:
            if self._sizes is not None:
                self._count_size(size)
            work = self._work(event, noticed, item, size=size)
            if plan is not None:
                work = replace(work, session=plan)
            effects += self._onward(work, now)
        effects += self._notice(event, noticed, now)
        if self._shadows is None or len(items) > 1:
            return effects
        return effects + self._shadows.shadows(work, now)

    def _onward(self, work: Work, now: float) -> list[Effect]:
        """Send the work to the next worker, or queue it in the dispatcher."""
        if work.session is not None:
            return [Send(self._topic, work, work.session.stage(self._root).slot)]
        if self._dispatcher is not None:
            self._dispatcher.add(work)
            return self._soon(now)
        slot, follow = self._runs.pick(now, work.slo_class)
        return [Send(self._topic, replace(work, follow=follow) if follow else work, slot)]

    def _count_size(self, size: int) -> None:
        """Count a query by its size, for planners and the mix of rented devices."""
        name = size_count(size)
        self._counts[name] = self._counts.get(name, 0) + 1

    def _items(self, query: Query) -> list[tuple[Item, int]]:
        """Return the query's items and their sizes; a query above the largest size becomes parts.

        If the pipeline file has no ``size``, every query has size 1, whatever its record says.
        Raises ``UnfitQuery`` for a size or a payload that is refused.
        """
        if self._sizes is not None:
            return sized_items(query, self._sizes, self._split)
        too_large = excess(query.payload)
        if too_large:
            raise UnfitQuery(too_large)
        return [(Item(value=query.payload), 1)]

    def _placed(self, event: Arrived) -> Arrived:
        """Return the record with its place as its offset; they differ once offsets went back."""
        place = self._places.take(event.slot, event.offset)
        self._counts["arrived"] += 1
        return event if place == event.offset else replace(event, offset=place)

    def _deadline(
        self, query: Query, session: SessionPlan | None, created_s: float, now: float
    ) -> float | None:
        """Return a query's deadline (None: unknown SLO class), capped to bound egress's memory."""
        if query.deadline_s is not None:
            deadline_s = query.deadline_s
        elif not query.slo_class:
            deadline_s = created_s + (self._slo_s if session is None else session.slo_s)
        elif query.slo_class in self._pipeline.slo_classes:
            deadline_s = created_s + self._pipeline.slo_classes[query.slo_class]
        else:
            return None
        return min(deadline_s, created_s + self._most_s, now + self._most_s)

    def _refusal(self, session: str, noticed: Noticed, now: float) -> Reason | None:
        plan = self._plans.plan
        if plan is not None and plan.settings.paused:
            return PAUSED
        if self._sessions.active:
            return self._sessions.refusal(session)
        dispatcher = self._dispatcher
        if not (self._has_worker if dispatcher is None else dispatcher):
            return no_worker(self._root)
        has_time = dispatcher is not None or self._runs.admits(now)
        if not (has_time and self._admission.admit(now, noticed.slo_class)):
            if self._shadows is not None:
                self._shadows.refused(now)
            return OVER_CAPACITY
        return None

    def _class_of(self, query: Query) -> str:
        """Return the query's SLO class; "" if it has none or gives an unknown one."""
        return query.slo_class if query.slo_class in self._pipeline.slo_classes else ""

    def _refuse(self, event: Arrived, noticed: Noticed, reason: Reason, now: float) -> list[Effect]:
        self._counts["refused"] += 1
        refused = replace(noticed, refused=brief(reason.text), reason_code=reason.code)
        return self._notice(event, refused, now)

    def _too_late(self, event: Arrived, noticed: Noticed, now: float) -> list[Effect]:
        self._counts["dropped"] += 1
        end = dropped(TASK, read_late(now - noticed.deadline_s))
        work = self._work(event, noticed, Item(end=end), task="")
        return [
            Send(OUTPUTS, work, self._egress_slot(event.slot)),
            *self._notice(event, noticed, now),
        ]

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        event = self._placed(event)
        name = garbled.id or f"{event.slot}-{event.offset}"
        noticed = _noticed(event, name, event.at_s + self._slo_s)
        return [
            dead_letter(event, garbled, self._reporter.name, now),
            *self._refuse(event, noticed, bad_input(garbled.reason), now),
        ]

    def _work(
        self,
        event: Arrived,
        noticed: Noticed,
        item: Item,
        task: str | None = None,
        size: int = 1,
    ) -> Work:
        return Work(
            query_id=noticed.query_id,
            origin=Origin(event.slot, event.offset),
            task=self._root if task is None else task,
            created_s=noticed.created_s,
            deadline_s=noticed.deadline_s,
            epoch=self._epoch,
            items=(item,),
            size=size,
            slo_class=noticed.slo_class,
            trace=noticed.trace,
        )

    # ------------------------------------------------------------------ notices

    def _notice(self, event: Arrived, noticed: Noticed, now: float) -> list[Effect]:
        self._pending.setdefault(event.slot, []).append(noticed)
        # One notice for many queries, sent after their work: egress also accepts an answer that
        # overtakes its notice.
        return self._flush_wake_up.by(now + (REFUSAL_S if noticed.refused else NOTICE_S))

    def _flush(self) -> list[Effect]:
        self._flush_wake_up.clear()
        places, counts = self._places, self._counts
        upto = places.upto
        counts["regressed"], counts["missing"] = places.regressed, places.missing
        effects: list[Effect] = [
            Send(
                OUTPUTS,
                Notice(partition=partition, upto=upto[partition], queries=tuple(queries)),
                self._egress_slot(partition),
            )
            for partition, queries in self._pending.items()
            if queries
        ]
        done = tuple([Done(p, *self._committed(p)) for p in self._pending])
        self._pending = {}
        return [*effects, Assign(QUERIES, done=done)] if done else []

    def _committed(self, partition: int) -> tuple[int, str]:
        """Return the offset and note to commit; queued queries are read again after a restart."""
        held = None if self._dispatcher is None else self._dispatcher.oldest(partition)
        return self._places.committed(partition, held)

    def _egress_slot(self, partition: int) -> int:
        return partition % self._pipeline.egress_partitions

    # ------------------------------------------------------------------ plans and time

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._plans.accept(plan):
            return []
        self._epoch, self._slo_s = plan.epoch, plan.settings.slo_s
        slos_s = [each.slo_s for each in plan.sessions]
        self._most_s = max(self._pipeline.longest_deadline_s, self._slo_s, *slos_s)
        self._runs.change(plan, now)
        if self._shadows is not None:
            self._shadows.change(plan)
        self._has_worker = bool(self._runs)
        self._sessions.change(plan, self._pipeline)
        rate = None if plan.capacity_qps is None else plan.capacity_qps * self._share
        burst = (rate or 0.0) * plan.settings.slo_s
        self._admission.change(rate, burst, now)
        self._reporter.follow(plan.epoch, NodeState.READY)
        # Reading starts with the first plan: before it the pipeline has no worker.
        return [*self._redispatch(plan, now), Assign(QUERIES, self._partitions)]

    def _selection(self, selection: Selection, now: float) -> None:
        self._runs.take(selection, self._plans.plan, now)
        for each in self._dispatchers:
            each.take(selection)

    def _redispatch(self, plan: Plan, now: float) -> list[Effect]:
        """Pass a plan to the dispatchers; send the queries that a dispatcher releases."""
        left = [work for each in self._dispatchers for work in each.change(plan, now)]
        self._dispatcher = next((each for each in self._dispatchers if each.active), None)
        sent = [effect for work in left for effect in self._released(work, now)]
        if self._dispatcher is None:
            return sent
        return [Assign(COMPLETIONS, (self._number,)), *sent, *self._soon(now)]

    def _released(self, work: Work, now: float) -> list[Effect]:
        """Send a query that a dispatcher released onward; drop it if the plan has no worker."""
        if self._dispatcher is None and not self._has_worker:
            return [self._dropped(work, no_worker(self._root))]
        return self._onward(work, now)

    # ------------------------------------------------------------------ dispatch

    def _completed(self, completion: Completion, now: float) -> list[Effect]:
        if self._dispatcher is None:
            return []
        self._dispatcher.completed(completion, now)
        return self._soon(now) if self._dispatcher.waiting else []

    def _soon(self, now: float) -> list[Effect]:
        """Wake for one decision per drain of arrivals, not per record."""
        return self._decision_wake_up.by(now)

    def _dispatch(self, dispatcher: CentralQueue, now: float) -> list[Effect]:
        self._decision_wake_up.clear()
        self._reporter.count("decisions")
        picks, dropped = dispatcher.decide(now)
        effects: list[Effect] = [Send(self._topic, each.work, slot) for each, slot in picks]
        effects += [
            self._dropped(each.work, past_saving("every device", short_s))
            for each, short_s in dropped
        ]
        # Their offsets can be committed with the next notices.
        for each, _ in (*picks, *dropped):
            self._pending.setdefault(each.work.origin.partition, [])
        effects += self._decision_wake_up.by(dispatcher.next_s(now))
        return [*effects, *(self._flush_wake_up.by(now + NOTICE_S) if picks or dropped else [])]

    def _dropped(self, work: Work, reason: Reason) -> Effect:
        """End a query that a dispatcher held."""
        self._counts["dropped"] += 1
        gone = replace(work, task="", items=(Item(end=dropped(TASK, reason)),))
        return Send(OUTPUTS, gone, self._egress_slot(work.origin.partition))

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self._plans.started else self._plans.start()
        if self._dispatcher is not None and now >= self._decision_wake_up.at_s:
            effects += self._dispatch(self._dispatcher, now)
        if now >= self._flush_wake_up.at_s:
            effects += self._flush()
        return [*effects, *self._reporter.due(now)]


def _class_admission(pipeline: Pipeline) -> ClassAdmission:
    """Return the admission of a pipeline's SLO classes, each by its share."""
    shares = pipeline.class_shares
    return ClassAdmission({each: shares.get(each, ClassShare()) for each in pipeline.slo_classes})


def _noticed(
    event: Arrived, name: str, deadline: float, slo_class: str = "", session: str = ""
) -> Noticed:
    """Return the notice of an admitted query."""
    return Noticed(
        query_id=name, offset=event.offset, created_s=event.at_s, deadline_s=deadline,
        slo_class=slo_class, session=session, trace=event.trace,
    )  # fmt: skip
