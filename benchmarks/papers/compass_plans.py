"""The plans that a method knows for a session after some seconds of planning, in modelled time.

Ours goes on until its limit, as a live search does. A baseline goes on as well, and its plans are
those that it profiled and found to comply, on the tiers on which it tried them; GPU shares are
trimmed for both by the same code, which no baseline has in the papers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.compass import pool_of
from benchmarks.papers.compass_compare import BASELINES, Run, WholeProfiles, ended, tested_on
from benchmarks.papers.compass_model import EDGE, DrawnQuery
from control.policies.compass.packing import QUARTERS
from control.policies.compass.schedule.instance import PlanItem, PlanOption
from control.policies.compass.search.camo import Past, Profiled, SearchOptions, SessionSearch
from control.policies.compass.search.pricing import Priced, priced
from control.policies.compass.search.sequential_test import StopRule, Tested

MOST_PLANS = 16  # of a session, the cheapest, as live
NEAR = 1.1  # times the cheapest: near-optimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plans that a method knows for a session ``seconds`` after its arrival, the cheapest
    first, which of them truly meet its objectives, and which have a stage on its edge device."""

    seconds: float
    plans: tuple[PlanOption, ...]
    complies: tuple[bool, ...]
    at_edge: tuple[bool, ...]


class _Search:
    """A search that goes on as far as it is asked for: the first profiles of a long one are those
    of every shorter one."""

    def __init__(self, run: Run, steps: Iterator[None]) -> None:
        self._run, self._steps = run, steps
        self._ends: list[float] = []  # of the profiles
        self._over = False

    def profiles(self, limit_s: float) -> Iterator[int]:
        """Yield the number of each profile that ends by ``limit_s``."""
        number = 0
        while number < len(self._ends) or self._went_on(limit_s):
            if self._ends[number] > limit_s:
                return
            yield number
            number += 1

    def seconds(self, limit_s: float) -> float:
        """Return when a search with this limit ends."""
        return min(self._run.seconds, limit_s)

    def _went_on(self, limit_s: float) -> bool:
        """Run one more profile if it begins before ``limit_s``; return whether it ran."""
        if self._over or self._run.seconds >= limit_s:
            return False
        self._over = next(self._steps, _END) is _END
        if not self._over:
            self._ends.append(self._run.seconds)
        return not self._over


_END = object()


class OurSearch(_Search):
    """Our search for a query. ``profiler``: ours, with the adaptive test and prefixes that are
    reused."""

    def __init__(
        self, query: DrawnQuery, history: Sequence[Past] = (), *, profiler: bool = True
    ) -> None:
        self._query, self._history, self._profiler = query, history, profiler
        self._plans: list[tuple[Priced, ...]] = []  # known after each profile
        super().__init__(Run(query), self._searched())

    def until(self, limit_s: float) -> Planned:
        """Return the plans known at ``limit_s``, or when no other plan could be better."""
        known: tuple[Priced, ...] = ()
        for number in self.profiles(limit_s):
            known = self._plans[number]
        return _planned(self._query, self.seconds(limit_s), map(_choice, known))

    def past(self, limit_s: float) -> Past:
        """Return the profiles that begin before ``limit_s``, as history of later searches."""
        for _ in self.profiles(limit_s):
            pass
        return self._run.past(1 + bisect_left(self._ends, limit_s))

    def costs(self, limit_s: float) -> "Costs":
        """Yield the truly compliant plans known after each profile that ends by ``limit_s``."""
        for number in self.profiles(limit_s):
            for plan in self._plans[number]:
                if self._query.compliant(plan.configuration):
                    yield self._ends[number], plan.usd_per_h

    def _searched(self) -> Iterator[None]:
        query, app = self._query, self._query.app
        rule = StopRule(most=app.most_samples)
        options = SearchOptions(rule=rule)
        search = SessionSearch(query.deployment, query.slo, options, app.sent, self._history)
        while (proposal := search.ask()) is not None:
            c = proposal.configuration
            tested = tested_on(query, c, rule, adaptive=self._profiler, prior=proposal.prior)
            search.tell(Profiled(configuration=c, tested=tested, seconds=tuple(query.seconds[c])))
            self._run.profile(c, tested, reuse=self._profiler)
            self._plans.append(search.plans)
            yield


class _BaselineRun(WholeProfiles):
    """A baseline that goes on after its first plan."""

    def __init__(self, query: DrawnQuery) -> None:
        super().__init__(query)
        self.known: dict[tuple[int, int], float] = {}  # configuration, placement: seconds

    def accept(self, configuration: int) -> None:
        self.known.setdefault(self.complying[-1], self.seconds)


class _ProfiledBaselineRun(_BaselineRun):
    """A baseline with our profiler: the adaptive test, and prefixes that are reused."""

    reuses = True

    def tested(self, configuration: int) -> Tested:
        rule = StopRule(most=self.query.app.most_samples)
        return tested_on(self.query, configuration, rule, adaptive=True, prior=None)


class BaselineSearch(_Search):
    """A baseline's search for a query. ``profiler``: with ours."""

    def __init__(self, name: str, query: DrawnQuery, *, profiler: bool = False) -> None:
        self._query = query
        self._baseline = _ProfiledBaselineRun(query) if profiler else _BaselineRun(query)
        self._prices: dict[tuple[int, int], tuple[Priced, ...]] = {}
        super().__init__(self._baseline, BASELINES[name](self._baseline))

    def until(self, limit_s: float) -> tuple[Planned, Planned]:
        """Return the plans known at ``limit_s`` with our shares of GPUs, and on whole GPUs."""
        found = [plan for plan, _ in self._known(limit_s)]
        seconds = self.seconds(limit_s)
        shared = [_choice(each) for plan in found for each in self._priced(plan)]
        whole = [_on_whole_gpus(self._query, *plan) for plan in found]
        return _planned(self._query, seconds, shared), _planned(self._query, seconds, whole)

    def costs(self, limit_s: float) -> "tuple[Costs, Costs]":
        """Return the truly compliant plans known by ``limit_s``, with our shares of GPUs and on
        whole GPUs."""
        query = self._query
        good = [each for each in self._known(limit_s) if query.compliant(each[0][0])]
        shared = [(s, each.usd_per_h) for plan, s in good for each in self._priced(plan)]
        return shared, [(s, _on_whole_gpus(query, *plan).usd_per_h) for plan, s in good]

    @property
    def first_plan_s(self) -> float:
        """The end of a search for one plan, which gives up as those of ``compass_compare``."""
        end = 0.0
        for number in self.profiles(np.inf):
            end = self._ends[number]
            first_s = min(self._baseline.known.values(), default=np.inf)
            if end >= first_s or ended(self._query.app, number + 1, end):
                break
        return end

    def _known(self, limit_s: float) -> list[tuple[tuple[int, int], float]]:
        for _ in self.profiles(limit_s):
            pass
        return [(plan, s) for plan, s in self._baseline.known.items() if s <= limit_s]

    def _priced(self, plan: tuple[int, int]) -> tuple[Priced, ...]:
        if plan not in self._prices:
            self._prices[plan] = _priced(self._query, *plan)
        return self._prices[plan]


Costs = Iterable[tuple[float, float]]  # seconds of planning, $ an hour of a truly compliant plan


def until(costs: Costs, usd_per_h: float) -> float | None:
    """Return the seconds until a plan costs at most that much; None: none does."""
    return next((seconds for seconds, usd in costs if usd <= usd_per_h + 1e-9), None)


def near_optimal_s(query: DrawnQuery, limit_s: float, history: Sequence[Past]) -> float | None:
    """Return the modelled seconds until our search knows a truly compliant plan that costs at most
    ``NEAR`` times the cheapest one; None: not within ``limit_s``, or no plan complies."""
    truth = by_truth(query)
    if not truth.plans:
        return None
    return until(OurSearch(query, history).costs(limit_s), NEAR * truth.plans[0].cost)


def by_truth(query: DrawnQuery) -> Planned:
    """Return the plans of every configuration that truly complies, known at once."""
    good = [c for c in range(query.app.space.configuration_count) if query.compliant(c)]
    found = [_choice(plan) for c in good for plan in _priced(query, c)]
    return _planned(query, 0.0, found)


def by_truth_on_whole_gpus(query: DrawnQuery) -> Planned:
    """Return the plans on whole GPUs of every configuration that truly complies, known at once."""
    within = query.latency <= query.slo.latency_s
    good = [c for c in range(query.app.space.configuration_count) if query.compliant(c)]
    found = [_on_whole_gpus(query, c, int(p)) for c in good for p in np.flatnonzero(within[c])]
    return _planned(query, 0.0, found)


# ---------------------------------------------------------------------- as the scheduler has them


@dataclass(frozen=True, slots=True)
class _Choice:
    """A plan: its configuration, its placement, the quarters of each stage, and $ an hour."""

    configuration: int
    placement: int
    quarters: tuple[int, ...]
    usd_per_h: float


def _choice(plan: Priced) -> _Choice:
    return _Choice(plan.configuration, plan.placement, plan.occupied, plan.usd_per_h)


def _on_whole_gpus(query: DrawnQuery, c: int, p: int) -> _Choice:
    price = query.deployment.price[:, p]
    quarters = tuple(QUARTERS if each > 0 else 0 for each in price.tolist())
    return _Choice(c, p, quarters, float(price.sum()))


def _priced(query: DrawnQuery, c: int, p: int | None = None) -> tuple[Priced, ...]:
    """Return the trimmed plans of a configuration, on one placement if ``p`` is given."""
    deployment = query.deployment
    if p is not None:
        only = np.zeros_like(deployment.fits)
        only[c, p] = deployment.fits[c, p]
        deployment = replace(deployment, fits=only)
    return priced(deployment, c, query.seconds[c], query.app.sent[c], query.slo.latency_s)


def _planned(query: DrawnQuery, seconds: float, found: Iterable[_Choice]) -> Planned:
    plans = sorted(found, key=lambda each: (each.usd_per_h, each.quarters))[:MOST_PLANS]
    return Planned(
        seconds=seconds,
        plans=tuple(_option(query, each) for each in plans),
        complies=tuple(
            float(query.accuracy[each.configuration]) >= query.slo.accuracy for each in plans
        ),
        at_edge=tuple(_at_edge(query, each) for each in plans),
    )


def _at_edge(query: DrawnQuery, choice: _Choice) -> bool:
    """Return whether a stage that takes a GPU runs on the session's edge device."""
    space = query.app.space
    placed = space.placements[choice.placement].tolist()
    return any(
        space.tiers[tier] == EDGE and not stage.cpu
        for tier, stage in zip(placed, space.stages, strict=True)
    )


def _option(query: DrawnQuery, choice: _Choice) -> PlanOption:
    space = query.app.space
    tiers = [space.tiers[tier] for tier in space.placements[choice.placement].tolist()]
    items = tuple(
        PlanItem(tiers[stage], quarters, *pool_of(query.app, choice.configuration, stage))
        for stage, quarters in enumerate(choice.quarters)
        if quarters
    )
    return PlanOption(items, choice.usd_per_h)
