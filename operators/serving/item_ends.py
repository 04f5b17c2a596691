"""The ends of a worker's items: answered, dropped or failed.

Each way an item ends has three parts: what is sent onward, to the children's workers or to egress;
what is counted; and the offsets of finished records, to be committed.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from control.per_query.class_precedence import ClassPrecedence
from operators.drop_reasons import after_crash, dropped
from operators.reporter import Reporter
from operators.serving.deadline_queue import Ticket
from operators.serving.fanout import failed_item, outcome, sizes_of
from operators.serving.leased_slots import LeasedSlots
from operators.serving.outbox import Onward
from operators.serving.running_batch import RunningBatch
from operators.serving.shadow_queue import ShadowQueue
from operators.serving.worker_rules import WorkerRules
from schemas.effects import Effect, Inferred
from schemas.pipeline import Pipeline, Task
from schemas.records import ANSWERED, DROPPED, FAILED, Hop, Item, Work
from schemas.variant_id import variant_id


class ItemEnds:
    """The ends of one worker's items. ``rules`` are those of the plan in force."""

    __slots__ = (
        "_batch", "_reporter", "_shadows", "_sizes", "_slots", "_strikes", "_tasks", "precedence",
        "rules",
    )  # fmt: skip

    def __init__(
        self,
        pipeline: Pipeline,
        slots: LeasedSlots,
        batch: RunningBatch,
        reporter: Reporter,
        rules: WorkerRules,
        *,
        shadows: ShadowQueue | None,
        strikes: Mapping[str, int] | None,
    ) -> None:
        self.rules = rules
        self._sizes = pipeline.size
        self._tasks = {task.name: task for task in pipeline.tasks}
        self._slots, self._batch, self._reporter = slots, batch, reporter
        self._shadows = shadows
        self._strikes = strikes  # crash counts by item; None without a crash journal
        self.precedence = ClassPrecedence(pipeline)

    def answered(self, event: Inferred, now: float) -> list[Effect]:
        """End the items of the batch that ran, each by its output."""
        batch = self._batch
        tickets = batch.tickets
        task, epoch = self._tasks[variant_id(batch.variant).task], self.rules.epoch
        onward: list[Onward] = []
        work: Work | None = None
        path: tuple[Hop, ...] = ()
        for ticket, output in zip(tickets, event.outputs, strict=True):
            # Items of one record share their path.
            if ticket.work is not work or ticket.item.path != path[:-1]:
                work, path = ticket.work, (*ticket.item.path, batch.hop(ticket, event, epoch))
            made = outcome(task, ticket.item, path, output)
            if self._sizes is not None:
                onward += sized_onward(work, task, made, output, self._sizes.most)
                continue
            for to, item in made:
                onward.append((work, to, item))
        took_s = event.finished_s - event.started_s
        self._count_ran(onward, event, now)
        if self.precedence.floors and not tickets[0].shadow:
            self._count_class(tickets, event.finished_s)
        return self._end(tickets, onward, ANSWERED, event.started_s, took_s, now)

    def _count_ran(self, onward: list[Onward], event: Inferred, now: float) -> None:
        batch = self._batch
        if batch.tickets[0].shadow:  # shadows are not part of the planned load
            return
        self._reporter.ran(batch.variant, len(batch.tickets), event, onward)
        if self._shadows is not None:
            self._shadows.saw(batch.tickets, event.finished_s, self.rules, now)

    def _count_class(self, tickets: list[Ticket], finished_s: float) -> None:
        """Count items by their SLO class: in time, or missed (infinite: dropped)."""
        for ticket in tickets:
            work = ticket.work
            allowed_s, in_time = work.deadline_s - work.created_s, finished_s <= work.deadline_s
            self.precedence.ended(work.slo_class, allowed_s, in_time=in_time)

    def dropped(self, late: list[Ticket], variant: str, ends_s: float, now: float) -> list[Effect]:
        """Drop items whose batch of ``variant`` would end too late, at ``ends_s``."""
        task = variant_id(variant).task
        self._reporter.count(f"dropped/{variant}", len(late))
        if self._shadows is not None:
            self._shadows.saw(late, ends_s, self.rules, now)
        gone: list[Onward] = []
        for ticket in late:
            item = ticket.item
            why = self.rules.why(variant, ticket.work, item, ends_s)
            if self._strikes and ticket.key in self._strikes:
                why = after_crash(why, self._reporter.name)
            end = dropped(task, why)
            ended = Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
            gone.append((ticket.work, "", ended))
        if self.precedence.floors:
            self._count_class(late, inf)
        return self._end(late, gone, DROPPED, now, 0.0, now)

    def failed_batch(self, reason: str, now: float) -> list[Effect]:
        """Fail the items of the batch on the device."""
        return self.failed(self._batch.tickets, self._batch.variant, reason, now)

    def failed(self, tickets: list[Ticket], variant: str, reason: str, now: float) -> list[Effect]:
        """Fail items of ``variant`` for ``reason``."""
        task, began_s = variant_id(variant).task, self._batch.began_s
        if not tickets[0].shadow:
            self._reporter.count(f"failed/{variant}", len(tickets))
        gone = [(t.work, "", failed_item(task, t.item, t.item.path, reason)) for t in tickets]
        return self._end(tickets, gone, FAILED, began_s, now - began_s, now)

    def _end(
        self,
        tickets: list[Ticket],
        onward: list[Onward],
        outcome: str,
        started_s: float,
        took_s: float,
        now: float,
    ) -> list[Effect]:
        """Send ``onward``, the results of items, and commit the items."""
        lease = self._slots.lease
        effects = self.rules.onward(onward, now)
        if lease is not None and lease.type:  # a dispatcher sends to this worker
            done = self._batch.completions(lease, tickets, outcome, started_s, took_s)
            # After the queries' own records: the broker takes a connection's records in order.
            effects = [*effects, *done]
        effects += self._slots.finish(tickets)
        return effects


def sized_onward(
    work: Work, task: Task, made: Sequence[tuple[str, Item]], output: Any, most: int
) -> list[Onward]:
    """Return ``made``, the items of one output, each with work of its size: the operator's, else
    that of the item it was made from.

    An item above the pipeline's largest size ``most`` fails, as no profile covers it.
    """
    sizes = sizes_of(task, output) if made[0][0] else []
    if not any(sizes):
        return [(work, to, item) for to, item in made]
    return [
        _sized(work, task, to, item, size, most)
        for (to, item), size in zip(made, sizes, strict=True)
    ]


def _sized(work: Work, task: Task, to: str, item: Item, size: int, most: int) -> Onward:
    if size <= most:
        return replace(work, size=size) if size else work, to, item
    reason = (
        f"the operator of task {task.name!r} gave an item of size {size} for {to!r}, above "
        f"size.most of {most}; split the item or raise size.most"
    )
    return work, "", failed_item(task.name, item, item.path, reason)
