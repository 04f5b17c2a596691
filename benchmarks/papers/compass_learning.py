"""What a search learns, over the modelled benchmark: latencies, committees, noise, kernels.

    python -m benchmarks.papers.compass_learning DATA_DIR --queries 12

Every search runs to its first accepted plan with the adaptive test; queries, samples and modelled
accuracies are those of ``compass_compare.py``. The first table compares two predictors of latency
on the same proposals, which go on to twenty profiles.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.papers.compass_compare import HISTORY, MOST_STEPS, Method, searched, tested_on
from benchmarks.papers.compass_model import Application, DrawnQuery, Floats, applications, draw
from benchmarks.papers.sources import DataError
from control.policies.compass.search.camo import (
    PRIOR_ACCURACY,
    PRIOR_SPREAD,
    Past,
    Profiled,
    SearchOptions,
    SessionSearch,
)
from control.policies.compass.search.composition import StageTimes
from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel
from control.policies.compass.search.plan_search import NOISE, SPREAD
from control.policies.compass.search.sequential_test import StopRule, Tested

SEED = 7
LARGE = 40  # past searches of the largest history
LOOKS = (5, 10, 20)  # profiles
EQUAL_NOISE = 1e-3  # variance, of a mean over some hundred samples
AT_MOST = (49, 50, 100, 200)  # samples


@dataclass(frozen=True, slots=True)
class Learnt:
    """A search to its first plan: the predictor of each step, its tests, and whether the accepted
    configuration truly complies (None: nothing was accepted)."""

    origins: tuple[str, ...]
    tests: tuple[Tested, ...]
    complies: bool | None

    @property
    def switched(self) -> int | None:
        """The first step by the search's own model; None: none was."""
        own = [step for step, origin in enumerate(self.origins, 1) if origin == "own"]
        return own[0] if own else None


class OrderedSearch(SessionSearch):
    """A search whose kernel takes options as ordered: two of them are as far apart as their places
    in the list."""

    def __init__(
        self, query: DrawnQuery, options: SearchOptions, history: Sequence[Past] = ()
    ) -> None:
        super().__init__(query.deployment, query.slo, options, query.app.sent, history)
        codes = thermometer(query.app.space.configurations)
        kernel = Kernel((0.3,), PRIOR_SPREAD**2)
        self._own = GaussianProcess(
            codes, [0] * codes.shape[1], kernel, prior_mean=PRIOR_ACCURACY, fit=True
        )


def thermometer(configurations: np.ndarray) -> np.ndarray:
    """Return a column for each option but the first: 1 where the option is that one or later."""
    columns = [
        column >= option for column in configurations.T for option in range(1, column.max() + 1)
    ]
    return np.stack(columns, axis=1).astype(np.int64)


def to_first_plan(
    query: DrawnQuery, history: Sequence[Past], *, noise: float = 0.0, ordered: bool = False
) -> Learnt:
    """Search until a plan is accepted. ``noise`` replaces the variances of the means; 0: keep."""
    rule = StopRule(most=query.app.most_samples)
    options = SearchOptions(rule=rule, history=len(history))
    search: SessionSearch = (
        OrderedSearch(query, options, history)
        if ordered
        else SessionSearch(query.deployment, query.slo, options, query.app.sent, history)
    )
    origins: list[str] = []
    tests: list[Tested] = []
    while len(tests) < MOST_STEPS and (proposal := search.ask()) is not None:
        c = proposal.configuration
        tested = tested_on(query, c, rule, adaptive=True, prior=proposal.prior)
        origins.append(proposal.origin)
        tests.append(tested)
        if noise:
            tested = replace(tested, estimate=replace(tested.estimate, variance=noise))
        if search.tell(Profiled(configuration=c, tested=tested, seconds=tuple(query.seconds[c]))):
            return Learnt(tuple(origins), tuple(tests), query.compliant(c))
    return Learnt(tuple(origins), tuple(tests), None)


def latency_errors(query: DrawnQuery) -> Mapping[tuple[str, int], float]:
    """Return the mean error of the logarithm of all plans' latencies, by predictor and number of
    profiles, on the proposals of one search."""
    app, rule = query.app, StopRule(most=query.app.most_samples)
    space, true = app.space, query.latency
    codes = np.hstack(
        [
            np.repeat(space.configurations, space.placement_count, axis=0),
            np.tile(space.placements, (space.configuration_count, 1)),
        ]
    )
    groups = [0] * space.configurations.shape[1] + [1] * space.placements.shape[1]
    prior = float(np.log(query.slo.latency_s))
    plans = GaussianProcess(codes, groups, Kernel((0.3, 0.3), SPREAD**2), prior, fit=True)
    stages = StageTimes(space)
    options = SearchOptions(rule=rule)
    search = SessionSearch(query.deployment, query.slo, options, app.sent)
    found: dict[tuple[str, int], float] = {}
    for step in range(1, LOOKS[-1] + 1):
        if (proposal := search.ask()) is None:
            break
        c, at = proposal.configuration, proposal.placement
        seconds = tuple(query.seconds[c])
        tested = tested_on(query, c, rule, adaptive=True, prior=proposal.prior)
        search.tell(Profiled(configuration=c, tested=tested, seconds=seconds))
        stages.tell(c, seconds)
        plans.tell(c * space.placement_count + at, float(np.log(true[c, at])), NOISE)
        if step in LOOKS:
            composed = query.deployment.latency(stages.seconds(), app.sent)
            whole = np.exp(plans.mean.reshape(true.shape))
            for name, predicted in (("composed", composed), ("plans", whole)):
                found[name, step] = _error(predicted, true)
    return found


def _error(predicted: Floats, true: Floats) -> float:
    fits = np.isfinite(true)
    return float(np.abs(np.log(predicted[fits] / true[fits])).mean())


def wrong(query: DrawnQuery, history: Sequence[Past], by: float) -> list[Past]:
    """Return the history with the accuracies of every other search wrong by ``by``, up or down."""
    rng = np.random.default_rng([query.number, SEED])
    return [
        replace(past, accuracy=past.accuracy * (1 + by * rng.choice([-1, 1], len(past.accuracy))))
        if number % 2
        else past
        for number, past in enumerate(history)
    ]


# ---------------------------------------------------------------------- tables


def tables(apps: Mapping[str, Application], queries: int) -> Iterator[str]:
    """Yield Markdown tables, a row for each application."""
    errors, committees, tests, noises = ([] for _ in range(4))
    for app in apps.values():
        drawn = draw(app, LARGE + queries, SEED)
        rule = StopRule(most=app.most_samples)
        large = [searched(query, Method(), (), rule)[1] for query in drawn[:LARGE]]
        usual, own = large[-HISTORY:], drawn[LARGE:]
        errors.append([app.name, *_errors([latency_errors(query) for query in own])])
        alone = [to_first_plan(query, ()) for query in own]
        with_usual = [to_first_plan(query, usual) for query in own]
        histories = (
            alone,
            *([to_first_plan(q, large[-n:]) for q in own] for n in (1, 3)),
            with_usual,
            [to_first_plan(query, large) for query in own],
            *([to_first_plan(q, wrong(q, usual, by)) for q in own] for by in (0.3, 0.5)),
        )
        committees.append([app.name, *map(_steps, histories), _switches(with_usual)])
        tests.append([app.name, *_samples(with_usual, app.most_samples)])
        kinds = (
            alone,
            [to_first_plan(query, (), noise=EQUAL_NOISE) for query in own],
            [to_first_plan(query, (), ordered=True) for query in own],
        )
        noises.append([app.name, *map(_steps_and_false, kinds)])
        print(f"played: {app.name}", file=sys.stderr)
    by_step = [f"{name}, {step}" for name in ("composed", "plans") for step in LOOKS]
    yield _table(["application", *by_step], errors)
    members = ["none", "1", "3", f"{HISTORY}", f"{LARGE}", "half wrong by 30 %", "by 50 %"]
    yield _table(["application", *members, f"step of the switch, of {HISTORY}"], committees)
    yield _table(["application", *(f"up to {n}" for n in AT_MOST), "the cap", "mean"], tests)
    yield _table(["application", "usual", "equal noise", "ordered options"], noises)


def _errors(found: Sequence[Mapping[tuple[str, int], float]]) -> Iterator[str]:
    for name in ("composed", "plans"):
        for step in LOOKS:
            known = [each[name, step] for each in found if (name, step) in each]
            yield f"{np.mean(known):.2f}" if known else "-"


def _steps(found: Sequence[Learnt]) -> str:
    return f"{np.mean([len(each.tests) for each in found]):.1f}"


def _steps_and_false(found: Sequence[Learnt]) -> str:
    return f"{_steps(found)}; {sum(each.complies is False for each in found)}"


def _switches(found: Sequence[Learnt]) -> str:
    steps = [each.switched for each in found if each.switched is not None]
    return f"{np.mean(steps):.1f} in {len(steps)} of {len(found)}" if steps else "none"


def _samples(found: Sequence[Learnt], most: int) -> Iterator[str]:
    taken = np.array([test.samples for each in found for test in each.tests])
    for upto in AT_MOST:
        yield f"{100 * np.mean(taken <= upto):.0f} %"
    yield f"{100 * np.mean(taken == most):.0f} % of {most}"
    yield f"{taken.mean():.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--queries", type=int, default=12, help="per application (12)")
    options = parser.parse_args(arguments)
    try:
        apps = applications(options.data)
    except DataError as error:
        sys.exit(f"benchmarks.papers.compass_learning: {error}")
    for each in tables(apps, options.queries):
        print(each)


if __name__ == "__main__":
    main()
