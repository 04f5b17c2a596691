"""Opportunistic rerouting of late items, one by one.

A ``Junction`` is the connection from one sender to one child task: the slot whose turn it is by the
routing table, and the slots with spare capacity, the most accurate first. A token bucket per slot
limits the use of spare capacity, because reports of it arrive seconds late; the senders of the task
share it.

``gap`` is the paper's rule (section 5.2): an item that finished its task x over its budget, and
whose turn is a worker that takes y, may go to a worker that takes at most y - x.

``in-time`` uses the deadline. With l(s) the latency of a worker, h a hop and R the time downstream
of the child, an item is on track at a slot if the time left is at least

    l(s) / compute share + h + R / compute share     as the plan counts, with queues

If the slot whose turn it is is not on track, the item goes to the most accurate slot with spare
capacity that is; else to the fastest one where l(s) + h + R fits; else to its turn if that fits.
Only an item that no slot can serve in time is dropped, because the budgets of a plan are often far
below the time until the deadline.
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
        """Take over the tokens left in ``before``."""
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
    """The connection from one sender to one child task."""

    __slots__ = ("_backups", "_bare", "_fastest", "_full", "_latency", "spread")

    def __init__(self, routes: Sequence[Route], behind: "Behind", share: int, now: float) -> None:
        """``routes`` are those of one task and source, by falling accuracy; ``share`` is the number
        of senders that share the spare capacity."""
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
        """Take over the turns and spare capacity of ``before``, of an earlier plan."""
        self.spread.follow(before.spread)
        spare = {backup.slot: backup.spare for backup in before._backups}
        for backup in self._backups:
            if backup.slot in spare:
                backup.spare.follow(spare[backup.slot], now)

    def gap(self, late_s: float, left_s: float, now: float) -> tuple[int, int]:
        """Return the slot whose turn it is, and the slot to use (``NOWHERE``: none is fast)."""
        turn = self.spread.pick()
        if late_s <= 0:
            return turn, turn
        most_s = self._latency[turn] - late_s
        for backup in self._backups:
            if backup.latency_s <= most_s and backup.spare.admit(now):
                return turn, backup.slot
        return turn, NOWHERE

    def in_time(self, late_s: float, left_s: float, now: float) -> tuple[int, int]:
        """Return the same pair as ``gap``, using the time until the deadline."""
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
    """The least compute seconds and hops downstream of a child task."""

    hop_s: float
    compute_share: float
    rest_s: float
    rest_hops_s: float
    burst_s: float

    def full_s(self, latency_s: float) -> float:
        """Return the seconds from a sender's end to the answer with queues, as plans count them."""
        return (latency_s + self.rest_s) / self.compute_share + self.hop_s + self.rest_hops_s

    def bare_s(self, latency_s: float) -> float:
        """Return the seconds from a sender's end to the answer without queues."""
        return latency_s + self.rest_s + self.hop_s + self.rest_hops_s


def junctions(
    routes: Iterable[Route], sender: str, pipeline: Pipeline, slo_s: float, senders: int, now: float
) -> dict[str, Junction]:
    """Return the junctions of a variant ("task/variant") by child task, for one of ``senders``."""
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

    The shortest branch counts, because a late branch ends without affecting the others.
    """
    ways = []
    for child in pipeline.task(task).children:
        own = min((r.latency_s for r in routes if r.task == child), default=0.0)
        rest_s, hops = least_behind(routes, pipeline, child)
        ways.append((own + rest_s, hops + 1))
    return min(ways, default=(0.0, 1))
