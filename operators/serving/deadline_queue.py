"""A worker's queue: items by deadline, ties in order of arrival.

Items of the SLO classes that go ahead (``class_precedence.py``) precede all others.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from operators.offset_tracker import Progress
from schemas.records import Item, Work

MOST_CRASHES = 2  # an item that was in this many crashes of a worker's process fails


class Ticket:
    """An item that the worker holds, with the record it arrived in."""

    __slots__ = (
        "alone", "item", "offset", "progress", "received_s", "shadow", "slot", "work",
    )  # fmt: skip

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
        self.shadow = False  # its result is only compared with an answer

    @property
    def slo_s(self) -> float:
        """The seconds that the item's query has from its creation to its deadline."""
        return self.work.deadline_s - self.work.created_s

    @property
    def key(self) -> str:
        """A unique name of the item, even on a recreated topic."""
        work, branch = self.work, ".".join(map(str, self.item.branch))
        return f"{work.origin.partition}-{work.origin.offset}@{work.created_s}/{branch}"


def enqueue(
    queue: deque[Ticket], tickets: list[Ticket], ahead: Collection[str] = frozenset()
) -> None:
    """Queue the items of one record by deadline, behind queued ones with the same deadline; those
    of the SLO classes ``ahead`` before those of others.

    Items that are to run alone after a failure keep their places.
    """
    later: list[Ticket] = []
    while queue and tickets and _precedes(tickets[0], queue[-1], ahead):
        later.append(queue.pop())
    queue.extend(tickets)
    if later:
        queue.extend(reversed(later))


def _precedes(ticket: Ticket, queued: Ticket, ahead: Collection[str]) -> bool:
    if queued.alone:
        return False
    if ahead:
        first = ticket.work.slo_class in ahead
        if first != (queued.work.slo_class in ahead):
            return first
    return ticket.work.deadline_s < queued.work.deadline_s


def take_late(
    queue: deque[Ticket], late: Callable[[Ticket], bool], ahead: Collection[str] = frozenset()
) -> list[Ticket]:
    """Take the late items from the head of the queue; with classes ``ahead`` from all of it, as
    late items then wait behind others."""
    found: list[Ticket] = []
    while queue and late(queue[0]):
        found.append(queue.popleft())
    if ahead:
        kept: list[Ticket] = []
        for ticket in queue:
            (found if late(ticket) else kept).append(ticket)
        queue.clear()
        queue.extend(kept)
    return found


def crashing(tickets: Sequence[Ticket], crashes: Mapping[str, int]) -> list[Ticket]:
    """Return the items that ran in ``MOST_CRASHES`` crashes of this worker's process.

    Items that ran in fewer crashes run alone, so that no other item is blamed for theirs.
    """
    found: list[Ticket] = []
    for ticket in tickets:
        count = crashes.get(ticket.key, 0)
        ticket.alone = count > 0
        if count >= MOST_CRASHES:
            found.append(ticket)
    return found
