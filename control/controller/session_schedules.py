"""The schedule of sessions that contend for devices, solved in the planners' process.

Serving sessions keep their devices; the others are scheduled on the free devices, by the linear
program over classes (control/policies/compass/schedule). A schedule is made when sessions, their
plans or free devices have changed, and every ``AGAIN_S`` while sessions wait, because their weights
grow.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from control.policies.compass.schedule.instance import (
    Bin,
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.session_options import OBJECTIVE
from control.policies.solvers import SCHEDULE
from control.problem.seats import bound_device
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from control.sessions.session_book import SessionBook
from schemas.effects import Effect, Failed, Solve, Solved
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice

AGAIN_S = 10.0
FIRST_JOB = 1 << 41  # job numbers of schedules are above


@dataclass(frozen=True, slots=True)
class ScheduleProblem:
    """Sessions to schedule, and the objective: goodput or cost."""

    instance: Instance
    objective: str


class SessionSchedules:
    """The schedule in flight, and the inputs of the last one."""

    def __init__(self, space: SessionSpace) -> None:
        self._space = space
        self._asked: tuple[object, float] = (None, float("-inf"))  # inputs and time
        self._plans: dict[str, tuple[SessionChoice, ...]] = {}  # of the sessions in it
        self._job = FIRST_JOB
        self._in_flight = False

    def owns(self, job: int | str) -> bool:
        """Return whether a solve is the schedule in flight."""
        return self._in_flight and job == self._job

    def begin(self, book: SessionBook, policy: Policy, now: float) -> list[Effect]:
        """Begin a schedule for contending sessions after changes, else every ``AGAIN_S``."""
        plans = {each.id: each.plans for each in book.contending}
        wanted = plans, tuple(sorted(book.free.items())), book.bound
        what, when = self._asked
        if self._in_flight or not book.contending or (what == wanted and now < when + AGAIN_S):
            return []
        self._asked, self._plans = (wanted, now), plans
        self._job, self._in_flight = self._job + 1, True
        weights = [book.aged_weight(each, now) for each in book.contending]
        largest = max(weights)  # divided by it: weights age beyond what a solver takes
        instance = self._instance(book, [each / largest for each in weights])
        return [Solve(self._job, SCHEDULE, ScheduleProblem(instance, OBJECTIVE.of(policy)))]

    def solved(self, event: Solved | Failed, book: SessionBook, now: float) -> None:
        """Assign the plans of a finished schedule; a failed one is made again later."""
        self._in_flight = False
        if isinstance(event, Solved):
            found = zip(self._plans.items(), event.plan.plans, strict=True)
            chosen = {name: of[index] for (name, of), index in found if index is not None}
            book.assign(chosen, now - self._asked[1])

    def _instance(self, book: SessionBook, weights: Sequence[float]) -> Instance:
        tiers, free = self._space.tiers, book.free
        partly: dict[Bin, tuple[int, int, int]] = {}
        for shared, quarters in free.items():
            counts = Counter(quarters)
            partly[shared] = counts[1], counts[2], counts[3]
        return Instance(
            tiers={
                name: Tier(free.get((name, ""), ()).count(QUARTERS), tier.price)
                for name, tier in tiers.items()
            },
            sessions=tuple(
                Candidate(id=each.id, weight=weight, plans=self._demands(each, book.bound))
                for each, weight in zip(book.contending, weights, strict=True)
            ),
            free=partly,
        )

    def _demands(self, session: Session, bound: Collection[str]) -> tuple[PlanOption, ...]:
        """Return the demands of a session's plans; zero on a tier where it has its own device."""
        has = {tier for tier in self._space.tiers if bound_device(tier, session.id) in bound}
        return tuple(demanded(self._space, choice, has) for choice in session.plans)


def demanded(space: SessionSpace, choice: SessionChoice, has: Collection[str] = ()) -> PlanOption:
    """Return the demand of a plan. On a tier of sessions' own devices it is one whole device, or
    zero if the session ``has`` a device bound to it."""
    own = {tier for tier in choice.tiers.values() if space.tiers[tier].own and tier not in has}
    shared = (
        PlanItem(choice.tiers[task], quarters, space.pool(task, choice.settings[task]))
        for task, quarters in choice.quarters.items()
        if quarters
    )
    items = (*shared, *(PlanItem(tier, QUARTERS) for tier in sorted(own)))
    return PlanOption(items, choice.usd_per_h)
