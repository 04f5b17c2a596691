"""Rent devices of types while a pipeline runs (``cluster.scale``).

Once a second the controller determines the wanted mix for the demand, the sizes, the prices and the
budget (``control/policies/kairos/renting.py``), and takes a step towards it. Mixes that may be
better are played meanwhile (``mix_trials.py``). A step is the new number of devices of each type.
Plans carry it (``Plan.mix``), and a ``Scale`` effect requests each changed number.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from control.controller.missing_types import MissingTypes
from control.controller.mix_trials import MixTrials
from control.estimation.arrival_forecast import ArrivalForecast
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.dispatch_options import PICK, SIMULATE
from control.policies.kairos.mix_play import QueryDraws
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.renting import (
    Fleet,
    Mix,
    Need,
    bound_of,
    next_mix,
    wanted_mix,
    worth_playing,
)
from control.policies.kairos.size_watch import SizeWatch
from control.problem.problem import PlanError
from schemas.effects import Counted, Effect, Failed, Scale, Solved
from schemas.pipeline import Policy
from schemas.records import Plan, Report, Settings

DECIDE_EVERY_S = 1.0
NOTICED_S = 3.0  # a released device reports its leaving within this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Rentable:
    """The devices that can be rented.

    ``start`` is the initial mix; ``pool`` returns the types with latencies over a distribution of
    sizes; ``budget`` is in $ per hour; ``boot_s`` are by type; ``draws`` are used to play mixes.
    """

    sizes: SizeDistribution
    pool: Callable[[SizeDistribution], Pool]
    budget: float
    start: Mix
    boot_s: Sequence[float]
    draws: QueryDraws

    def rental(self) -> "Rental":
        """Return the initially rented devices."""
        return Rental(self)


class Rental:
    """The rented devices. ``mix`` are those that should run; ``trouble`` says why no mix exists."""

    def __init__(self, rentable: Rentable) -> None:
        self._rentable = rentable
        self._made = rentable.pool(rentable.sizes)
        self._watch = SizeWatch(rentable.sizes, self._made.largest_size)
        self._demand = ArrivalForecast(max(rentable.boot_s, default=0.0))
        self._missing = MissingTypes(rentable.boot_s)
        self._trials = MixTrials(rentable.draws)
        self._decide_s: float | None = None
        self._released: deque[tuple[float, Mix]] = deque()
        self._asked: Mix = rentable.start
        self.trouble = ""

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the types."""
        return tuple(each.name for each in self._made.types)

    @property
    def mix(self) -> dict[str, int]:
        """The number of devices that should run, by type."""
        return dict(zip(self.types, self._asked, strict=True))

    def resume(self, plan: Plan) -> None:
        """Resume from the newest plan, which may be from another pipeline file."""
        if plan.mix:
            self._asked = tuple(plan.mix.get(name, 0) for name in self.types)

    def take(self, report: Report) -> None:
        """Record the sizes that an ingress has counted."""
        if report.role == "ingress":
            self._watch.take(report.node, report.incarnation, report.counts)

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._watch.forget(node)

    def count(self, event: Counted) -> None:
        """Record a count of the input topic."""
        self._demand.see(event.arrived, event.at_s)

    def decide(
        self,
        serving: Mapping[str, int],
        leaving: Mapping[str, int],
        settings: Settings,
        policy: Policy,
        now: float,
    ) -> list[Effect]:
        """Return the requests for devices, at most once a second. ``serving`` and ``leaving`` are
        numbers of live workers by device."""
        if self._decide_s is None:
            self._begin(policy.headroom, now)
        assert self._decide_s is not None
        if now < self._decide_s:
            return []
        self._decide_s = now + DECIDE_EVERY_S
        if self._watch.changed():
            self._made = self._rentable.pool(self._watch.distribution)
        demand_qps = self._demand.qps(now)
        if settings.demand_qps is not None:
            demand_qps = settings.demand_qps
        if demand_qps is None:
            return []
        budget = self._rentable.budget if settings.budget is None else settings.budget
        fleet = self._fleet(serving, leaving, now)
        self._missing.see(fleet.asked, fleet.ready, now)
        pool = self._pool(settings)
        self._trials.change(pool, policy)
        need = Need(
            pool=pool, demand_qps=demand_qps, headroom=policy.headroom, budget=budget,
            played=self._trials.played,
        )  # fmt: skip
        try:
            wanted = wanted_mix(need, self._asked)
            if PICK.of(policy) == SIMULATE:
                self._trials.ask(worth_playing(need, self._asked), now)
        except PlanError as error:
            self.trouble = str(error)
            return []
        self.trouble = ""
        return self._ask(next_mix(pool, budget, fleet, wanted), now)

    def play(self, now: float) -> list[Effect]:
        """Return the play of a mix that may be better than the wanted one, one at a time."""
        return self._trials.next(now)

    def played(self, event: Solved | Failed) -> bool:
        """Record the end of a play; return whether it was one."""
        return self._trials.ended(event)

    def _begin(self, headroom: float, now: float) -> None:
        """Assume that the present mix is needed until demand has been measured."""
        self._decide_s = now + DECIDE_EVERY_S
        self._demand.expect(bound_of(self._made, self._asked) / headroom, now)

    def _pool(self, settings: Settings) -> Pool:
        types = tuple(
            PricedType(
                each.name,
                settings.prices.get(each.name, each.price),
                self._missing.most(at, each.most),
            )
            for at, each in enumerate(self._made.types)
        )
        return replace(self._made, types=types, slo_s=settings.slo_s)

    def _fleet(self, serving: Mapping[str, int], leaving: Mapping[str, int], now: float) -> Fleet:
        while self._released and now - self._released[0][0] > NOTICED_S:
            self._released.popleft()
        unnoticed = [sum(each) for each in zip(*(mix for _, mix in self._released), strict=True)]
        left = self._of(leaving)
        return Fleet(
            asked=self._asked,
            ready=self._of(serving),
            leaving=tuple(map(max, left, unnoticed)) if unnoticed else left,
        )

    def _of(self, counts: Mapping[str, int]) -> Mix:
        return tuple(counts.get(name, 0) for name in self.types)

    def _ask(self, step: Sequence[int], now: float) -> list[Effect]:
        released = tuple(max(0, a - b) for a, b in zip(self._asked, step, strict=True))
        if any(released):
            self._released.append((now, released))
        changed = [
            Scale(name, count)
            for name, before, count in zip(self.types, self._asked, step, strict=True)
            if before != count
        ]
        self._asked = tuple(step)
        return [*changed]
