"""The target allocation of a rollout, and the next step towards it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from control.problem.candidates import device_kinds
from control.problem.plan_reasons import ADMISSION, PACE, ROUTES, STAGED, PlanReason
from control.problem.problem import Allocation, Problem
from control.rollout.hysteresis import worth_a_change
from control.rollout.next_plan import PlanningContext, Target, next_plan, scales
from control.rollout.plan_builder import same
from schemas.records import Plan, Settings

STEP = 0.02  # of the capacity; a smaller change of admission needs no plan of its own
LEAP = 0.1  # of the capacity; smaller changes have a plan once in ``ADMISSION_S``
ADMISSION_S = 1.0  # least interval between plans for changes below a leap
PACED = 1.15  # ratio of a worker's paces, either way, beyond which routes are updated
PACES_S = 1.0  # least interval between plans for changed paces
ROUTES_S = 2.0  # interval between updates of routes to demand


class RolloutTarget:
    """The chosen allocation, and the reasons for a next step towards it."""

    __slots__ = (
        "_admission_s",
        "_moves",
        "_paces",
        "_paces_s",
        "_provisional",
        "_routes_s",
        "_share",
        "_since_s",
        "_staging",
        "_target",
    )

    def __init__(self) -> None:
        self._target: Target | None = None
        self._provisional = False  # the target is from a quick plan, or resumed
        self._share = 1.0  # of the capacity, admitted in the newest plan
        self._paces: Mapping[str, float] = {}  # of slow workers, as of the last routes
        self._paces_s = float("-inf")  # when changed paces may have a plan
        self._staging = False  # another step follows the last one
        self._moves: list[PlanReason] = []
        self._routes_s = 0.0
        self._admission_s = float("-inf")  # when a small change of admission may have a plan
        self._since_s = float("-inf")  # when the target was set

    def resume(self, plan: Plan) -> None:
        """Resume from a plan from before a restart.

        The plan may be one on the way, and does not tell kinds of devices: the next solve's
        allocation replaces it.
        """
        self._target, self._provisional = Target.of(plan), True

    @property
    def allocation(self) -> Allocation | None:
        """The allocation that is rolled out; None before the first."""
        return None if self._target is None else self._target.allocation

    @property
    def share(self) -> float:
        """The share of its capacity that the newest plan admits."""
        return self._share

    def pause(self, *, paused: bool) -> None:
        """Pause or resume the target and every plan on the way."""
        if self._target is not None:
            settings = structs.replace(self._target.settings, paused=paused)
            self._target = replace(self._target, settings=settings)

    def moved(self, reasons: Iterable[PlanReason]) -> None:
        """Add events that the next step may have waited for."""
        self._moves += reasons

    def choose(self, found: Allocation, problem: Problem, settings: Settings, now: float) -> Target:
        """Return the target for a solve's allocation, or the old one if a change is not worth it.

        Any allocation replaces a target that is resumed or from a quick plan.
        """
        kept = self._target
        if (
            kept is None
            or self._provisional
            or kept.settings != settings
            or kept.allocation.slo_s != found.slo_s
            or not scales(problem.pipeline, settings)
            or worth_a_change(kept.allocation, found, problem, now - self._since_s)
        ):
            kinds = device_kinds(problem)
            return Target(found, settings, {d: kind for kind in kinds for d in kinds[kind]})
        return replace(kept, allocation=replace(found, replicas=kept.allocation.replicas))

    def first(
        self, target: Target, context: PlanningContext, reasons: Sequence[PlanReason], now: float
    ) -> Plan:
        """Return the plan of the first step to a target."""
        plan, self._staging = next_plan(target, context, reasons, now)
        self._share = context.capacity_share
        return plan

    def sees(self, share: float, now: float) -> None:
        """Request a next step if the observed capacity differs from the newest plan's.

        Every report of a worker changes the capacity a little, and every plan costs CPU in each
        role. A change below ``LEAP`` therefore gets a plan at most once in ``ADMISSION_S``.
        """
        change = abs(share - self._share)
        differs = change >= STEP or (share == 1.0) != (self._share == 1.0)
        if differs and (change >= LEAP or now >= self._admission_s):
            self._moves.append(ADMISSION)
            self._admission_s = now + ADMISSION_S

    def keeps_pace(self, paces: Mapping[str, float], now: float) -> None:
        """Request new routes if a worker has become slow or has recovered: at once, then at most
        once in ``PACES_S``, because few batches give an inaccurate pace."""
        if now >= self._paces_s and _moved(self._paces, paces):
            self._paces, self._paces_s = paces, now + PACES_S
            self._moves.append(PACE)

    def take(self, target: Target, now: float, *, provisional: bool = False) -> None:
        """Adopt a target whose first step has passed the checks."""
        before, self._target = self._target, target
        self._provisional = provisional
        if before is None or before.allocation.replicas != target.allocation.replicas:
            self._since_s = now
        self._moves, self._routes_s = [], now + ROUTES_S

    def settings(self, now: float) -> Settings | None:
        """Return the target's settings if a next step or new routes may be due, else None."""
        if self._target is None:
            return None
        if self._moves or self._staging or now >= self._routes_s:
            return self._target.settings
        return None

    def step(self, context: PlanningContext, now: float) -> Plan | None:
        """Return the next plan, or None if it would equal the one in force."""
        assert self._target is not None
        flows = scales(context.pipeline, self._target.settings)
        reasons, self._moves = self._moves, []
        self._routes_s = now + ROUTES_S
        if not (reasons or self._staging or flows):
            return None
        if not reasons:
            same_share = context.capacity_share == self._share
            reasons = [STAGED if self._staging else ROUTES if same_share else ADMISSION]
        plan, self._staging = next_plan(self._target, context, reasons, now)
        before, self._share = self._share, context.capacity_share
        if before != self._share and context.in_force and plan.capacity_qps is not None:
            return plan
        return None if context.in_force and same(plan, context.in_force) else plan


def _moved(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Return whether a worker's pace differs much from the one that routes use."""
    return any(
        not 1 / PACED <= now.get(name, 1.0) / before.get(name, 1.0) <= PACED
        for name in {*before, *now}
    )
