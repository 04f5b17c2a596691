"""The state of a dispatcher: waiting queries, and devices with their queries in flight."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from schemas.records import Completion, Lease, Origin, Plan, Selection, Work

AHEAD = 2  # most batches at a worker: the running one and one ahead
MOST_SENT = 16  # most queries at a device, where each takes a small part of the lead
OVERDUE = 3.0  # multiple of the prediction after which a device gets no more work
# A device type that gets no queries because it was slow cannot show that it has recovered: the
# dispatcher tries it again after this time.
AGAIN_S = 10.0
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Part:
    """A dispatcher's share of the devices: number ``index`` of ``of`` dispatchers."""

    index: int = 0
    of: int = 1


ALONE = Part()


class Waiting:
    """A queued query, not yet sent."""

    __slots__ = ("give_up_s", "held", "latency_s", "place", "work", "worst_s", "yield_s")

    def __init__(self, work: Work, place: int) -> None:
        self.work = work
        self.place = place  # the offset of its record on the topic that it was read from
        self.held = -1  # the device that a rule chose ahead of time
        self.latency_s: tuple[float, ...] = ()  # by type
        self.worst_s: tuple[float, ...] = ()
        # The latest start at which a device meets the deadline, hops included: with its mean and
        # with its 95th percentile latency.
        self.give_up_s = self.yield_s = _FOREVER


Pick = tuple[Waiting, int]  # a query and its slot
Dropped = tuple[Waiting, float]  # a query and the seconds by which the best device would be late


def deadline_s(waiting: Waiting) -> float:
    """Return the deadline: waiting queries are sorted by it."""
    return waiting.work.deadline_s


def oldest(queue: Iterable[Waiting], partition: int) -> int | None:
    """Return the lowest offset of an input partition among waiting queries, or None."""
    origins = [each.work.origin for each in queue]
    return min([o.offset for o in origins if o.partition == partition], default=None)


class CentralQueue(Protocol):
    """The interface of the root task's dispatcher for ingress."""

    @property
    def active(self) -> bool:
        """Whether the plan in force dispatches queries this way."""

    @property
    def waiting(self) -> int:
        """The number of queued queries."""

    def __bool__(self) -> bool:
        """Return whether the plan has a device."""

    def change(self, plan: Plan, now: float) -> list[Work]:
        """Follow a plan; return the queued queries if the plan no longer dispatches this way."""

    def take(self, selection: Selection) -> None:
        """Take the tables of a policy."""

    def add(self, work: Work, place: int = -1) -> None:
        """Queue a query, read from a record at offset ``place``."""

    def oldest(self, partition: int) -> int | None:
        """Return the lowest queued offset of an input partition, or None."""

    def completed(self, completion: Completion, now: float) -> None:
        """Record that a device finished or dropped a query."""

    def decide(self, now: float) -> tuple[list[Pick], list[Dropped]]:
        """Return the queries to send now with their slots, and those that are given up."""

    def next_s(self, now: float) -> float:
        """Return the time of the next decision if nothing arrives."""


class DispatchedQuery:
    """A query in flight at a device."""

    __slots__ = ("ahead", "deadline_s", "origin", "predicted_s", "sent_s")

    def __init__(
        self, origin: Origin, predicted_s: float, sent_s: float, deadline_s: float, ahead: bool
    ) -> None:
        self.origin = origin
        self.predicted_s = predicted_s
        self.sent_s = sent_s
        self.deadline_s = deadline_s
        self.ahead = ahead


class DispatchedDevice:
    """A worker and its queries in flight."""

    __slots__ = ("free_s", "kind", "sent", "slot", "slots", "worker")

    def __init__(self, lease: Lease, kind: int) -> None:
        self.worker = lease.worker
        self.slot = lease.open_slot
        self.slots = lease.slots
        self.kind = kind  # index of its type among the profile's types
        self.sent: list[DispatchedQuery] = []  # in order of sending
        self.free_s = 0.0  # predicted time at which all of them are finished

    def ended(self, origin: Origin) -> DispatchedQuery | None:
        """Remove and return the first query in flight with this origin; None if there is none."""
        for at, each in enumerate(self.sent):
            if each.origin == origin:
                return self.sent.pop(at)
        return None
