"""One step of a search as a function: learnt profiles in, the next proposal out.

The controller holds the profiles that a search has learnt; the planners' process runs the step.
That process keeps the Gaussian processes of the last searches, so that a step learns only new
profiles. Without them it learns all profiles again, with the same result.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from control.policies.compass.search.camo import (
    NearestConfiguration,
    Past,
    Profiled,
    Proposal,
    SearchOptions,
    SessionSearch,
    Slo,
)
from control.policies.compass.search.composition import Deployment
from control.policies.compass.search.placement_factors import model_bytes, session_deployment
from control.policies.compass.search.plan_search import PlanSearch
from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.sequential_test import StopRule
from control.problem.problem import PlanError
from control.problem.session_space import SessionSpace

KEPT = 16  # searches
SEARCHES: Mapping[str, type[SessionSearch]] = {"composed": SessionSearch, "plans": PlanSearch}
Learnt = Profiled | int  # a profile, or a configuration whose operators fail


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """A search and what it has learnt so far. ``search`` names it; ``history`` oldest first;
    ``qps`` are the session's queries/s, 0: not known."""

    search: str
    sessions: SessionSpace
    slo: Slo
    options: SearchOptions
    history: tuple[Past, ...] = ()
    learnt: tuple[Learnt, ...] = ()
    qps: float = 0.0

    def begins(self, other: "SearchProblem") -> bool:
        """Return whether the other problem is this one with at least the same profiles."""
        return (
            (self.search, self.slo, self.options) == (other.search, other.slo, other.options)
            and self.sessions == other.sessions
            and self.learnt == other.learnt[: len(self.learnt)]
            and _digest(self.history) == _digest(other.history)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """The next configuration to profile (None: no other could be better), and the Pareto-optimal
    plans so far, the cheapest first."""

    proposal: Proposal | None
    plans: tuple[Priced, ...]
    nearest: NearestConfiguration | None


_kept: OrderedDict[str, tuple[SearchProblem, SessionSearch]] = OrderedDict()


def next_step(problem: SearchProblem) -> SearchStep:
    """Learn new profiles and propose. Raises ``PlanError`` if no placement can be reached."""
    found = _kept.pop(problem.search, None)
    if found is None or not found[0].begins(problem):
        found = replace(problem, learnt=()), _fresh(problem)
    before, search = found
    for each in problem.learnt[len(before.learnt) :]:
        if isinstance(each, Profiled):
            search.tell(each)
        else:
            search.exclude(each)
    step = SearchStep(
        proposal=search.ask(), plans=cheapest_first(search.plans), nearest=search.nearest
    )
    _kept[problem.search] = problem, search
    if len(_kept) > KEPT:
        _kept.popitem(last=False)
    return step


def cheapest_first(plans: Sequence[Priced]) -> tuple[Priced, ...]:
    """Return the plans by cost, then by descending accuracy, then by latency."""
    order = sorted(plans, key=lambda each: (each.usd_per_h, -each.accuracy, each.latency_s))
    return tuple(order)


def deployment_of(problem: SearchProblem) -> Deployment:
    """Return the tiers and links of a search's session."""
    return session_deployment(problem.sessions, model_bytes(problem.sessions), problem.qps)


def _fresh(problem: SearchProblem) -> SessionSearch:
    search = SEARCHES[problem.options.surrogate]
    return search(deployment_of(problem), problem.slo, problem.options, None, problem.history)


def _digest(history: Sequence[Past]) -> tuple[bytes, ...]:
    return tuple(
        part.tobytes()
        for past in history
        for part in (past.configuration, past.accuracy, past.error, past.seconds)
    )


def search_id(session: str, began_s: float, resumed_s: float | None = None) -> str:
    """Return the id of a search, unique among searches for the session: within a search, later
    steps void earlier ones. One that goes on after a restart has an id of its own."""
    began = f"{session}@{began_s:.3f}"
    return began if resumed_s is None else f"{began}+{resumed_s:.3f}"


def same_search(one: str, other: str) -> bool:
    """Return whether two ids are those of one search, before and after restarts."""
    return one.partition("+")[0] == other.partition("+")[0]


def search_options(options: Mapping[str, Any], population: int | None = None) -> SearchOptions:
    """Return a search's options from those of its policy; raise ``PlanError`` for invalid ones.

    ``population`` is the size of a finite set of samples.
    """
    samples = dict(options["samples"])
    unknown = sorted(set(samples) - {"least", "most"})
    if unknown:
        raise PlanError(f"samples has the key {unknown[0]!r}; it can have least and most")
    usual = StopRule()
    rule = StopRule(
        least=samples.get("least", usual.least),
        most=samples.get("most", usual.most),
        confidence=float(options["confidence"]),
        test=str(options["test"]),
        population=population,
    )
    return SearchOptions(
        committee=str(options["members"]), surrogate=str(options["surrogate"]), rule=rule,
        history=int(options["history"]),
    )  # fmt: skip
