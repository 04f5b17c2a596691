"""Paces of operators that serve sessions, from workers' reports.

    pace = seconds taken / seconds profiled

by variant and tier, over about the last ``MEMORY`` batches. A tier of sessions' own devices has
paces of each session. A pace counts from ``FEWEST`` batches on, until ``KEPT_S`` after the last
one; paces within ``NOISE`` of 1 are 1. A report's pace is limited to ``MOST`` either way, so that
one stall cannot look like a slow device.

A profile has the seconds of a stage for one query, workers report those of items. The items of a
query at a stage are the children per item of the stages before it, by their workers' counts.

Shares are not enforced. A stage takes longer than on the whole device only as far as other tasks
have plans on that device, and then up to the time that its share allows: only longer times are
slower than profiled, and only times below those of the whole device are faster. Items of one task
run one after another, and waiting does not count.

A variant without a pace gets that of the tier: the pace closest to 1, if all known ones deviate in
the same direction. One slow variant of several is thus not taken for a slow device. Not from a
paper.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from control.estimation.report_deltas import ReportDeltas
from control.estimation.slowdown import FEWEST, NOISE, NONE_RAN, SHORT_S, Ran
from control.policies.compass.search.trimming import BATCHING, stretch
from control.problem.paces import OTHERS, Paces, pace_of
from control.problem.seats import seat_worker
from control.problem.session_space import SessionSpace
from control.problem.space import leaves
from control.problem.tiers import QUARTERS
from schemas.records import Report, Session, SessionChoice, SessionPlan, SessionStage

MEMORY = 40.0  # batches: a session of 5 queries/s shows another pace in 4 s, most of it in 15 s
KEPT_S = 60.0
MOST = 4.0


class StageBefore(NamedTuple):
    """A worker and its setting, whose items become items of ``task``."""

    worker: str
    setting: str
    task: str


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """The seconds that a worker's setting was planned to take for one query: ``whole_s`` on the
    whole device, ``most_s`` on the share that other tasks leave. ``owner``: the session of an own
    device, else "". ``before``: the stages before it; each has the workers of all sessions of this
    setting."""

    owner: str
    variant: str
    tier: str
    batched: bool
    whole_s: float
    most_s: float
    before: tuple[tuple[StageBefore, ...], ...] = ()

    def ran(self, batches: float, queries: float, took_s: float) -> Ran:
        """Return the batches of a number of queries with their planned seconds."""
        each_s, size = took_s / batches, queries / batches
        grown = 1 + BATCHING * (size - 1) if self.batched else size
        whole_s = self.whole_s * grown
        planned_s = min(max(each_s, whole_s), self.most_s * grown)
        each_s = min(max(each_s, planned_s / MOST), planned_s * MOST)
        weight = batches * min(1.0, whole_s / SHORT_S)  # as in slowdown.py
        return Ran(weight, batches * planned_s, batches * each_s)


class ObservedPaces:
    """The batches of each stage that ran, with decaying weights, and the paces from them."""

    def __init__(self) -> None:
        # By owner, then by variant and tier: the batches and the time of the last ones.
        self._ran: dict[str, dict[tuple[str, str], tuple[Ran, float]]] = {}
        self._shared: tuple[float, Paces] | None = None  # those of no owner, and when

    def add(self, stage: StageSeconds, new: Ran, now: float) -> None:
        """Add batches of a stage."""
        rows, key = self._ran.setdefault(stage.owner, {}), (stage.variant, stage.tier)
        ran, at_s = rows.get(key, (NONE_RAN, now))
        before = ran if now - at_s <= KEPT_S else NONE_RAN
        rows[key] = before.followed_by(new, MEMORY), now
        self._shared = None

    def forget(self, now: float) -> None:
        """Discard the batches of owners whose paces no longer count."""
        self._ran = {
            owner: rows
            for owner, rows in self._ran.items()
            if any(now - at_s <= KEPT_S for _, at_s in rows.values())
        }

    def of(self, session: str, now: float) -> Paces:
        """Return the paces that apply to a session. Those of sessions without own devices are
        determined once at a time: thousands of sessions ask at each tick."""
        if session in self._ran:
            return paces_of(self._stretches("", now) | self._stretches(session, now))
        if self._shared is None or self._shared[0] != now:
            self._shared = now, paces_of(self._stretches("", now))
        return self._shared[1]

    def _stretches(self, owner: str, now: float) -> dict[tuple[str, str], float]:
        return {
            key: ran.stretch
            for key, (ran, at_s) in self._ran.get(owner, {}).items()
            if ran.batches >= FEWEST and now - at_s <= KEPT_S
        }


class OperatorPaces:
    """The paces of a pipeline's operators, as far as serving sessions show them."""

    def __init__(self, space: SessionSpace) -> None:
        self._space = space
        self._deltas = ReportDeltas("worker")
        self._serving: tuple[Mapping[str, SessionPlan], Sequence[SessionPlan]] = {}, ()
        self._planned: dict[str, dict[str, StageSeconds]] = {}  # by worker and setting
        self._observed = ObservedPaces()

    def serves(
        self,
        plans: Mapping[str, SessionPlan],
        running: Sequence[SessionPlan],
        record: Callable[[str], Session],
        now: float,
    ) -> None:
        """Set the plans of the serving sessions, and all those by which queries run; ``record``
        returns the record of a session."""
        if (plans, running) == self._serving:
            return
        self._serving = plans, running
        choices = ((plan, chosen(record(name))) for name, plan in plans.items())
        known = [(plan, choice) for plan, choice in choices if choice is not None]
        self._planned = _by_worker(known, _quarters(running), self._space)
        self._observed.forget(now)

    def take(self, report: Report, now: float) -> None:
        """Record the batches of a worker since its previous report."""
        planned = self._planned.get(report.node)
        news = self._deltas.take(report)
        if planned is None or news is None or news.seconds is None:
            return
        for setting, stage in planned.items():
            batches = news.since(f"batches/{setting}")
            # The first batch of a setting includes loading.
            items_each = self._items_each(stage)
            if not report.counts.get(f"batches/{setting}", 0.0) > batches > 0 or not items_each:
                continue
            items, took_s = (news.since(f"{what}/{setting}") for what in ("finished", "busy_s"))
            self._observed.add(stage, stage.ran(batches, items / items_each, took_s), now)

    def _items_each(self, stage: StageSeconds) -> float:
        """Return the items of a query at a stage; 0: not known."""
        items = 1.0
        for stages in stage.before:
            finished = children = 0.0
            for worker, setting, task in stages:
                counts = self._deltas.counts(worker)
                finished += counts.get(f"finished/{setting}", 0.0)
                children += counts.get(f"children/{setting}/{task}", 0.0)
            items *= children / finished if finished else 0.0
        return items

    def forget_node(self, node: str) -> None:
        """Discard the counts of a node that is gone."""
        self._deltas.forget(node)

    def of(self, session: str, now: float) -> Paces:
        """Return the paces that apply to a session."""
        return self._observed.of(session, now)

    def extra_s(self, session: Session, now: float) -> float:
        """Return the seconds that a session's plan takes beyond its planned latency at the present
        paces, on the path to a leaf that has the most; 0 if its operators' seconds are unknown."""
        choice = chosen(session)
        paces = self.of(session.id, now)
        if choice is None or not (paces or choice.paces):
            return 0.0
        return extra_s(self._space, choice, paces)


def paces_of(stretches: Mapping[tuple[str, str], float]) -> Paces:
    """Return paces from the seconds taken per second profiled, by variant and tier."""
    known = {key: 1.0 if 1 / NOISE <= each <= NOISE else each for key, each in stretches.items()}
    by_tier: dict[str, list[float]] = {}
    for (_, tier), pace in known.items():
        by_tier.setdefault(tier, []).append(pace)
    others = {(OTHERS, tier): common(paces) for tier, paces in by_tier.items()}
    return {key: pace for key, pace in (others | known).items() if pace != 1.0}


def common(paces: Sequence[float]) -> float:
    """Return the pace closest to 1 if all deviate in the same direction, else 1."""
    return max(min(paces), min(1.0, max(paces)))


def extra_s(space: SessionSpace, choice: SessionChoice, paces: Paces) -> float:
    """Return the seconds that a plan takes at these paces beyond its planned latency, on the path
    to a leaf that has the most."""
    total: dict[str, float] = {"": 0.0}
    for stage in space.space.stages:
        task = stage.name
        pace = pace_of(paces, variant_of(choice.settings[task]), choice.tiers[task])
        more = pace - choice.paces.get(task, 1.0)
        run_s = choice.run_s.get(task, 0.0) * _stretch(choice.quarters.get(task, 0), stage.batched)
        total[task] = total[stage.parent] + run_s * more
    return max(total[space.space.stages[leaf].name] for leaf in leaves(space.space.stages))


def chosen(session: Session) -> SessionChoice | None:
    """Return the plan in force of a session; None: there is none, or it was made by hand."""
    if session.chosen < 0:
        return None
    choice = session.plans[session.chosen]
    return choice if choice.run_s else None


def variant_of(setting: str) -> str:
    """Return the "task/variant" of a setting."""
    return setting.partition("@")[0]


@lru_cache
def _stretch(quarters: int, batched: bool) -> float:
    return float(stretch(np.array(quarters), batched))


def _before(
    task: str, at: Mapping[str, tuple[str, str]], parents: Mapping[str, str]
) -> Iterator[tuple[StageBefore]]:
    """Yield the stages before a task in a session's plan, the nearest first."""
    while parent := parents[task]:
        yield (StageBefore(*at[parent], task),)
        task = parent


def _quarters(plans: Iterable[SessionPlan]) -> dict[str, Counter[str]]:
    """Return the quarters that plans reserve, by device and task."""
    found: dict[str, Counter[str]] = {}
    for stage in (stage for plan in plans for stage in plan.stages):
        found.setdefault(stage.device, Counter())[stage.task] += stage.quarters
    return found


def _left(stage: SessionStage, reserved: Mapping[str, int]) -> int:
    """Return the quarters of its device that other tasks leave to a stage; 0: its own device."""
    others = sum(quarters for task, quarters in reserved.items() if task != stage.task)
    return max(stage.quarters, QUARTERS - others) if stage.quarters else 0


def _by_worker(
    plans: Iterable[tuple[SessionPlan, SessionChoice]],
    reserved: Mapping[str, Mapping[str, int]],
    space: SessionSpace,
) -> dict[str, dict[str, StageSeconds]]:
    """Return what the settings of plans take, by worker; sessions of one setting have the mean, and
    the stages before of all of them."""
    batched = {stage.name: stage.batched for stage in space.space.stages}
    parents = {stage.name: stage.parent for stage in space.space.stages}
    alike: dict[tuple[str, str], list[StageSeconds]] = {}
    for plan, choice in plans:
        at = {
            each.task: (seat_worker(each.device, each.task), each.setting) for each in plan.stages
        }
        for stage in plan.stages:
            run_s = choice.run_s.get(stage.task, 0.0)
            if run_s <= 0:
                continue
            seats = batched[stage.task]
            planned = StageSeconds(
                owner=plan.session if space.tiers[stage.tier].own else "",
                variant=variant_of(stage.setting), tier=stage.tier, batched=seats, whole_s=run_s,
                most_s=run_s * _stretch(_left(stage, reserved.get(stage.device, {})), seats),
                before=tuple(_before(stage.task, at, parents)),
            )  # fmt: skip
            alike.setdefault(at[stage.task], []).append(planned)
    found: dict[str, dict[str, StageSeconds]] = {}
    for (worker, setting), rows in alike.items():
        whole_s = sum(each.whole_s for each in rows) / len(rows)
        most_s = sum(each.most_s for each in rows) / len(rows)
        levels = zip(*(each.before for each in rows), strict=True)
        before = tuple(tuple(dict.fromkeys(chain.from_iterable(level))) for level in levels)
        merged = replace(rows[0], whole_s=whole_s, most_s=most_s, before=before)
        found.setdefault(worker, {})[setting] = merged
    return found
