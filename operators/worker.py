"""A worker: queue, drop, batch, infer, forward.

A worker is bound to one device and serves the task of its lease: with the lease's variant, or with
the variant that the policy's tables choose for each batch. It reads the lease's slots in order of
arrival. After it loses a slot, another worker reads on from the committed offset; queued items of
that slot are forgotten, and egress counts running ones once.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from control.per_query.batching import IDLE, batch_size, released
from control.per_query.local_slowdown import LocalSlowdown
from control.per_query.table_lookup import Selections, TableLookup
from control.policies.ramsis.burst_lengths import WAIT
from operators.bursts import BurstBuffer
from operators.dead_letter import dead_letter
from operators.device import Device
from operators.drop_reasons import dropped
from operators.fanout import failed, outcome
from operators.offset_tracker import Progress
from operators.outbox import Onward
from operators.plan_follower import PlanFollower
from operators.reporter import Reporter
from operators.worker_rules import UNSTEERED, LatencyOf, WorkerRules
from schemas.effects import (
    COMPLETIONS,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Loaded,
    Send,
    Wake,
    Woke,
    work_topic,
)
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    Command,
    Completion,
    Garbled,
    Hop,
    Item,
    Lease,
    Plan,
    Selection,
    SlotState,
    Work,
)
from schemas.variant_id import variant_id

# A batch still running this long before egress closes its last query is failed with its cause.
HANGING_MARGIN_S = 0.3


class _Ticket:
    """An item that the worker holds, with the record it arrived in."""

    __slots__ = ("alone", "item", "offset", "progress", "received_s", "slot", "work")

    def __init__(
        self, item: Item, work: Work, slot: int, offset: int, progress: Progress, received_s: float
    ) -> None:
        self.item = item
        self.work = work
        self.slot = slot
        self.offset = offset
        self.progress = progress
        self.received_s = received_s
        self.alone = False  # runs in a batch alone: an earlier batch with it failed or crashed

    @property
    def key(self) -> str:
        """A unique name of the item, even on a recreated topic."""
        work, branch = self.work, ".".join(map(str, self.item.branch))
        return f"{work.origin.partition}-{work.origin.offset}@{work.created_s}/{branch}"


MOST_CRASHES = 2  # crashes of a worker's process with one item before the item fails


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
    ) -> None:
        self._name = name
        self._pipeline = pipeline
        self._tasks = {task.name: task for task in pipeline.tasks}
        self._largest = {v.key: v.batch for task in pipeline.tasks for v in task.variants}
        # Median latency; crash counts by item, None without a crash journal.
        self._latency, self._strikes = latency, strikes
        self._pace = LocalSlowdown(planned)
        self._plans = PlanFollower(pipeline.name)
        self._lease: Lease | None = None
        self._wanted = self._topic = ""  # the lease's "task/variant", and its topic
        self._rules = WorkerRules(UNSTEERED, pipeline, None, latency, 0.0)
        self._device = Device()
        self._selections = Selections()
        self._following: TableLookup | None = None  # the tables of the policy in force
        self._gathering = BurstBuffer(0.0)
        self._queue: deque[_Ticket] = deque()
        self._running: list[_Ticket] = []
        self._running_variant = ""
        self._began_s = 0.0  # start of the running batch
        # Why the running batch was released, and why it was failed before it ended.
        self._released = self._hanging = ""
        self._job = self._running_cost = 0  # cost: the size under which its latency is profiled
        self._progress: dict[int, Progress] = {}
        # Due: a wake-up for the next batch is pending.
        self._paused = self._leaving = self._due = False
        self._hold_s = float("inf")  # the next batch waits until then
        self._reporter = Reporter(name, "worker", pipeline.name, incarnation, device)
        self._reporter.slots = self._slot_states

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
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
        if type(record) is Work:
            return self._enqueue(event, record, now)
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
        progress = self._progress.get(event.slot)
        if progress is None or not progress.begin(event.offset, len(work.items)):
            return []  # a lost slot, or a record seen before
        slot, offset = event.slot, event.offset
        tickets = [_Ticket(i, work, slot, offset, progress, now) for i in work.items]
        self._queue.extend(tickets)
        self._reporter.count(f"arrived/{self._wanted}", len(work.items))
        if self._following is not None:
            self._gathering.came(len(work.items), work.follow, now)
        poison = self._poison(tickets, now) if self._strikes else []
        return [*poison, *self._soon(now), *self._backpressure(now)]

    def _poison(self, tickets: list[_Ticket], now: float) -> list[Effect]:
        """Fail items that ran in ``MOST_CRASHES`` crashes of this worker's process.

        Items that ran in fewer crashes run alone, so that no other item is blamed for theirs.
        """
        assert self._strikes is not None
        out: list[_Ticket] = []
        for ticket in tickets:
            strikes = self._strikes.get(ticket.key, 0)
            ticket.alone = strikes > 0
            if strikes >= MOST_CRASHES:
                out.append(ticket)
                self._queue.remove(ticket)
        reason = f"{self._wanted} crashed the process of {self._name} {MOST_CRASHES} times with it"
        return self._end_failed(out, self._wanted, reason, now) if out else []

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        progress = self._progress.get(event.slot) if event.topic == self._topic else None
        if progress is None or not progress.begin(event.offset, 0):
            return []  # not of the work topic, a lost slot, or seen before
        letter = dead_letter(event, garbled, self._name, now)
        return [letter, *self._commit({event.slot: progress})]

    def _soon(self, now: float) -> list[Effect]:
        # Woke follows the records that have already arrived, so that a burst makes one batch.
        if self._due or self._running or not self._device.serving or not self._queue:
            return []
        if not self._gathering.ready(len(self._queue), now):
            return self._wait() if self._hold_s == float("inf") else []
        self._due = True
        return [Wake(now)]

    def _wait(self) -> list[Effect]:
        """Wait for the rest of the queue's only burst."""
        self._hold_s = self._gathering.until_s
        return [Wake(self._hold_s)]

    def _backpressure(self, now: float) -> list[Effect]:
        lease = self._lease
        if lease is None:
            return []
        limit = self._rules.most
        if not self._paused and len(self._queue) > limit:
            effects = self._shed(now)
            if len(self._queue) > limit:
                self._paused = True
                effects.append(Assign(self._topic, paused=lease.slots))
            return effects
        if self._paused and len(self._queue) <= limit // 2:
            self._paused = False
            return [Assign(self._topic, paused=())]
        return []

    def _shed(self, now: float) -> list[Effect]:
        """Drop the head items that no batch can finish in time.

        Left unread instead, they would arrive late a few batches at a time and keep every later
        item late.
        """
        queue, variant = self._queue, self._device.serving or self._wanted
        ends_s = now + self._latency(variant, self._cost(1))
        late: list[_Ticket] = []
        while queue and self._rules.overrun_s(queue[0].work, queue[0].item, ends_s) > 0:
            late.append(queue.popleft())
        return self._drop(late, variant, ends_s, now) if late else []

    # ------------------------------------------------------------------ batches

    def _start(self, now: float) -> list[Effect]:
        """Drop items that would end too late, then run a batch of the rest."""
        lease, queue, variant = self._lease, self._queue, self._device.serving
        if self._running or lease is None or not variant or not queue:
            return []
        if self._following is not None:
            if not (ready := self._gathering.ready(len(queue), now)):
                return self._wait()
            variant, size = self._selected(self._following, lease, ready, now)
        elif self._rules.batching != IDLE and self._holds(lease, now):
            return [Wake(self._hold_s)]
        else:
            size = batch_size(len(queue), lease.batch)
        latency = self._latency(variant, cost := self._cost(size))
        batch: list[_Ticket] = []
        late: list[_Ticket] = []
        overrun_s, ends_s = self._rules.overrun_s, now + latency
        while queue and len(batch) < size and not (batch and (queue[0].alone or batch[0].alone)):
            ticket = queue.popleft()
            missed = overrun_s(ticket.work, ticket.item, ends_s) > 0
            (late if missed else batch).append(ticket)
        effects = self._drop(late, variant, ends_s, now) if late else []
        if batch:
            self._running, self._running_variant, self._began_s = batch, variant, now
            self._released = released(len(batch), lease.batch, self._rules.batching)
            self._job, self._running_cost = self._job + 1, cost
            items = () if self._strikes is None else tuple([t.key for t in batch])
            values = tuple([t.item.value for t in batch])
            effects.append(
                Infer(self._job, variant, values, items=items, size=cost if self._sized else 0)
            )
        return [*effects, *self._backpressure(now)]

    @property
    def _sized(self) -> bool:
        """Whether queries have sizes; a sized query forms its own batch."""
        return self._pipeline.size is not None

    def _cost(self, items: int) -> int:
        """Return the size under which the next batch's latency is profiled."""
        return self._queue[0].work.size if self._sized and self._queue else items

    def _selected(
        self, tables: TableLookup, lease: Lease, ready: int, now: float
    ) -> tuple[str, int]:
        """Return the tables' variant and batch size for ``ready`` items; the serving variant
        replaces one that is not loaded yet."""
        head = self._queue[0]
        stretch = self._pace.stretch if self._rules.paced else 1.0
        slack_s = self._rules.slack_s(head.work, head.item, tables.selection.slo_s, now) / stretch
        qps = self._gathering.qps(now) * stretch
        variant, size = tables.choose(ready, slack_s, qps, self._gathering.run)
        if self._rules.capped and self._latency(variant, size) > slack_s:
            # Late in any case: maximise throughput, in batches of at most the lease's size.
            return self._device.serving, batch_size(ready, lease.batch)
        if variant not in self._device.held:
            variant = self._device.serving
        return variant, min(size, self._largest[variant])

    def _holds(self, lease: Lease, now: float) -> bool:
        """Return whether the next batch may wait for more items; set ``_hold_s``."""
        head, latency = self._queue[0], self._latency(self._device.serving, lease.batch)
        self._hold_s = self._rules.begin_s(
            len(self._queue), lease.batch, (head.work, head.item, head.received_s), latency
        )
        return self._hold_s > now

    def _drop(self, late: list[_Ticket], variant: str, ends_s: float, now: float) -> list[Effect]:
        task = variant_id(variant).task
        self._reporter.count(f"dropped/{variant}", len(late))
        gone: list[Onward] = []
        for ticket in late:
            item = ticket.item
            end = dropped(task, self._rules.why(variant, ticket.work, item, ends_s))
            ended = Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
            gone.append((ticket.work, "", ended))
        done = self._completions(late, DROPPED, now, 0.0)
        return [*done, *self._forward(gone, now), *self._finish(late)]

    def _inferred(self, event: Inferred, now: float) -> list[Effect]:
        if event.job != self._job or not self._running:
            return []
        if self._hanging:
            return self._recovered(now)
        batch, variant = self._running, self._running_variant
        if len(event.outputs) != len(batch):
            found = f"{variant} returned {len(event.outputs)} outputs for {len(batch)} inputs"
            return self._fail(found, now)
        task = self._tasks[variant_id(variant).task]
        onward: list[Onward] = []
        work: Work | None = None
        path: tuple[Hop, ...] = ()
        for ticket, output in zip(batch, event.outputs, strict=True):
            # Items of one record share their path.
            if ticket.work is not work or ticket.item.path != path[:-1]:
                work, path = ticket.work, (*ticket.item.path, self._hop(ticket, event))
            onward += [(work, to, i) for to, i in outcome(task, ticket.item, path, output)]
        took_s = event.finished_s - event.started_s
        self._pace.ran(variant, self._running_cost, took_s)
        self._tally(onward, took_s)
        self._running = []
        done = self._completions(batch, ANSWERED, event.started_s, took_s)
        return [*done, *self._forward(onward, now), *self._finish(batch), *self._next(now)]

    def _completions(
        self, batch: Sequence[_Ticket], outcome: str, started_s: float, took_s: float
    ) -> list[Effect]:
        """Report a batch to the dispatcher; nothing without a dispatched lease."""
        type_ = self._lease.type if self._lease else ""
        return [self._completion(t, type_, outcome, started_s, took_s) for t in batch if type_]

    def _completion(
        self, ticket: _Ticket, type_: str, outcome: str, started_s: float, took_s: float
    ) -> Send:
        work = ticket.work
        done = Completion(
            query_id=work.query_id, origin=work.origin, slot=ticket.slot, worker=self._name,
            type=type_, setting=self._running_variant or self._wanted, size=work.size,
            queued_s=max(started_s - ticket.received_s, 0.0), run_s=took_s, outcome=outcome,
        )  # fmt: skip
        return Send(COMPLETIONS, done, work.origin.partition % self._pipeline.ingress)

    def _hop(self, ticket: _Ticket, event: Inferred) -> Hop:
        task, variant = variant_id(self._running_variant)
        return Hop(
            task=task, variant=variant, worker=self._name, epoch=self._plans.epoch,
            received_s=ticket.received_s, started_s=event.started_s,
            finished_s=event.finished_s, batch=len(self._running), released=self._released,
        )  # fmt: skip

    def _tally(self, onward: list[Onward], busy_s: float) -> None:
        count, variant = self._reporter.count, self._running_variant
        count(f"finished/{variant}", len(self._running))
        count(f"batches/{variant}")
        count(f"busy_s/{variant}", busy_s)
        sent: dict[str, int] = {}
        failures = 0
        for _, task, item in onward:
            if task:
                sent[task] = sent.get(task, 0) + 1
            elif item.end is not None and item.end.outcome != ANSWERED:
                failures += 1
        for task, items in sent.items():
            count(f"children/{variant}/{task}", items)
        if failures:
            count(f"failed/{variant}", failures)

    def _failed(self, event: Failed, now: float) -> list[Effect]:
        if event.job == self._job and self._running:
            return self._fail(event.error, now)
        if isinstance(event.job, str) and self._device.gave_up(event.job):
            if not self._leaving:  # a leaving worker reports that until its process ends
                self._reporter.state, self._reporter.error = NodeState.FAILED, event.error
            return self._device.more()
        return []

    def _fail(self, reason: str, now: float) -> list[Effect]:
        if self._hanging:
            return self._recovered(now)
        effects = [] if self._try_again() else self._fail_running(reason, now)
        self._running = []
        return [*effects, *self._next(now)]

    def _try_again(self) -> bool:
        """Requeue the items of a failed batch, each to run alone; return False for a single item.

        One bad input must not fail the others of its batch.
        """
        batch = self._running
        if len(batch) < 2:
            return False
        for ticket in reversed(batch):
            # Skip items of slots lost meanwhile.
            if self._progress.get(ticket.slot) is ticket.progress:
                ticket.alone = True
                self._queue.appendleft(ticket)
        self._reporter.count(f"retried/{self._running_variant}", len(batch))
        return True

    def _fail_running(self, reason: str, now: float) -> list[Effect]:
        return self._end_failed(self._running, self._running_variant, reason, now)

    def _end_failed(
        self, batch: list[_Ticket], variant: str, reason: str, now: float
    ) -> list[Effect]:
        task = variant_id(variant).task
        self._reporter.count(f"failed/{variant}", len(batch))
        gone = [(t.work, "", failed(task, t.item, t.item.path, reason)) for t in batch]
        done = self._completions(batch, FAILED, self._began_s, now - self._began_s)
        return [*done, *self._forward(gone, now), *self._finish(batch)]

    def _give_up_hanging(self, now: float) -> list[Effect]:
        """Fail a hanging batch just before egress closes its queries without a cause.

        The device stays busy: the worker starts no batch and reports stuck.
        """
        if not self._running or self._hanging:
            return []
        last_s = max([ticket.work.deadline_s for ticket in self._running])
        grace_s = self._pipeline.grace_s
        if now < last_s + grace_s - min(HANGING_MARGIN_S, grace_s / 2):
            return []
        self._hanging = (
            f"{self._running_variant} has been running one batch of {len(self._running)} "
            f"for {now - self._began_s:.1f} s on {self._name}"
        )
        self._show_state()
        return self._fail_running(self._hanging, now)

    def _recovered(self, now: float) -> list[Effect]:
        """Resume after a batch that was failed as hanging has ended."""
        self._hanging, self._running = "", []
        self._show_state()
        return self._next(now)

    def _next(self, now: float) -> list[Effect]:
        effects = self._swap()
        return [*effects, *self._start(now)] if effects else self._start(now)

    def _forward(self, onward: list[Onward], now: float) -> list[Effect]:
        effects, counts = self._rules.onward(onward, now)
        for name, count in counts.items():
            self._reporter.count(f"{name}/{self._running_variant}", count)
        return effects

    def _finish(self, tickets: Iterable[_Ticket]) -> list[Effect]:
        touched: dict[int, Progress] = {}
        for ticket in tickets:
            ticket.progress.finish(ticket.offset)
            touched[ticket.slot] = ticket.progress
        return self._commit(touched)

    def _commit(self, touched: dict[int, Progress]) -> list[Effect]:
        done = [
            Done(slot, progress.done)
            for slot, progress in touched.items()
            if progress.advance() and self._progress.get(slot) is progress
        ]
        return [Assign(self._topic, done=tuple(done))] if done else []

    # ------------------------------------------------------------------ plans

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._plans.accept(plan):
            return []
        lease = next((each for each in plan.leases if each.worker == self._name), None)
        effects = self._change(lease)
        effects += self._follow(now)
        self._rules = WorkerRules(plan, self._pipeline, lease, self._latency, now)
        self._show_state()
        return [*effects, *self._soon(now), *self._backpressure(now)]

    def _selection(self, selection: Selection, now: float) -> list[Effect]:
        """Take a task's tables; they replace its earlier ones."""
        task = self._tasks.get(selection.task)
        if selection.pipeline != self._pipeline.name or task is None:
            return []
        if not self._selections.take(selection, [variant.name for variant in task.variants]):
            return []
        effects = self._follow(now)
        self._show_state()
        return effects

    def _follow(self, now: float) -> list[Effect]:
        """Follow the tables of the policy in force for the task, if any."""
        plan, before = self._plans.plan, self._following
        policy, task = plan.settings.policy if plan else "", variant_id(self._wanted).task
        self._following = following = self._selections.of(policy, task)
        if (following is None) != (before is None):
            self._gathering = BurstBuffer(now)
        if following is not None:
            self._gathering.wait_s = WAIT * following.selection.slo_s
        return self._device.want(self._wanted, following.variants if following else ())

    def _change(self, lease: Lease | None) -> list[Effect]:
        before, topic = self._lease, self._topic
        self._lease = lease
        self._wanted = lease.key if lease else ""
        self._topic = work_topic(lease.task) if lease else ""
        effects: list[Effect] = []
        if before is not None and topic != self._topic:
            self._keep(())
            effects.append(Assign(topic, ()))
        if lease is not None:
            self._keep(lease.slots)
            paused = lease.slots if self._paused else ()
            effects.append(Assign(self._topic, lease.slots, paused))
        return effects

    def _keep(self, slots: tuple[int, ...]) -> None:
        """Forget lost slots and their items; begin new slots."""
        kept = {slot: self._progress.get(slot) or Progress() for slot in slots}
        self._progress = kept
        self._queue = deque(t for t in self._queue if kept.get(t.slot) is t.progress)

    def _on_device(self, event: Loaded, now: float) -> list[Effect]:
        self._device.loaded(event.variant)
        self._reporter.count(f"load_s/{event.variant}", event.seconds)
        effects = self._device.more() if self._running else self._swap() or self._device.more()
        return [*effects, *self._soon(now)]

    def _swap(self) -> list[Effect]:
        """Swap the standby variant in, if any, between two batches."""
        if not self._device.swap():
            return []
        self._show_state()
        return self._device.more()

    def _leave(self, now: float) -> list[Effect]:
        """Report leaving before the process ends; the control app then drains the worker."""
        self._leaving = True
        self._show_state()
        return self._reporter.at_once(now)

    def _show_state(self) -> None:
        lease, state = self._lease, NodeState.READY
        if self._leaving:
            state = NodeState.LEAVING
        elif lease is None:
            state = NodeState.IDLE
        elif lease.open_slot < 0:
            state = NodeState.DRAINING
        elif self._hanging:
            state, self._reporter.error = NodeState.STUCK, self._hanging
        elif self._device.serving != self._wanted:
            state = NodeState.LOADING if self._device.loading else self._reporter.state
        self._reporter.follow(self._plans.epoch, state)
        self._reporter.task = lease.task if lease else ""
        self._reporter.variant = variant_id(self._device.serving).variant

    # ------------------------------------------------------------------ time

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self._plans.started else self._plans.start()
        effects += self._give_up_hanging(now)
        if self._due or now >= self._hold_s:
            self._due, self._hold_s = False, float("inf")
            effects += self._start(now)
        return [*effects, *self._reporter.due(now)]

    def _slot_states(self) -> tuple[SlotState, ...]:
        if self._lease is None:
            return ()
        task = self._lease.task
        return tuple(
            SlotState(task, slot, progress.done, progress.open)
            for slot, progress in sorted(self._progress.items())
        )
