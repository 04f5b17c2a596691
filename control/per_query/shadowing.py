"""Shadow sampling: which queries run a second time, along which path, and when a worker has room.

A shadow is a copy of a query's work that takes the most accurate path of the plan, named slot by
slot like a session's query plan. It produces no answer; the scorer compares its result with that of
the query. A worker runs a shadow's items one at a time, and only if it is idle and every item of
the last seconds had enough slack to wait for one of them. In a work-conserving queue, a job that is
inserted at an idle moment delays every later job by at most its own duration.
"""

from collections.abc import Mapping, Sequence
from math import inf

from schemas.pipeline import Pipeline
from schemas.records import Lease, Origin, Plan, SessionPlan, SessionStage, Work
from schemas.variant_id import variant_id

SHADOW = "(shadow)"  # in place of a session's id, which has no brackets
VALID_S = 10.0  # a shadow that has not run within this time is dropped
SLACK_WINDOW_S = 5.0  # the least slack is kept for once to twice as long
_HASHED = 1 << 32
_FACTORS = (2_654_435_761, 40_503)  # multiplicative hashing: Knuth, TAOCP 3, section 6.4

Ways = tuple[tuple[str, tuple[Lease, ...]], ...]  # "task/variant" and its workers, by task


def is_shadow(work: Work) -> bool:
    """Return whether the work belongs to a shadow."""
    return work.session is not None and work.session.session == SHADOW


def is_sampled(origin: Origin, share: float) -> bool:
    """Return whether a query is in the ``share`` (0 to 1) that has shadows.

    The result depends only on the query's topic position, so that ingress and scorer agree, also
    when a query is read again after a restart. The hash avoids correlation with periodic arrivals.
    """
    offset, partition = _FACTORS
    hashed = (origin.offset * offset + (origin.partition + 1) * offset * partition) % _HASHED
    return (hashed ^ hashed >> 15) * offset % _HASHED < share * _HASHED


def most_accurate_ways(
    plan: Plan, pipeline: Pipeline, accuracies: Mapping[str, float]
) -> Ways | None:
    """Return by task the most accurate variant that takes work, with its workers.

    ``accuracies`` are by "task/variant". Return None if there is nothing to compare or no path can
    be named: each task is served by one variant, an accuracy is unknown, a task has no worker, or
    ingress dispatches to devices.
    """
    ways: list[tuple[str, tuple[Lease, ...]]] = []
    several = False
    for task in pipeline.task_names:
        leases = [x for x in plan.leases if x.task == task and x.open_slot >= 0]
        keys = {lease.key for lease in leases}
        if not keys or any(lease.type for lease in leases) or not keys <= accuracies.keys():
            return None
        several = several or len(keys) > 1
        best = max(sorted(keys), key=lambda key: accuracies[key])
        ways.append((best, tuple(lease for lease in leases if lease.key == best)))
    return tuple(ways) if several else None


def shadow_of(work: Work, ways: Ways, turn: int, now: float) -> Work:
    """Return a query's shadow, on the ``turn``-th worker of each variant (modulo their number)."""
    stages = [_stage(key, leases[turn % len(leases)]) for key, leases in ways]
    plan = SessionPlan(session=SHADOW, number=0, slo_s=VALID_S, stages=tuple(stages))
    return Work(
        query_id=work.query_id, origin=work.origin, task=work.task, created_s=work.created_s,
        deadline_s=now + VALID_S, epoch=work.epoch, items=work.items, size=work.size,
        slo_class=work.slo_class, session=plan,
    )  # fmt: skip


def _stage(key: str, lease: Lease) -> SessionStage:
    return SessionStage(
        task=variant_id(key).task, setting=key, tier="", device=lease.worker, slot=lease.open_slot,
        quarters=0,
    )  # fmt: skip


class RecentSlack:
    """The least slack of a worker's items in the last ``SLACK_WINDOW_S`` to twice that.

    An item's slack is the time from the end of its batch to the latest end that keeps the query's
    deadline, in seconds; negative for one that was dropped as too late.
    """

    __slots__ = ("_before_s", "_began_s", "_least_s")

    def __init__(self) -> None:
        self._began_s = -inf
        self._least_s = self._before_s = inf

    def saw(self, slack_s: Sequence[float], now: float) -> None:
        """Record the slack of items that ended."""
        self._turn(now)
        self._least_s = min((self._least_s, *slack_s))

    def least_s(self, now: float) -> float:
        """Return the least slack; infinite if no item ended."""
        self._turn(now)
        return min(self._before_s, self._least_s)

    def _turn(self, now: float) -> None:
        if now < self._began_s + SLACK_WINDOW_S:
            return
        recent = now < self._began_s + 2 * SLACK_WINDOW_S
        self._before_s = self._least_s if recent else inf
        self._began_s, self._least_s = now, inf


def has_room(least_slack_s: float, takes_s: float, behind_s: float) -> bool:
    """Return whether an idle worker may run a shadow's item that takes at most ``takes_s``.

    ``behind_s`` is the least time of the downstream tasks. The slack must cover it as well, because
    shadows may delay an item there too.
    """
    return least_slack_s >= takes_s + behind_s
