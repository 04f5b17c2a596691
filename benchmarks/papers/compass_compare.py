"""Compare searches over the modelled benchmark: ours, its ablations, and the papers' baselines.

Time is modelled: samples * uncached A100 seconds / the application's parallelism, plus 0.04 s per
step, the paper's time for a proposal. Baselines profile whole pipelines on the application's fixed
number of samples, and accept by the mean. Every method has the same queries and samples.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sequential_tests import run_test

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does, before NumPy's import

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks import scheduling
from benchmarks.papers.compass_model import Application, DrawnQuery, applications, draw
from benchmarks.papers.compass_page import page
from benchmarks.papers.sources import DataError
from control.policies.compass.search.camo import Past, Profiled, SearchOptions
from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel
from control.policies.compass.search.search_step import SEARCHES
from control.policies.compass.search.sequential_test import (
    Estimate,
    StopRule,
    Tested,
    Verdict,
)

Floats = NDArray[np.float64]

STEP_S = 0.04
HISTORY = 12  # first queries, which form the history of the others
MOST_STEPS = 150
RANDOM_STARTS = 5
LIMITS_S = {True: 120.0, False: 36_000.0}  # of interactive searches, and of others


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One query searched by one method: modelled seconds and steps to the first accepted plan."""

    app: str
    method: str
    query: int
    seconds: float
    steps: int
    found: bool
    false: bool
    propose_ms: float
    samples: float  # mean share of the fixed number


@dataclass(frozen=True, slots=True)
class Method:
    """Our search, or an ablation of it."""

    history: bool = False
    adaptive: bool = True
    prefix: bool = True
    test: str = "one-sided"
    members: str = "better"
    surrogate: str = "composed"


METHODS: Mapping[str, Method] = {
    "compass, no history": Method(),
    "compass, no history, paper's latency": Method(surrogate="plans"),
    "compass": Method(history=True),
    "compass, fixed samples": Method(history=True, adaptive=False),
    "compass, no prefix reuse": Method(history=True, prefix=False),
    "compass, neither": Method(history=True, adaptive=False, prefix=False),
    "compass, two-sided test": Method(history=True, test="two-sided"),
    "compass, top-k members": Method(history=True, members="top-k"),
    "circinus": Method(history=True, test="two-sided", members="top-k"),
}


def compare(data: Path, out: Path, queries: int, again: bool) -> str:
    """Run the searches, unless ``again``, and keep the results in OUT_DIR; return the page."""
    kept = out / "comparison.json"
    if not again:
        searches = [asdict(row) for row in played(data, queries)]
        schedules = [asdict(row) for row in scheduling.rows(scheduling.SESSIONS, scheduling.SEEDS)]
        results = {"searches": searches, "schedules": schedules}
        kept.write_text(json.dumps(results), encoding="utf-8")
    try:
        read = json.loads(kept.read_text(encoding="utf-8"))
        return page(
            [Row(**row) for row in read["searches"]],
            [scheduling.ScheduleRow(**row) for row in read["schedules"]],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{kept} holds no comparison ({error}); leave out --again") from error


def played(data: Path, queries: int) -> Iterator[Row]:
    """Run every method on every query except those of the history."""
    for app in applications(data).values():
        drawn = draw(app, HISTORY + queries, 7)
        rule = StopRule(most=app.most_samples)
        history = [searched(query, Method(), (), rule)[1] for query in drawn[:HISTORY]]
        for query in drawn[HISTORY:]:
            for name, method in METHODS.items():
                past = history if method.history else ()
                yield searched(query, method, past, rule, name)[0]
            for name in BASELINES:
                yield run_baseline(name, query).row(name)
        print(f"played: {app.name}", file=sys.stderr)


# ---------------------------------------------------------------------- ours


def searched(
    query: DrawnQuery, method: Method, history: Sequence[Past], rule: StopRule, name: str = ""
) -> tuple[Row, Past]:
    """Search to the first accepted plan; return its row, and its observations as history."""
    app = query.app
    rule = StopRule(most=rule.most, test=method.test)
    options = SearchOptions(committee=method.members, surrogate=method.surrogate, rule=rule)
    search = SEARCHES[method.surrogate](query.deployment, query.slo, options, app.sent, history)
    run = Run(query)
    while run.going:
        began = time.process_time()
        proposal = search.ask()
        run.propose_s.append(time.process_time() - began)
        if proposal is None:
            break
        c = proposal.configuration
        tested = tested_on(query, c, rule, adaptive=method.adaptive, prior=proposal.prior)
        seconds = tuple(query.seconds[c].tolist())
        added = search.tell(Profiled(configuration=c, tested=tested, seconds=seconds))
        run.profile(c, tested, method.prefix)
        if added:
            run.accept(c)
    return run.row(name), run.past()


def tested_on(
    query: DrawnQuery,
    configuration: int,
    rule: StopRule,
    *,
    adaptive: bool,
    prior: Estimate | None,
) -> Tested:
    scores = query.scores(configuration, rule.most)
    if not adaptive:
        return _fixed(scores, query)
    return run_test(scores, query.slo.accuracy, rule, prior=prior)


def _fixed(scores: Floats, query: DrawnQuery) -> Tested:
    mean = float(scores.mean())
    verdict = Verdict.ACCEPTED if mean >= query.slo.accuracy else Verdict.REJECTED
    estimate = Estimate(mean, float(scores.var()) / len(scores), len(scores) - 1.0)
    return Tested(verdict, len(scores), 1.0, estimate)


def ended(app: Application, steps: int, seconds: float) -> bool:
    """Return whether a search for one plan gives up after so many steps and seconds."""
    return steps >= MOST_STEPS or seconds >= LIMITS_S[app.parallelism > 1]


class Run:
    """Modelled time and profiles of one search."""

    def __init__(self, query: DrawnQuery) -> None:
        self.query = query
        self.seconds, self.steps = 0.0, 0
        self.accepted: int | None = None
        self.propose_s: list[float] = []
        self._tests: list[tuple[int, Tested]] = []
        self._cached: dict[tuple[int, int], int] = {}

    @property
    def going(self) -> bool:
        return self.accepted is None and not ended(self.query.app, self.steps, self.seconds)

    def profile(self, configuration: int, tested: Tested, reuse: bool) -> None:
        """Add the time of a profile; with reuse, only of stages without a cached prefix."""
        app, samples = self.query.app, tested.samples
        prefixes = app.space.prefixes[configuration].tolist()
        for stage, prefix in enumerate(prefixes):
            known = self._cached.get((stage, prefix), 0) if reuse else 0
            more = max(0, samples - known)
            self.seconds += more * self.query.seconds[configuration, stage] / app.parallelism
            self._cached[stage, prefix] = max(known, samples)
        self.seconds += STEP_S
        self.steps += 1
        self._tests.append((configuration, tested))

    def accept(self, configuration: int) -> None:
        """Accept a plan, which ends the search."""
        self.accepted = configuration

    def past(self, profiles: int | None = None) -> Past:
        """Return the observations of this search, or of its first ``profiles``, as history of a
        later one."""
        tests = self._tests[:profiles]
        at = np.array([c for c, _ in tests], dtype=np.int64)
        means = np.array([test.estimate.mean for _, test in tests])
        errors = np.array([test.estimate.variance for _, test in tests])
        return Past(at, means, errors, self.query.seconds[at])

    def row(self, method: str) -> Row:
        """Return the query's row."""
        found = self.accepted is not None
        most = self.query.app.most_samples
        return Row(
            app=self.query.app.name,
            method=method,
            query=self.query.number,
            seconds=self.seconds,
            steps=self.steps,
            found=found,
            false=found and not self.query.compliant(self.accepted or 0),
            propose_ms=1e3 * float(np.mean(self.propose_s or [0.0])),
            samples=float(np.mean([t.samples for _, t in self._tests] or [0])) / most,
        )


# ---------------------------------------------------------------------- baselines


class WholeProfiles(Run):
    """A baseline's search: fixed samples, whole pipelines, plans one by one."""

    reuses = False  # the outputs of stages that were profiled before

    def __init__(self, query: DrawnQuery) -> None:
        super().__init__(query)
        self.placements = query.app.space.placement_count
        self.complying: list[tuple[int, int]] = []  # configuration, placement

    def utility(self, plan: int) -> float:
        """Profile a plan; return VideoStorm's and Vulcan's utility of it."""
        c, p = divmod(plan, self.placements)
        tested = self.tested(c)
        self.profile(c, tested, self.reuses)
        slo = self.query.slo
        gain = tested.estimate.mean - slo.accuracy
        ratio = float(self.query.latency[c, p]) / slo.latency_s
        if tested.verdict is Verdict.ACCEPTED and ratio <= 1:
            self.complying.append((c, p))
            self.accept(c)
        late = -1.5 * min(3.0, ratio - 1) if ratio > 1 else 0.25 * (1 - ratio)
        return 3 * min(gain, 0) + 0.5 * max(gain, 0) + late

    def tested(self, configuration: int) -> Tested:
        """Return the test of a configuration, which accepts by the mean."""
        return _fixed(self.query.scores(configuration, self.query.app.most_samples), self.query)


def _feasible(query: DrawnQuery) -> NDArray[np.int64]:
    return np.flatnonzero(query.deployment.fits.ravel())


Steps = Iterator[None]  # of a baseline: each profiles one plan


def _random(run: WholeProfiles) -> Steps:
    query = run.query
    order = np.random.default_rng([query.number, 1]).permutation(_feasible(query))
    for plan in order.tolist():
        run.utility(plan)
        yield


def _videostorm(run: WholeProfiles) -> Steps:
    """Search by first-improvement hill climbing over single changes, with random restarts."""
    query, rng = run.query, np.random.default_rng([run.query.number, 2])
    feasible = _feasible(query)
    codes = _codes(query)
    seen: dict[int, float] = {}

    def value(plan: int) -> Generator[None, None, float]:
        if plan not in seen:
            seen[plan] = run.utility(plan)
            yield
        return seen[plan]

    while len(seen) < len(feasible):
        here = int(rng.choice(feasible))
        best = yield from value(here)
        improved = True
        while improved:
            improved = False
            near = feasible[(codes[feasible] != codes[here]).sum(axis=1) == 1]
            for plan in rng.permutation(near).tolist():
                if (yield from value(plan)) > best:
                    here, best, improved = plan, seen[plan], True
                    break


def _vulcan(run: WholeProfiles) -> Steps:
    """Search by expected improvement of the same utility, with five random starts."""
    query, rng = run.query, np.random.default_rng([run.query.number, 3])
    feasible = _feasible(query)
    codes = _codes(query)[feasible]
    groups = [0] * query.app.space.configurations.shape[1]
    groups += [1] * query.app.space.placements.shape[1]
    process = GaussianProcess(codes, groups, Kernel((0.3, 0.3), 0.5), prior_mean=-0.5, fit=True)
    open_ones = np.ones(len(feasible), dtype=bool)
    best = -np.inf
    while open_ones.any():
        if run.steps < RANDOM_STARTS:
            at = int(rng.choice(np.flatnonzero(open_ones)))
        else:
            score = (process.mean - best) / process.sd
            density = np.exp(-0.5 * score**2) / np.sqrt(2 * np.pi)
            gain = (process.mean - best) * ndtr(score) + process.sd * density
            at = int(np.argmax(np.where(open_ones, gain, -np.inf)))
        open_ones[at] = False
        value = run.utility(int(feasible[at]))
        yield
        best = max(best, value)
        process.tell(at, value, 1e-3)


def _codes(query: DrawnQuery) -> NDArray[np.int64]:
    space = query.app.space
    plans = np.arange(space.plans)
    return np.hstack(
        [
            space.configurations[plans // space.placement_count],
            space.placements[plans % space.placement_count],
        ]
    )


BASELINES: Mapping[str, Callable[[WholeProfiles], Steps]] = {
    "random": _random,
    "videostorm-like": _videostorm,
    "vulcan-like": _vulcan,
}


def run_baseline(name: str, query: DrawnQuery) -> WholeProfiles:
    """Search by a baseline to the first plan that it finds to comply."""
    run = WholeProfiles(query)
    for _ in BASELINES[name](run):
        if not run.going:
            break
    return run
