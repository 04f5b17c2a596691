"""Multi-query scheduling: one plan for each session, on tiers of shared GPUs.

``schedule`` solves the linear program over classes of equal sessions and rounds it with exact
packing (Compass, Section 4.3 and Appendix B, with the demand of a plan counted by item size). Two
objectives: *goodput* serves the sessions of the greatest total weight that fit; *cost* serves
every session for the least $ an hour of whole GPUs. The paper's greedy and its integer program
over single GPUs are in ``reference_schedulers.py``. The greedy also runs for
small instances, and for large ones if the relative gap to the bound exceeds 1e-4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.policies.compass.packing import QUARTERS, gpus
from control.policies.compass.schedule.classes import Classes, chosen_plans, session_classes
from control.policies.compass.schedule.greedy import first_fit, greedy_pairs
from control.policies.compass.schedule.instance import COST, GOODPUT, OBJECTIVES, Bin, Instance
from control.policies.compass.schedule.relaxation import ProgramData, Relaxed, model, relax
from control.policies.compass.schedule.rounding import (
    EXACT_COLUMNS,
    PackedSessions,
    mended,
    rounded,
    unplaced,
)
from control.problem.problem import Meter, PlanError, SolverRun, unmetered

CERTAIN = 1e-9  # relative gap up to which a schedule is optimal
NEAR_ENOUGH = 1e-4  # relative gap up to which a large instance is not improved: that takes long


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """``plans[i]`` is the index of session ``i``'s plan; None: not served.

    ``opened[tier]`` counts the formerly empty GPUs in use, which cost ``usd_per_h``. ``bound`` is
    the linear program's bound on the objective: on the weight served in goodput, on $ an hour in
    cost; None if no schedule serves every session.
    """

    objective: str
    plans: tuple[int | None, ...]
    opened: dict[str, int]
    usd_per_h: float
    weight: float
    bound: float | None
    feasible: bool
    run: SolverRun

    @property
    def served(self) -> int:
        """The number of sessions with a plan."""
        return sum(plan is not None for plan in self.plans)

    @property
    def value(self) -> float:
        """The weight served in goodput, $ an hour in cost."""
        return self.usd_per_h if self.objective == COST else self.weight

    @property
    def ratio(self) -> float | None:
        """The value over its bound: at most 1 in goodput, at least 1 in cost."""
        if self.bound is None:
            return None
        return self.value / self.bound if self.bound else 1.0


def schedule(instance: Instance, objective: str, meter: Meter = unmetered) -> Schedule:
    """Return the best schedule found; in cost ``feasible`` is False if a session is unserved.

    Raises ``PlanError`` for an unknown objective.
    """
    if objective not in OBJECTIVES:
        raise PlanError(f"no objective {objective!r}; there are {', '.join(OBJECTIVES)}")
    began = meter()
    made = _cost(instance) if objective == COST else _goodput(instance)
    ended = meter()
    gap = None if made.ratio is None else abs(1.0 - made.ratio)
    run = SolverRun("class-lp", gap, ended[0] - began[0], ended[1] - began[1])
    return replace(made, run=run)


def _goodput(instance: Instance) -> Schedule:
    found = session_classes(instance)
    made = _solved(instance, found, GOODPUT)
    assert made is not None
    filling, relaxed = made
    if unplaced(filling) == 0:
        cheaper = _solved(instance, found, COST)
        if cheaper is not None and unplaced(cheaper[0]) == 0:
            filling = cheaper[0]
    plans = chosen_plans(found, len(instance.sessions), filling.taken)
    planned = finished(instance, plans, GOODPUT, relaxed.bound)
    if not _may_improve(filling, relaxed.bound) or not _worth_it(filling, relaxed.bound):
        return planned
    return max(planned, _greedy(instance, GOODPUT, relaxed.bound), key=lambda each: each.weight)


def _cost(instance: Instance) -> Schedule:
    found = session_classes(instance)
    planless = any(not session.plans for session in instance.sessions)
    made = None if planless else _solved(instance, found, COST)
    if made is None or unplaced(made[0]) > 0:
        return replace(_goodput(instance), objective=COST, bound=None, feasible=False)
    filling, relaxed = made
    plans = chosen_plans(found, len(instance.sessions), filling.taken)
    planned = finished(instance, plans, COST, relaxed.bound)
    if not _worth_it(filling, relaxed.bound):
        return planned
    other = _greedy(instance, COST, relaxed.bound)
    return other if other.feasible and other.usd_per_h < planned.usd_per_h else planned


def _greedy(instance: Instance, objective: str, bound: float) -> Schedule:
    """Return the paper's greedy schedule, which in rare cases is nearer to the bound."""
    plans = first_fit(instance, greedy_pairs(instance, objective))
    return finished(instance, plans, objective, bound)


def _solved(
    instance: Instance, found: Classes, objective: str
) -> tuple[PackedSessions, Relaxed] | None:
    """Return the rounded schedule; None if the linear program is infeasible (cost only)."""
    data = model(instance, found, objective)
    free = tuple(instance.free.get(bin, (0, 0, 0)) for bin in found.bins)
    if not len(found.owner):
        return PackedSessions.of(data, free, found.owner.copy()), Relaxed(
            found.weight, data.free, 0.0
        )
    relaxed = relax(data)
    if relaxed is None:
        return None
    filling = rounded(data, free, relaxed)
    if _may_improve(filling, relaxed.bound) and _worth_it(filling, relaxed.bound):
        filling = mended(filling, relaxed)
    return filling, relaxed


def _may_improve(filling: PackedSessions, bound: float) -> bool:
    """Return whether the bound allows a better integer schedule."""
    data = filling.data
    if data.cost:
        return unplaced(filling) > 0 or filling.usd_per_h > bound * (1 + CERTAIN)
    return filling.weight + _step(data) <= bound * (1 + CERTAIN)


def _step(data: ProgramData) -> float:
    """Return the least difference of two served weights: the gcd of integer weights, else 0."""
    weights = data.classes.weight
    if not np.array_equal(weights, np.round(weights)):
        return 0.0
    return float(np.gcd.reduce(weights.astype(np.int64)))


def _worth_it(filling: PackedSessions, bound: float) -> bool:
    """Return whether an improvement is worth its time: the instance is small, sessions are
    unplaced (cost), or the relative gap exceeds ``NEAR_ENOUGH``."""
    data = filling.data
    if data.columns <= EXACT_COLUMNS or (data.cost and unplaced(filling) > 0):
        return True
    value = filling.usd_per_h if data.cost else filling.weight
    return abs(value - bound) > NEAR_ENOUGH * bound


def finished(
    instance: Instance, plans: Sequence[int | None], objective: str, bound: float | None
) -> Schedule:
    """Return a schedule of these plans, with its GPUs recounted from the items of the instance.

    Raises ``PlanError`` if they do not fit, which would be a bug of the scheduler.
    """
    used = opened_gpus(instance, plans)
    for name, count in used.items():
        limit = instance.tiers[name].gpus
        if limit is not None and count > limit:
            raise PlanError(f"the schedule needs {count} GPUs of tier {name!r}; it has {limit}")
    served = [
        s.weight for s, plan in zip(instance.sessions, plans, strict=True) if plan is not None
    ]
    return Schedule(
        objective=objective,
        plans=tuple(plans),
        opened=used,
        usd_per_h=sum(instance.tiers[name].price * count for name, count in used.items()),
        weight=sum(served),
        bound=bound,
        feasible=objective == GOODPUT or len(served) == len(plans),
        run=SolverRun("", None, 0.0, 0.0),
    )


def opened_gpus(instance: Instance, plans: Sequence[int | None]) -> dict[str, int]:
    """Return the number of empty GPUs that each tier opens for these plans, packed exactly."""
    counts: dict[Bin, list[int]] = {}
    for session, plan in zip(instance.sessions, plans, strict=True):
        for tier, quarters, pool in session.plans[plan].items if plan is not None else ():
            if (total := counts.get((tier, pool))) is None:
                total = counts[tier, pool] = [0] * QUARTERS
            total[quarters - 1] += 1
    used = dict.fromkeys(instance.tiers, 0)
    for bin, total in sorted(counts.items()):
        used[bin[0]] += gpus(total, instance.free.get(bin, (0, 0, 0)))
    return used
