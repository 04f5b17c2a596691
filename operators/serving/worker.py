"""A worker: queue, drop, batch, infer, forward.

A worker is bound to one device and serves the task of its lease: with the lease's variant, or with
the variant that the policy's tables choose for each batch. It reads the lease's slots in order of
arrival. After it loses a slot, the next worker reads from the committed offset; this one forgets
queued items of that slot, and egress counts running ones once.

Where the policy plans sessions, the worker runs every item with the setting that its session's
query plan names, and holds those settings side by side.
"""

from collections import deque
from collections.abc import Mapping
from math import inf

from control.per_query.local_pace import LocalPace
from control.per_query.shadowing import is_shadow
from operators.dead_letter import dead_letter
from operators.plan_follower import PlanFollower
from operators.reporter import Reporter
from operators.serving.deadline_queue import MOST_CRASHES, Ticket, crashing, enqueue, take_late
from operators.serving.device import Device
from operators.serving.item_ends import ItemEnds
from operators.serving.leased_slots import LeasedSlots
from operators.serving.running_batch import HANGING, RUNNING, NextBatch, RunningBatch
from operators.serving.session_serving import SessionServing
from operators.serving.shadow_queue import shadow_queue
from operators.serving.table_batching import TableBatching
from operators.serving.transfers import SessionLinks, Transfers
from operators.serving.variant_serving import VariantServing
from operators.serving.worker_rules import UNSTEERED, LatencyOf, WorkerRules
from schemas.effects import Arrived, Effect, Event, Failed, Inferred, Loaded, Unload, Wake, Woke
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import Command, Garbled, Lease, Plan, Selection, Work
from schemas.variant_id import variant_id


def _unmeasured(variant: str, batch: int) -> float:
    return 0.0


class Worker:
    """The node. Invariant: at most one batch runs on the device."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        device: str,
        *,
        incarnation: float,
        latency: LatencyOf = _unmeasured,
        planned: LatencyOf = _unmeasured,
        strikes: Mapping[str, int] | None = None,
        links: SessionLinks | None = None,
    ) -> None:
        self._name = name
        self._pipeline = pipeline
        # Median latency; crash counts by item, None without a crash journal.
        self._latency, self._strikes = latency, strikes
        self._plans = PlanFollower(pipeline.name)
        self._slots = LeasedSlots(name)
        self._rules = WorkerRules(UNSTEERED, pipeline, None, latency, 0.0)
        device_ = Device()
        self._tables = TableBatching(pipeline, latency, device_, LocalPace(planned))
        self._device = device_
        self._variants = VariantServing(pipeline, latency, device_, self._tables)
        self._sessions = SessionServing(pipeline, latency)
        self._serving: VariantServing | SessionServing = self._variants  # by the policy in force
        self._queue: deque[Ticket] = deque()
        self._shadows = shadow_queue(pipeline)
        self._batch = RunningBatch(name, pipeline, named=strikes is not None)
        self._leaving = self._due = False  # due: a wake-up for the next batch is pending
        self._hold_s = inf  # time until which the next batch waits
        self._reporter = Reporter(name, "worker", pipeline, incarnation, device)
        self._ends = ItemEnds(
            pipeline, self._slots, self._batch, self._reporter, self._rules, shadows=self._shadows,
            strikes=strikes,
        )  # fmt: skip
        self._reporter.slots = self._slots.states
        self._transfers: Transfers[list[Ticket]] | None = None
        if links is not None:
            self._transfers = Transfers(links, pipeline, self._reporter)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            record = event.record
            if type(record) is Work:
                return self._enqueue(event, record, now)
            return self._arrived(event, now)
        if type(event) is Inferred:
            return self._inferred(event, now)
        if type(event) is Woke:
            return self._woke(now)
        if type(event) is Loaded:
            return self._on_device(event, now)
        if type(event) is Failed:
            return self._failed(event, now)
        return []

    # ------------------------------------------------------------------ arrivals

    def _arrived(self, event: Arrived, now: float) -> list[Effect]:
        record = event.record
        if type(record) is Plan:
            return self._plan(record, now)
        if type(record) is Selection:
            return self._selection(record, now)
        if type(record) is Garbled:
            return self._garbled(event, record, now)
        if type(record) is Command:
            return self._leave(now)
        return []

    def _enqueue(self, event: Arrived, work: Work, now: float) -> list[Effect]:
        if work.session is not None and is_shadow(work):
            return self._shadow(event, work, now)
        slot, offset, items = event.slot, event.offset, len(work.items)
        progress = self._slots.begin(slot, offset, items)
        if progress is None:
            return []
        tickets: list[Ticket] = []
        for item in work.items:
            tickets.append(Ticket(item, work, slot, offset, progress, now))
        if work.session is not None and self._transfers is not None:
            until_s = self._transfers.end_s(work, event.at_s, now)
            if until_s > now:
                self._transfers.hold(tickets, until_s)
                return [Wake(until_s)]
        return self._queued(tickets, work, now)

    def _queued(self, tickets: list[Ticket], work: Work, now: float) -> list[Effect]:
        items = len(tickets)
        enqueue(self._queue, tickets, self._ends.precedence.ahead)
        self._reporter.arrived(self._slots.wanted, items)
        if self._tables.following is not None:
            self._tables.arrivals.came(items, work.follow, now)
        effects = self._fail_crashing(tickets, self._strikes, now) if self._strikes else []
        if self._sessions.unloadable:
            effects += self._fail_refused(now)
        effects += self._soon(now)
        if self._slots.paused or len(self._queue) > self._rules.most:
            effects += self._backpressure(now)
        return effects

    def _shadow(self, event: Arrived, work: Work, now: float) -> list[Effect]:
        done = self._slots.pass_over(event.slot, event.offset)
        if done is None or self._shadows is None:  # None: its file samples no shadows
            return done or []
        self._shadows.add(work, event.slot, event.offset, now)
        return [*done, *self._soon(now)]

    def _fail_crashing(
        self, tickets: list[Ticket], crashes: Mapping[str, int], now: float
    ) -> list[Effect]:
        found, variant = crashing(tickets, crashes), self._slots.wanted
        for ticket in found:
            self._queue.remove(ticket)
        reason = f"{variant} crashed the process of {self._name} {MOST_CRASHES} times with it"
        return self._ends.failed(found, variant, reason, now) if found else []

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        if event.topic != self._slots.topic:
            return []
        done = self._slots.pass_over(event.slot, event.offset)
        return [] if done is None else [dead_letter(event, garbled, self._name, now), *done]

    def _soon(self, now: float) -> list[Effect]:
        # ``Woke`` follows the records that have already arrived, so that a burst makes one batch.
        if self._due or self._batch.busy or not (self._queue or self._shadows):
            return []
        begin_s = self._serving.begin_s(len(self._queue), now)
        if begin_s <= now:
            self._due = True
            return [Wake(now)]
        return self._wait(begin_s) if begin_s < inf and self._hold_s == inf else []

    def _wait(self, until_s: float) -> list[Effect]:
        """Begin the next batch at a later time."""
        self._hold_s = until_s
        return [Wake(until_s)]

    def _backpressure(self, now: float) -> list[Effect]:
        slots, queue, limit = self._slots, self._queue, self._rules.most
        if slots.paused:
            return [slots.resume()] if len(queue) <= limit // 2 else []
        if len(queue) <= limit or slots.lease is None:
            return []
        effects = self._shed(now)
        return [*effects, slots.pause()] if len(queue) > limit else effects

    def _shed(self, now: float) -> list[Effect]:
        """Drop the items that no batch can finish in time.

        If they stayed unread instead, they would arrive late a few batches at a time and keep every
        later item late.
        """
        queue, variant = self._queue, self._variants.serving or self._slots.wanted
        ends_s = now + self._variants.takes_s(variant, self._variants.cost(self._queue, 1))
        overrun_s = self._rules.overrun_s
        late = take_late(
            queue,
            lambda x: overrun_s(x.work, x.item, ends_s, crowded=True) > 0,
            self._ends.precedence.ahead,
        )
        return self._ends.dropped(late, variant, ends_s, now) if late else []

    # ------------------------------------------------------------------ batches

    def _start(self, now: float) -> list[Effect]:
        """Drop items that would end too late, then run a batch of the rest."""
        lease = self._slots.lease
        if lease is None or self._batch.busy:
            return []
        serving = self._serving
        effects: list[Effect] = []
        found = serving.take(self._queue, lease, self._rules, now)
        while type(found) is NextBatch:
            effects += self._begin(found, now)
            if found.items or not found.late:
                break
            # All items were late, and of one setting; take those of the next setting.
            found = serving.take(self._queue, lease, self._rules, now)
        if type(found) is Wake:
            return [*effects, *self._wait(found.at_s)]
        if self._shadows and not (self._queue or self._batch.busy or self._sessions.active):
            variants = self._variants
            found = self._shadows.take(variants.serving, variants.most_takes_s, self._rules, now)
            effects += self._begin(found, now) if found is not None else []
        if self._sessions.active:
            effects += self._load_settings(now)
        if self._slots.paused or len(self._queue) > self._rules.most:
            effects += self._backpressure(now)
        return effects

    def _begin(self, found: NextBatch, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if found.late:
            effects = self._ends.dropped(found.late, found.variant, found.ends_s, now)
        if found.items:
            effects.append(self._batch.start(found, now))
            self._variants.begins(found.variant)
        return effects

    def _inferred(self, event: Inferred, now: float) -> list[Effect]:
        batch = self._batch
        if event.job != batch.job:
            return []
        if batch.state is not RUNNING:
            return self._recovered(now) if batch.state is HANGING else []
        if len(event.outputs) != len(batch.tickets):
            wanted, found = len(batch.tickets), len(event.outputs)
            return self._fail(f"{batch.variant} returned {found} outputs for {wanted} inputs", now)
        effects = self._ends.answered(event, now)
        took_s = event.finished_s - event.started_s
        self._variants.ran(batch.variant, batch.cost, took_s, paced=self._rules.paced)
        batch.end()
        if self._device.standby:
            effects += self._swap(now)
        effects += self._start(now)
        return effects

    def _failed(self, event: Failed, now: float) -> list[Effect]:
        if event.job == self._batch.job and self._batch.busy:
            return self._fail(event.error, now)
        return self._not_loaded(event.job, event.error, now) if isinstance(event.job, str) else []

    def _not_loaded(self, variant: str, error: str, now: float) -> list[Effect]:
        renewed = self._variants.renewed(variant)
        if renewed:
            self._reporter.count(f"reload_failed/{variant}")
            self._reporter.warning = error
        if self._sessions.active:
            return self._fail_setting(variant, error, now)
        # One load may answer two requests: the lease's, and the reload of edited code.
        wanted = self._variants.gave_up(variant, now)
        if wanted and not self._leaving:  # it reports ``LEAVING`` until its process ends
            self._reporter.state, self._reporter.error = NodeState.FAILED, error
        more = self._variants.more() if wanted else []
        return [*more, *(self._variants.renew() if renewed else [])]

    def _fail_setting(self, setting: str, error: str, now: float) -> list[Effect]:
        self._sessions.gave_up(setting, error, now)
        self._show_state()
        effects = [*self._fail_refused(now), *self._load_settings(now)]
        return [*effects, *self._reporter.at_once(now), *self._backpressure(now)]

    def _fail_refused(self, now: float) -> list[Effect]:
        """Fail the items whose setting cannot be loaded; the others go on."""
        effects: list[Effect] = []
        for setting, error, found in self._sessions.refuse(self._queue):
            effects += self._ends.failed(found, setting, error, now)
        return effects

    def _fail(self, reason: str, now: float) -> list[Effect]:
        if self._batch.state is HANGING:
            return self._recovered(now)
        effects = [] if self._try_again() else self._ends.failed_batch(reason, now)
        self._batch.end()
        return [*effects, *self._swap(now), *self._start(now)]

    def _try_again(self) -> bool:
        """Requeue the items of a failed batch, each to run alone; return False for a single item.

        One bad input must not fail the others of its batch.
        """
        tickets = self._batch.tickets
        if len(tickets) < 2:
            return False
        for ticket in reversed(tickets):
            if self._slots.holds(ticket):
                ticket.alone = True
                self._queue.appendleft(ticket)
        return True

    def _give_up_hanging(self, now: float) -> list[Effect]:
        """Fail a hanging batch and report ``STUCK``; no other batch starts until it ends."""
        if not self._batch.hangs(self._pipeline.grace_s, now):
            return []
        self._show_state()
        return self._ends.failed_batch(self._batch.error, now)

    def _recovered(self, now: float) -> list[Effect]:
        """Resume once a batch that was failed as hanging has ended."""
        self._batch.end()
        self._show_state()
        return [*self._swap(now), *self._start(now)]

    # ------------------------------------------------------------------ plans

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._plans.accept(plan):
            return []
        lease = next((each for each in plan.leases if each.worker == self._name), None)
        effects = self._slots.change(lease)
        self._serve_by(plan, lease)
        if self._transfers is not None:
            self._transfers.forget(frozenset([each.session for each in plan.sessions]))
        self._queue = deque(filter(self._slots.holds, self._queue))
        effects += self._follow(now)
        rules = WorkerRules(plan, self._pipeline, lease, self._latency, now)
        rules.follow(self._rules, now)
        self._rules = self._ends.rules = rules
        self._show_state()
        return [*effects, *self._soon(now), *self._backpressure(now)]

    def _serve_by(self, plan: Plan, lease: Lease | None) -> None:
        """Serve sessions or the lease's variant, depending on the plan's policy."""
        before = self._sessions.active
        self._sessions.follow(plan, lease)
        if self._sessions.active and not before:
            self._sessions.take_over(self._variants.release())
            self._serving = self._sessions
        elif before and not self._sessions.active:
            self._sessions.release()
            self._serving = self._variants

    def _selection(self, selection: Selection, now: float) -> list[Effect]:
        if not self._tables.take(selection):
            return []
        effects = self._follow(now)
        self._show_state()
        return effects

    def _follow(self, now: float) -> list[Effect]:
        """Follow the tables of the policy in force, and load the variants that it needs."""
        wanted = self._slots.wanted
        self._variants.follow(self._plans.plan, wanted, now)
        if self._sessions.active:
            return self._load_settings(now)
        return self._variants.want(wanted, self._running)

    @property
    def _running(self) -> str:
        """The variant or setting of the running batch; "": none."""
        return self._batch.variant if self._batch.busy else ""

    def _load_settings(self, now: float) -> list[Effect]:
        effects = self._sessions.more(self._queue, self._running, now)
        for each in effects:
            if type(each) is Unload:
                self._reporter.forget(each.variant)
        return effects

    def _on_device(self, event: Loaded, now: float) -> list[Effect]:
        self._reporter.count(f"load_s/{event.variant}", event.seconds)
        renewed = self._variants.renewed(event.variant)
        if renewed:
            self._reporter.count(f"reloaded/{event.variant}")
            self._reporter.warning = ""
        if self._sessions.active:
            return self._setting_loaded(event, now)
        effects = self._variants.loaded(event.variant)
        swapped = [] if self._batch.busy else self._swap(now)
        effects += swapped or self._variants.more()
        return [*effects, *self._variants.renew(), *self._soon(now)]

    def _setting_loaded(self, event: Loaded, now: float) -> list[Effect]:
        """Report a setting at once: its session may wait for it."""
        effects = self._sessions.loaded(event.variant)
        self._show_state()
        return [*effects, *self._load_settings(now), *self._reporter.at_once(now), *self._soon(now)]

    def _swap(self, now: float) -> list[Effect]:
        """Swap the standby variant in, if any, between two batches, and report it at once: the next
        plan may wait for it."""
        if not self._variants.swap():
            return []
        self._show_state()
        return [*self._variants.more(), *self._reporter.at_once(now)]

    def _leave(self, now: float) -> list[Effect]:
        """Report leaving before the process ends; the control app then drains the worker."""
        self._leaving = True
        self._show_state()
        return self._reporter.at_once(now)

    def _show_state(self) -> None:
        lease, state = self._slots.lease, NodeState.READY
        if self._leaving:
            state = NodeState.LEAVING
        elif lease is None:
            state = NodeState.IDLE
        elif lease.open_slot < 0:
            state = NodeState.DRAINING
        elif self._batch.error:
            state, self._reporter.error = NodeState.STUCK, self._batch.error
        elif self._serving.serving != self._slots.wanted:
            state = NodeState.LOADING if self._serving.loading else self._reporter.state
        self._reporter.follow(self._plans.epoch, state)
        self._reporter.task = lease.task if lease else ""
        self._reporter.variant = variant_id(self._serving.serving).variant
        self._reporter.held = tuple(sorted(self._sessions.held))
        if self._sessions.active:
            self._reporter.warning = self._sessions.trouble
        self._reporter.unloadable = self._sessions.unloadable

    # ------------------------------------------------------------------ time

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self._plans.started else self._plans.start()
        for tickets in self._transfers.ended(now) if self._transfers is not None else ():
            if self._slots.holds(tickets[0]):
                effects += self._queued(tickets, tickets[0].work, now)
        if self._batch.state is RUNNING:
            effects += self._give_up_hanging(now)
        if self._due or now >= self._hold_s or (self._shadows and not self._queue):
            self._due, self._hold_s = False, inf
            effects += self._start(now)
        if self._variants.retries(now) or self._sessions.retries(now):
            effects += self._follow(now)
        return [*effects, *self._reporter.due(now)]
