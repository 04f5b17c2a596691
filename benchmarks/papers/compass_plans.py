"""The plans that a method knows for a session after some seconds of planning, in modelled time.

Ours goes on until its limit, as a live search does. A baseline goes on as well, and its plans are
those that it profiled and found to comply, on the tiers on which it tried them; GPU shares are
trimmed for both by the same code, which no baseline has in the papers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.compass import pool_of
from benchmarks.papers.compass_compare import BASELINES, Run, WholeProfiles, tested_on
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


class _LimitedRun(Run):
    """Our search, which goes on until its limit."""

    def __init__(self, query: DrawnQuery, limit_s: float) -> None:
        super().__init__(query)
        self._limit_s = limit_s

    @property
    def going(self) -> bool:
        return self.seconds < self._limit_s


class _LimitedBaseline(WholeProfiles):
    """A baseline, which goes on after its first plan; profiles that end too late do not count."""

    def __init__(self, query: DrawnQuery, limit_s: float) -> None:
        super().__init__(query)
        self.limit_s = limit_s
        self.known: dict[tuple[int, int], float] = {}  # configuration, placement: seconds

    @property
    def going(self) -> bool:
        return self.seconds < self.limit_s

    def accept(self, configuration: int) -> None:
        if self.seconds <= self.limit_s:
            self.known.setdefault(self.complying[-1], self.seconds)


class _ProfiledBaseline(_LimitedBaseline):
    """A baseline with our profiler: the adaptive test, and prefixes that are reused."""

    reuses = True

    def tested(self, configuration: int) -> Tested:
        rule = StopRule(most=self.query.app.most_samples)
        return tested_on(self.query, configuration, rule, adaptive=True)


def by_compass(query: DrawnQuery, limit_s: float, history: Sequence[Past]) -> Planned:
    """Search with ``history`` until ``limit_s``, or until no other plan could be better."""
    return _searched(query, limit_s, history)[0]


def without_profiler(query: DrawnQuery, limit_s: float, history: Sequence[Past]) -> Planned:
    """Search as ``by_compass`` on a fixed number of samples, without reusing prefixes."""
    return _searched(query, limit_s, history, profiler=False)[0]


def without_optimizer(query: DrawnQuery, limit_s: float) -> Planned:
    """Search by expected improvement of one utility, with our profiler and our shares."""
    return _by_run("vulcan-like", _ProfiledBaseline(query, limit_s))[0]


def past_of(query: DrawnQuery, limit_s: float) -> Past:
    """Return the search of an earlier session, as history of later ones."""
    return _searched(query, limit_s, ())[1]


def near_optimal_s(query: DrawnQuery, limit_s: float, history: Sequence[Past]) -> float | None:
    """Return the modelled seconds until our search knows a truly compliant plan that costs at most
    ``NEAR`` times the cheapest one; None: not within ``limit_s``, or no plan complies."""
    truth = by_truth(query)
    if not truth.plans:
        return None
    return until(costs_of_compass(query, limit_s, history), NEAR * truth.plans[0].cost)


Costs = Iterable[tuple[float, float]]  # seconds of planning, $ an hour of a truly compliant plan


def until(costs: Costs, usd_per_h: float) -> float | None:
    """Return the seconds until a plan costs at most that much; None: none does."""
    return next((seconds for seconds, usd in costs if usd <= usd_per_h + 1e-9), None)


def costs_of_compass(query: DrawnQuery, limit_s: float, history: Sequence[Past]) -> Costs:
    """Yield the truly compliant plans that our search knows after each profile, in time."""
    run = _LimitedRun(query, limit_s)
    for plans in _steps(run, history):
        if run.seconds <= limit_s:
            good = (plan for plan in plans if query.compliant(plan.configuration))
            yield from ((run.seconds, plan.usd_per_h) for plan in good)


def costs_of_baseline(name: str, query: DrawnQuery, limit_s: float) -> tuple[Costs, Costs]:
    """Return the truly compliant plans that a baseline finds until ``limit_s``, with our shares of
    GPUs and on whole GPUs."""
    run = _LimitedBaseline(query, limit_s)
    BASELINES[name](run)
    good = [(plan, s) for plan, s in run.known.items() if query.compliant(plan[0])]
    shared = [(s, each.usd_per_h) for plan, s in good for each in _priced(query, *plan)]
    return shared, [(s, _on_whole_gpus(query, *plan).usd_per_h) for plan, s in good]


def _searched(
    query: DrawnQuery, limit_s: float, history: Sequence[Past], *, profiler: bool = True
) -> tuple[Planned, Past]:
    run = _LimitedRun(query, limit_s)
    plans: tuple[Priced, ...] = ()
    for known in _steps(run, history, profiler):
        if run.seconds <= limit_s:
            plans = known
    return _planned(query, min(run.seconds, limit_s), map(_choice, plans)), run.past()


def _steps(
    run: _LimitedRun, history: Sequence[Past], profiler: bool = True
) -> Iterator[tuple[Priced, ...]]:
    """Search with ``history``; yield the plans known after each profile. ``profiler``: ours, with
    the adaptive test and prefixes that are reused."""
    query, app = run.query, run.query.app
    rule = StopRule(most=app.most_samples)
    search = SessionSearch(query.deployment, query.slo, SearchOptions(rule=rule), app.sent, history)
    while run.going and (proposal := search.ask()) is not None:
        c = proposal.configuration
        tested = tested_on(query, c, rule, adaptive=profiler)
        search.tell(Profiled(configuration=c, tested=tested, seconds=tuple(query.seconds[c])))
        run.profile(c, tested, reuse=profiler)
        yield search.plans


def by_baseline(name: str, query: DrawnQuery, limit_s: float) -> tuple[Planned, Planned]:
    """Search by a baseline until ``limit_s``; return its plans with our shares of GPUs, and those
    on whole GPUs."""
    return _by_run(name, _LimitedBaseline(query, limit_s))


def _by_run(name: str, run: _LimitedBaseline) -> tuple[Planned, Planned]:
    BASELINES[name](run)
    query, known = run.query, run.known
    seconds = min(run.seconds, run.limit_s)
    shared = [_choice(plan) for c, p in known for plan in _priced(query, c, p)]
    whole = [_on_whole_gpus(query, c, p) for c, p in known]
    return _planned(query, seconds, shared), _planned(query, seconds, whole)


def first_plan_s(name: str, query: DrawnQuery) -> float:
    """Return the modelled seconds of a baseline to the first plan that it finds to comply."""
    run = WholeProfiles(query)
    BASELINES[name](run)
    return run.seconds


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
