"""The dispatcher of RAMSIS' central queue: batches, each with its variant, to free workers.

Like the dispatcher of queries (``dispatcher.py``), it is a component of ingress. When a worker is
free, or will be within the lead, the policy's tables (control/policies/ramsis/central_queue.py)
give the variant and the batch for the length of the queue and the slack of its first query. The
worker gets the batch as a run of queries and executes it as sent.

Until it has tables, the dispatcher sends batches of the lease's size and variant. Several ingresses
divide the workers among them, and their tables are made for their part.
"""

from bisect import insort
from collections.abc import Callable
from math import inf, nextafter

from msgspec.structs import replace

from control.per_query.local_pace import LocalPace
from control.per_query.table_lookup import OwnLoad, Selections, TableLookup
from control.policies import policy_named, spec_of
from operators.dispatch.device_division import own_workers
from operators.dispatch.dispatch_profile import device_kind
from operators.dispatch.dispatch_queue import (
    AGAIN_S,
    AHEAD,
    ALONE,
    OVERDUE,
    Dropped,
    Part,
    Pick,
    Waiting,
    deadline_s,
    oldest,
)
from operators.dispatch.round_trip import RoundTrip
from schemas.pipeline import Pipeline, Policy
from schemas.records import ANSWERED, Completion, Lease, Origin, Plan, Selection, Work
from schemas.variant_id import variant_id

REFRESH = 32  # observed batches after which the fastest latency is recomputed

BatchSeconds = Callable[[str, int], float]  # kind (type with variant), batch -> seconds


class _Batch:
    """A batch in flight."""

    __slots__ = ("ahead", "deadline_s", "kind", "left", "predicted_s", "sent_s", "size")

    def __init__(
        self, queries: list[Work], kind: str, predicted_s: float, sent_s: float, ahead: bool
    ) -> None:
        self.left: set[Origin] = {work.origin for work in queries}
        self.size = len(queries)
        self.kind = kind
        self.predicted_s = predicted_s
        self.sent_s = sent_s
        self.deadline_s = queries[-1].deadline_s
        self.ahead = ahead


class _LeasedWorker:
    """A worker and its batches in flight, in order of sending."""

    __slots__ = ("batches", "free_s", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.batches: list[_Batch] = []
        self.free_s = 0.0  # predicted time at which all of them are finished

    def overdue(self, now: float) -> bool:
        """Return whether it is so far past its prediction that it may be lost."""
        return now > self.free_s + (OVERDUE - 1) * self.batches[0].predicted_s


class TableDispatcher:
    """Central queue of the root task's queries, active under policies with tables for one.

    Invariant: a worker has at most ``AHEAD`` batches in flight, plus those of a lost worker whose
    slots it has taken over.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        kinds: tuple[str, ...],
        seconds: BatchSeconds,
        part: Part = ALONE,
        round_trip_s: float = 0.0,
    ) -> None:
        """``kinds`` are the profiled pairs of device type and variant (``device_kind``)."""
        self._pipeline, self._root = pipeline, pipeline.root
        self._part = part
        self._policy: Policy | None = None
        self._selections = Selections()
        self._tables: TableLookup | None = None
        self._load = OwnLoad(0.0)
        self._came = 0  # queries since the last decision
        self._waiting: list[Waiting] = []  # by deadline, ties in order of arrival
        self._workers: list[_LeasedWorker] = []
        self._by_slot: dict[int, _LeasedWorker] = {}
        self._kinds = frozenset(kinds)
        self._seconds = seconds  # as profiled
        self._pace: dict[str, LocalPace] = {}  # by worker
        self._observed = 0
        self._fastest_s = 0.0  # of a single query on a worker of the plan
        self._trip = RoundTrip(round_trip_s)
        self._unused_s: float | None = None  # since when queries are given up and no batch has run

    @property
    def active(self) -> bool:
        """Whether the plan in force has a central queue."""
        return self._policy is not None

    @property
    def waiting(self) -> int:
        """The number of queued queries."""
        return len(self._waiting)

    def __bool__(self) -> bool:
        """Return whether the plan has a worker."""
        return bool(self._workers)

    # ------------------------------------------------------------------ plans

    def change(self, plan: Plan, now: float) -> list[Work]:
        """Follow a plan; return the queued queries if it has no central queue."""
        policy = policy_named(self._pipeline, plan.settings.policy)
        if policy is None or not spec_of(policy.kind).central_queue:
            self._policy = None
            left, self._waiting = [each.work for each in self._waiting], []
            return left
        if self._policy is None:
            self._load = OwnLoad(now)
        self._policy = policy
        self._tables = self._selections.of(policy.name, self._root.name)
        self._staff(plan)
        return []

    def take(self, selection: Selection) -> None:
        """Take the tables of a policy for the root task; they replace its earlier ones."""
        if (selection.pipeline, selection.task) != (self._pipeline.name, self._root.name):
            return
        self._selections.take(selection, [variant.name for variant in self._root.variants])
        if self._policy is not None:
            self._tables = self._selections.of(self._policy.name, self._root.name)

    def _staff(self, plan: Plan) -> None:
        """Adopt the plan's workers; batches in flight move with their slots."""
        leases = [x for x in plan.leases if x.task == self._root.name and x.open_slot >= 0]
        before = self._by_slot
        own = own_workers({x.worker: x.type for x in leases}, self._part)
        self._workers = [_LeasedWorker(x) for x in leases if x.worker in own]
        for worker in self._workers:
            for slot in worker.lease.slots:
                if slot in before:
                    earlier = before[slot]
                    worker.batches += [b for b in earlier.batches if b not in worker.batches]
                    worker.free_s = max(worker.free_s, earlier.free_s)
        self._by_slot = {slot: each for each in self._workers for slot in each.lease.slots}
        names = [each.lease.worker for each in self._workers]
        self._pace = {x: self._pace.get(x) or LocalPace(self._profiled_s) for x in names}
        self._refresh()

    def _refresh(self) -> None:
        types = {worker.lease.type for worker in self._workers}
        there = {device_kind(type_, each.name) for type_ in types for each in self._root.variants}
        stretch = min(
            [self._pace[each.lease.worker].stretch for each in self._workers], default=1.0
        )
        singles_s = [self._seconds(kind, 1) for kind in self._kinds & there]
        self._fastest_s = stretch * min(singles_s, default=0.0)

    # ------------------------------------------------------------------ queries

    def add(self, work: Work, place: int = -1) -> None:
        """Queue a query, read from a record at offset ``place``."""
        self._came += 1
        insort(self._waiting, Waiting(work, place), key=deadline_s)

    def oldest(self, partition: int) -> int | None:
        """Return the lowest queued offset of an input partition, or None."""
        return oldest(self._waiting, partition)

    def completed(self, completion: Completion, now: float) -> None:
        """Record that a worker ran or dropped a query; the batch ends with its last query."""
        worker = self._by_slot.get(completion.slot)
        if worker is None:
            return
        origin = completion.origin
        batch = next((each for each in worker.batches if origin in each.left), None)
        if batch is None:
            return
        batch.left.discard(origin)
        if completion.outcome != ANSWERED:
            batch.size -= 1
        if batch.left:
            return
        worker.batches.remove(batch)
        if batch.size > 0:
            self._unused_s = None
        # A last query that was dropped or failed does not tell how long the batch ran.
        if completion.outcome == ANSWERED and batch.kind in self._kinds:
            self._learn(batch, completion, worker, now)
        worker.free_s = self._trip.free_s(now, worker.batches)

    def _learn(
        self, batch: _Batch, completion: Completion, worker: _LeasedWorker, now: float
    ) -> None:
        """Learn the latency of a batch that ran as it was sent, and the round trip."""
        if device_kind(completion.type, variant_id(completion.setting).variant) == batch.kind:
            self._pace[worker.lease.worker].ran(batch.kind, batch.size, completion.run_s)
        if not batch.ahead:
            self._trip.measured(now - batch.sent_s - completion.queued_s - completion.run_s)
        self._observed += 1
        if self._observed % REFRESH == 0:
            self._refresh()

    # ------------------------------------------------------------------ decisions

    def decide(self, now: float) -> tuple[list[Pick], list[Dropped]]:
        """Return the queries to send now with their slots, batch by batch, and the queries that no
        worker can finish in time."""
        assert self._policy is not None
        if self._came:
            self._load.arrived(self._came, now)
            self._came = 0
        if self._unused_s is not None and now - self._unused_s > AGAIN_S:
            self._try_again()
        dropped = self._give_up(now)
        picks: list[Pick] = []
        lead_s = self._trip.lead_s(self._policy)
        while self._waiting:
            left_s = [self._remaining_s(worker, now, lead_s) for worker in self._workers]
            soonest_s = min(left_s, default=inf)
            if soonest_s > lead_s:
                break
            picks += self._send(self._workers[left_s.index(soonest_s)], soonest_s, now)
        # Give up queries whose latest start is now: no wake-up would follow for them.
        return picks, [*dropped, *self._give_up(nextafter(now, inf))]

    def next_s(self, now: float) -> float:
        """Return the time of the next decision if nothing arrives: a worker becomes free within
        the lead, or the first query can no longer meet its deadline."""
        if not self._waiting or self._policy is None:
            return inf
        lead_s = self._trip.lead_s(self._policy)
        free = [w.free_s - lead_s for w in self._workers if len(w.batches) == 1] if lead_s else []
        due = [at_s for at_s in (*free, self._give_up_s(self._waiting[0])) if at_s > now]
        return min(due, default=inf)

    def _remaining_s(self, worker: _LeasedWorker, now: float, lead_s: float) -> float:
        """Return the seconds until a worker can take a batch; infinite for one that holds
        ``AHEAD`` batches or is overdue."""
        if not worker.batches:
            return 0.0
        if len(worker.batches) < AHEAD and lead_s and not worker.overdue(now):
            return max(worker.free_s - now, 0.0)
        if worker.free_s <= now:
            grace_s = self._pipeline.grace_s
            worker.batches = [b for b in worker.batches if now <= b.deadline_s + grace_s]
        return inf if worker.batches else 0.0

    def _send(self, worker: _LeasedWorker, left_s: float, now: float) -> list[Pick]:
        """Send a worker the batch that the tables choose; the worker is free in ``left_s``."""
        variant, size = self._choice(worker, left_s, now)
        sent, self._waiting = self._waiting[:size], self._waiting[size:]
        kind = device_kind(worker.lease.type, variant)
        predicted_s = self._profiled_s(kind, len(sent)) * self._pace[worker.lease.worker].stretch
        ahead = bool(worker.batches)
        worker.free_s = self._trip.ends_s(now, predicted_s, worker.free_s if ahead else 0.0)
        batch = _Batch([each.work for each in sent], kind, predicted_s, now, ahead)
        worker.batches.append(batch)
        for follow, each in enumerate(reversed(sent)):
            each.work = replace(each.work, follow=follow, variant=variant)
        return [(each, worker.lease.open_slot) for each in sent]

    def _choice(self, worker: _LeasedWorker, left_s: float, now: float) -> tuple[str, int]:
        """Return the variant and the size of a worker's next batch.

        The lease's batch, which has the most throughput, replaces a batch that would be late.
        """
        tables, lease, head = self._tables, worker.lease, self._waiting[0].work
        if tables is None:
            return lease.variant, lease.batch
        assert self._policy is not None
        stretch = self._pace[lease.worker].stretch if self._policy.paced else 1.0
        # One hop for the batch to its worker, or until that is free, and one for its answers.
        hop_s = self._trip.slow_s / 2
        slack_s = (head.deadline_s - max(left_s, hop_s) - hop_s - now) / stretch
        qps = self._load.qps(now) * stretch / tables.selection.workers
        key, size = tables.choose(len(self._waiting), slack_s, qps)
        variant = variant_id(key).variant
        late = self._profiled_s(device_kind(lease.type, variant), size) > slack_s
        return (lease.variant, lease.batch) if late and self._policy.capped else (variant, size)

    def _profiled_s(self, kind: str, size: int) -> float:
        """Return the profiled seconds of a batch; 0 for a variant that is not profiled."""
        return self._seconds(kind, size) if kind in self._kinds else 0.0

    def _give_up(self, now: float) -> list[Dropped]:
        late = 0
        while late < len(self._waiting) and self._give_up_s(self._waiting[late]) < now:
            late += 1
        gone, self._waiting = self._waiting[:late], self._waiting[late:]
        if gone and self._unused_s is None:
            self._unused_s = now
        return [(each, now - self._give_up_s(each)) for each in gone]

    def _try_again(self) -> None:
        """Reset the workers and the round trip to what is profiled and planned."""
        self._unused_s = None
        self._pace = {name: LocalPace(self._profiled_s) for name in self._pace}
        self._trip.forget()
        self._refresh()

    def _give_up_s(self, waiting: Waiting) -> float:
        """Return the latest start at which the fastest variant meets a query's deadline."""
        return waiting.work.deadline_s - self._trip.usual_s - self._fastest_s
