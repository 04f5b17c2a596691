"""What a dispatcher holds: the waiting queries, and its devices with their queries in flight."""

from schemas.records import Lease, Origin, Work

_FOREVER = float("inf")


class Waiting:
    """A queued query, not yet sent."""

    __slots__ = ("give_up_s", "held", "latency_s", "place", "work", "worst_s", "yield_s")

    def __init__(self, work: Work, place: int) -> None:
        self.work = work
        self.place = place  # the offset of its record on the topic that it was read from
        self.held = -1  # the device that a rule chose ahead of time
        self.latency_s: tuple[float, ...] = ()  # by type
        self.worst_s: tuple[float, ...] = ()
        # The latest start at which a device meets the deadline, hops included: as it takes on
        # average, and at its 95th percentile.
        self.give_up_s = self.yield_s = _FOREVER


Pick = tuple[Waiting, int]  # a query and its slot
Dropped = tuple[Waiting, float]  # a query and the seconds by which the best device would be late


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
        """Return the first query in flight of an origin, which has ended; None if there is none."""
        for at, each in enumerate(self.sent):
            if each.origin == origin:
                return self.sent.pop(at)
        return None
