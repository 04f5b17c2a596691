"""A worker's shadows: items that wait until the worker has room (control/per_query/shadowing.py).

Their records count as finished on arrival: a shadow lost with its worker is not repeated, and it
does not hold up commits of other records.
"""

from collections import deque
from collections.abc import Iterable

from control.per_query.shadowing import RecentSlack, has_room
from operators.offset_tracker import Progress
from operators.serving.deadline_queue import Ticket
from operators.serving.running_batch import NextBatch
from operators.serving.worker_rules import LatencyOf, WorkerRules
from schemas.pipeline import Pipeline
from schemas.records import Work

MOST_WAITING = 64
RELEASED = "idle"  # the device was free


def shadow_queue(pipeline: Pipeline) -> "ShadowQueue | None":
    """Return the queue of a worker; None if the pipeline file samples no shadows."""
    sampled = pipeline.labels is not None and pipeline.labels.shadow_share > 0
    return ShadowQueue() if sampled else None


class ShadowQueue:
    """The shadow items of one worker, first in, first out; beyond 64, the oldest are discarded."""

    __slots__ = ("_items", "_slack")

    def __init__(self) -> None:
        self._items: deque[Ticket] = deque(maxlen=MOST_WAITING)
        self._slack = RecentSlack()

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, work: Work, slot: int, offset: int, now: float) -> None:
        """Queue the items of a record."""
        for item in work.items:
            ticket = Ticket(item, work, slot, offset, _finished(offset), now)
            ticket.shadow = True
            self._items.append(ticket)

    def saw(self, tickets: Iterable[Ticket], ends_s: float, rules: WorkerRules, now: float) -> None:
        """Record by how much items of queries ended before their deadlines."""
        behind_s = rules.behind_s
        self._slack.saw([t.work.deadline_s - behind_s - ends_s for t in tickets], now)

    def take(
        self, variant: str, most_takes_s: LatencyOf, rules: WorkerRules, now: float
    ) -> NextBatch | None:
        """Return the next item for ``variant``, alone, if the idle worker has room for it even at
        the longest latency."""
        items = self._items
        while items and not _serves(items[0], variant, now):
            items.popleft()
        if not items:
            return None
        takes_s = most_takes_s(variant, items[0].work.size)
        if not has_room(self._slack.least_s(now), takes_s, rules.behind_s):
            return None
        ticket = items.popleft()
        return NextBatch([ticket], [], variant, ticket.work.size, now + takes_s, RELEASED)


def _finished(offset: int) -> Progress:
    """Return the progress of a record whose offset is already committed."""
    progress = Progress()
    progress.begin(offset, 1)
    return progress


def _serves(ticket: Ticket, variant: str, now: float) -> bool:
    """Return whether the ticket is not late and names this variant."""
    work = ticket.work
    if now > work.deadline_s or work.session is None:
        return False
    return any(stage.setting == variant for stage in work.session.stages)
