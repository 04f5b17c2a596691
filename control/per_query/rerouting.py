"""Opportunistic rerouting of late items, one by one.

A ``Junction`` is the way on from one sender to one child task: the slot whose turn it is by the
routing table, and the slots with spare capacity, the most accurate first. Spare capacity is drawn
from a token bucket per slot, since reports of it come seconds later; the senders of the task share
it.

``gap`` is the paper's (section 5.2): an item that ended its task x over its budget, and whose turn
is a worker that takes y, may go to one that takes at most y - x.

``in-time`` decides by the deadline. With l(s) the latency of a worker, h a hop and R the time
behind the child, an item is on track by its turn where the time left is no less than

    l(s) / compute share + h + R / compute share     as the plan counts, with queues

Else it goes to the most accurate slot with spare capacity that is on track, else to the fastest one
where l(s) + h + R fits, or by its turn where that fits. Only an item that no slot can serve in time
is dropped: the budgets of a plan are often far below the time that the deadline leaves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from control.per_query.dropping import GAP, IN_TIME
from control.per_query.routing import WeightedRoundRobin
from schemas.pipeline import Pipeline
from schemas.records import Route
from schemas.variant_id import variant_id

NOWHERE = -1


class TokenBucket:
    """``rate`` items/s in the long run, in bursts of up to ``burst``; it starts full."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._at = now

    def admit(self, now: float) -> bool:
        """Take a token; return whether there was one."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def follow(self, before: "TokenBucket", now: float) -> None:
        """Begin with the tokens that ``before`` has left."""
        self._tokens = min(self._burst, before.left(now))

    def left(self, now: float) -> float:
        """Return the tokens."""
        return min(self._burst, self._tokens + (now - self._at) * self._rate)


@dataclass(frozen=True, slots=True)
class _Backup:
    """A slot with spare capacity. ``full_s``, ``bare_s``: seconds until the answer (``Behind``)."""

    slot: int
    latency_s: float
    full_s: float
    bare_s: float
    spare: TokenBucket


class Junction:
    """The way on from one sender to one child task."""

    __slots__ = ("_backups", "_bare", "_fastest", "_full", "_latency", "spread")

    def __init__(self, routes: Sequence[Route], behind: "Behind", share: int, now: float) -> None:
        """``routes`` are those of one task and source, by falling accuracy; ``share`` is the number
        of senders among which spare capacity is divided."""
        self.spread = WeightedRoundRobin((route.slot, route.share) for route in routes)
        self._latency = {r.slot: r.latency_s for r in routes}
        self._full = {r.slot: behind.full_s(r.latency_s) for r in routes}
        self._bare = {r.slot: behind.bare_s(r.latency_s) for r in routes}
        self._backups = [
            _Backup(
                r.slot, r.latency_s, self._full[r.slot], self._bare[r.slot],
                TokenBucket(r.spare_qps / share, r.spare_qps / share * behind.burst_s, now),
            )
            for r in routes
            if r.spare_qps > 0
        ]  # fmt: skip
        self._fastest = sorted(self._backups, key=lambda each: each.latency_s)

    def follow(self, before: "Junction", now: float) -> None:
        """Continue where ``before``, of an earlier plan, has stopped: turns and spare capacity."""
        self.spread.follow(before.spread)
        spare = {backup.slot: backup.spare for backup in before._backups}
        for backup in self._backups:
            if backup.slot in spare:
                backup.spare.follow(spare[backup.slot], now)

    def gap(self, late_s: float, left_s: float, now: float) -> tuple[int, int]:
        """Return the slot whose turn it is, and the slot to take (``NOWHERE``: none is fast)."""
        turn = self.spread.pick()
        if late_s <= 0:
            return turn, turn
        most_s = self._latency[turn] - late_s
        for backup in self._backups:
            if backup.latency_s <= most_s and backup.spare.admit(now):
                return turn, backup.slot
        return turn, NOWHERE

    def in_time(self, late_s: float, left_s: float, now: float) -> tuple[int, int]:
        """Return the same pair as ``gap``, by the time left until the deadline."""
        turn = self.spread.pick()
        if self._full[turn] <= left_s:
            return turn, turn
        for backup in self._backups:
            if backup.full_s <= left_s and backup.spare.admit(now):
                return turn, backup.slot
        for backup in self._fastest:
            if backup.bare_s > left_s or self._bare[turn] <= backup.bare_s:
                break
            if backup.spare.admit(now):
                return turn, backup.slot
        return turn, turn if self._bare[turn] <= left_s else NOWHERE


# A late item's rule: (seconds over its budget, seconds until its deadline, now) -> (turn, slot)
Way = Callable[[Junction, float, float, float], tuple[int, int]]
WAYS: Mapping[str, Way] = {GAP: Junction.gap, IN_TIME: Junction.in_time}


@dataclass(frozen=True, slots=True)
class Behind:
    """The least compute seconds and hops of the tasks behind a child task."""

    hop_s: float
    compute_share: float
    rest_s: float
    rest_hops_s: float
    burst_s: float

    def full_s(self, latency_s: float) -> float:
        """Return the seconds from a sender's end to the answer as plans count them: with queues."""
        return (latency_s + self.rest_s) / self.compute_share + self.hop_s + self.rest_hops_s

    def bare_s(self, latency_s: float) -> float:
        """Return the seconds from a sender's end to the answer without queues."""
        return latency_s + self.rest_s + self.hop_s + self.rest_hops_s


def junctions(
    routes: Iterable[Route], sender: str, pipeline: Pipeline, slo_s: float, senders: int, now: float
) -> dict[str, Junction]:
    """Return a variant's ("task/variant") ways on by child task, for one of ``senders`` workers."""
    listed = tuple(routes)
    found: dict[str, Junction] = {}
    for child in pipeline.task(variant_id(sender).task).children:
        own = [r for r in listed if r.task == child and r.source == sender]
        own = own or [r for r in listed if r.task == child and not r.source]
        rest_s, hops = least_behind(listed, pipeline, child)
        behind = Behind(
            pipeline.comm_s, pipeline.compute_share, rest_s, hops * pipeline.comm_s, slo_s
        )
        found[child] = Junction(own, behind, max(1, senders), now)
    return found


def least_behind(routes: Sequence[Route], pipeline: Pipeline, task: str) -> tuple[float, int]:
    """Return the least compute seconds from a task's end to an answer, and the hops to egress.

    The shortest branch counts: a branch that is too late ends alone.
    """
    ways = []
    for child in pipeline.task(task).children:
        own = min((r.latency_s for r in routes if r.task == child), default=0.0)
        rest_s, hops = least_behind(routes, pipeline, child)
        ways.append((own + rest_s, hops + 1))
    return min(ways, default=(0.0, 1))
