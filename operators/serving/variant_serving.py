"""Serving one variant of a task: the lease's, or the one that the policy's tables choose.

The device holds the variants of the lease and of the tables; edits of the user's code are loaded
anew beside the serving variant. A variant of the lease that fails to load is retried like those of
sessions (session_serving.py), as the cause may be gone.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from math import inf

from control.per_query.batching import IDLE, batch_size, count_within, release_rule, sparing
from control.per_query.dropping import displaces
from control.per_query.local_pace import LocalPace
from operators.serving.deadline_queue import Ticket
from operators.serving.device import Device
from operators.serving.operator_builds import OperatorBuilds
from operators.serving.running_batch import NextBatch
from operators.serving.session_serving import retry_delay_s
from operators.serving.table_batching import TableBatching
from operators.serving.worker_rules import LatencyOf, WorkerRules
from schemas.effects import Effect, Unload, Wake
from schemas.pipeline import Pipeline, QuerySize
from schemas.records import Lease, Plan


class VariantServing:
    """The variants on a worker's device, and their batches.

    ``latency`` is the median; ``tables`` choose the batches if the policy has tables.
    """

    __slots__ = (
        "_after_s", "_builds", "_classes", "_device", "_latency", "_pace", "_retry_s", "_sizes",
        "_tables",
    )  # fmt: skip

    def __init__(
        self, pipeline: Pipeline, latency: LatencyOf, device: Device, tables: TableBatching
    ) -> None:
        self._latency, self._sizes = latency, pipeline.size
        self._classes = bool(pipeline.slo_classes)
        self._pace = LocalPace(latency)
        self._device, self._tables = device, tables
        self._builds = OperatorBuilds()
        self._retry_s = inf  # time of the retry of a failed load
        self._after_s = 0.0  # delay of that retry after the failure

    @property
    def serving(self) -> str:
        """The variant that serves, as "task/variant"; "": none."""
        return self._device.serving

    @property
    def loading(self) -> bool:
        """Whether the variant of the lease is being loaded."""
        return bool(self._device.loading)

    # ------------------------------------------------------------------ batches

    def begin_s(self, queued: int, now: float) -> float:
        """Return when the next batch may begin; infinite until a variant serves."""
        if not self._device.serving:
            return inf
        if self._tables.following is None:
            return now
        arrivals = self._tables.arrivals
        return now if arrivals.ready(queued, now) else arrivals.until_s

    def take(
        self, queue: deque[Ticket], lease: Lease, rules: WorkerRules, now: float
    ) -> NextBatch | Wake | None:
        """Take the next batch from the queue, or return when it may begin; None if nothing can
        run."""
        variant = self._device.serving
        if not variant or not queue:
            return None
        if self._tables.following is not None:
            ready = self._tables.arrivals.ready(len(queue), now)
            if not ready:
                return Wake(self._tables.arrivals.until_s)
            variant, size = self._tables.choose(queue[0], ready, rules, lease.batch, now)
            if self._classes and not queue[0].work.variant:
                # Tables know one SLO: a batch beyond the plan's would delay those that come next.
                size = self._sparing(queue, min(size, lease.batch), variant, rules, now)
        else:
            if rules.batching != IDLE:
                begin_s = self._held_until_s(queue, lease, rules)
                if begin_s > now:
                    return Wake(begin_s)
            size = self._size(queue, lease, rules, now)
        cost = size if self._sizes is None else self.cost(queue, size)
        ends_s = now + self.takes_s(variant, cost)
        batch, late = self._taken(queue, size, rules, ends_s)
        if late and self._sizes is not None:
            cost = self.cost(batch, len(batch))
        rule = release_rule(len(batch), lease.batch, rules.batching)
        return NextBatch(batch, late, variant, cost, ends_s, rule)

    def _held_until_s(self, queue: deque[Ticket], lease: Lease, rules: WorkerRules) -> float:
        """Return the time until which the next batch may wait for more items."""
        head, latency_s = queue[0], self._latency(self._device.serving, lease.batch)
        first = (head.work, head.item, head.received_s)
        return rules.begin_s(len(queue), lease.batch, first, latency_s)

    def _size(self, queue: deque[Ticket], lease: Lease, rules: WorkerRules, now: float) -> int:
        """Return the number of queued items that the next batch takes."""
        if self._sizes is not None:
            return self._fitting(queue, lease, self._sizes)
        size = min(len(queue), lease.batch)
        if not self._classes:
            return size
        return self._sparing(queue, size, self._device.serving, rules, now)

    def _sparing(
        self, queue: deque[Ticket], size: int, variant: str, rules: WorkerRules, now: float
    ) -> int:
        """Return the part of a batch of ``size`` that leaves its most urgent item in time."""
        if size < 2:
            return size
        first = list(islice(queue, 2 * size))
        return sparing(
            size,
            [ticket.slo_s for ticket in first],
            [-rules.overrun_s(ticket.work, ticket.item, now) for ticket in first],
            lambda items: self.takes_s(variant, items),
            likely=self._pace.likely,
        )

    def _fitting(self, queue: deque[Ticket], lease: Lease, sizes: QuerySize) -> int:
        """Return the number of queued items that the next batch takes, by their sizes.

        A query that ingress dispatched to this device is a batch of its own.
        """
        if not sizes.batch or lease.type:
            return batch_size(len(queue), lease.batch)
        return count_within([ticket.work.size for ticket in queue], sizes.batch)

    def cost(self, queue: Iterable[Ticket], items: int) -> int:
        """Return the size under which a batch of the first ``items`` is profiled: their total size,
        or their number without sizes."""
        if self._sizes is None:
            return items
        return sum([ticket.work.size for ticket in islice(queue, items)])

    def takes_s(self, variant: str, cost: int) -> float:
        """Return the seconds by which items are dropped: the profile's, or fewer on a device that
        is faster than its profile.

        A slower device keeps the profile's: if one stall made it drop every item, no batch would
        show that the stall has ended.
        """
        return self._latency(variant, cost) * self._pace.shrink

    def most_takes_s(self, variant: str, cost: int) -> float:
        """Return the seconds that a batch may take, by the longest of the last ones."""
        return self._latency(variant, cost) * self._pace.longest

    def ran(self, variant: str, cost: int, took_s: float, *, paced: bool) -> None:
        """Learn the device's pace from a batch; ``paced``: for the tables, too."""
        self._pace.ran(variant, cost, took_s)
        if paced:
            self._tables.ran(variant, cost, took_s)

    def _taken(
        self, queue: deque[Ticket], size: int, rules: WorkerRules, ends_s: float
    ) -> tuple[list[Ticket], list[Ticket]]:
        """Take up to ``size`` items that may end at ``ends_s``, and the late ones before."""
        batch: list[Ticket] = []
        late: list[Ticket] = []
        overrun_s, filled, crowded = rules.overrun_s, 0, len(queue) > size
        room = self._sizes.batch if self._sizes is not None else 0
        while queue and len(batch) < size:
            ticket = queue[0]
            if batch and (ticket.alone or batch[0].alone):
                break
            if room and batch and filled + ticket.work.size > room:
                break
            queue.popleft()
            crowds = crowded and (
                not self._classes
                or displaces(ticket.slo_s, (each.slo_s for each in queue), size - len(batch))
            )
            if overrun_s(ticket.work, ticket.item, ends_s, crowded=crowds) > 0:
                late.append(ticket)
            else:
                batch.append(ticket)
                if room:
                    filled += ticket.work.size
        return batch, late

    # ------------------------------------------------------------------ variants

    def follow(self, plan: Plan | None, wanted: str, now: float) -> None:
        """Follow the tables of the plan's policy, and its build numbers."""
        self._tables.follow(plan.settings.policy if plan else "", wanted, now)
        if plan is not None:
            self._builds.ask(plan.settings.reloads)

    def want(self, wanted: str, running: str) -> list[Effect]:
        """Load the lease's variant and those of the tables; ``running`` is that of a batch."""
        loads = self._device.want(wanted, self._tables.variants, running)
        return [*self._builds.fresh(loads), *self.renew()]

    def release(self) -> frozenset[str]:
        """Forget every variant, as sessions are served from now on; return the loaded ones."""
        self._retry_s, self._after_s = inf, 0.0
        return self._device.release()

    def loaded(self, variant: str) -> list[Effect]:
        """Record a finished load; unload a variant that is no longer wanted."""
        self._device.loaded(variant)
        if variant == self._device.standby:
            self._retry_s, self._after_s = inf, 0.0
        wanted = variant in self._device.held or variant == self._device.standby
        return [] if wanted else [Unload(variant)]

    def gave_up(self, variant: str, now: float) -> bool:
        """Record a failed load; return whether the variant is still wanted."""
        if variant == self._device.loading:
            self._after_s = retry_delay_s(self._after_s)
            self._retry_s = now + self._after_s
        return self._device.gave_up(variant)

    def retries(self, now: float) -> bool:
        """Return, once, whether the lease's variant is due for a retry."""
        due = now >= self._retry_s
        if due:
            self._retry_s = inf
        return due

    def begins(self, variant: str) -> None:
        """Record that a batch begins."""
        self._device.ran(variant)

    def swap(self) -> bool:
        """Swap the standby variant in, between two batches; return False if there is none."""
        return self._device.swap()

    def more(self) -> list[Effect]:
        """Load the next missing variant of the tables."""
        return self._builds.fresh(self._device.more())

    def renewed(self, variant: str) -> bool:
        """Record the end of a load; return whether ``renew`` began it."""
        return self._builds.ended(variant)

    def renew(self) -> list[Effect]:
        """Load the next variant of an old build anew, unless a load is under way."""
        return [] if self._device.loading else self._builds.renew(self._device.held)
