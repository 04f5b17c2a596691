"""Value iteration, policy iteration and enumeration find the same best table, and its predicted
figures match one worker simulated query by query."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.selection_reference import Dense, dense, iterate, shares
from benchmarks.selection_worker import decisions, follow, with_increments
from control.policies.ramsis.mdp import (
    DecisionProcess,
    Setting,
    fixed_levels,
    model_levels,
    whole_queue,
)
from control.policies.ramsis.mdp_solver import (
    SOLVERS,
    Objective,
    QueueValue,
    Solution,
    queue_value,
    stationary,
)
from control.policies.ramsis.variable_batching import part_of_queue
from tests.selection_world import BEST, FAST, GOOD, USUALLY_QUICK, a_setting

LATE = (0.0, 2.0)  # prices of a late query


def tiny_settings() -> list[Setting]:
    """Return settings with few states and choices, so that all tables can be enumerated."""
    two = tuple(type(m)(m.name, m.accuracy, m.latency_s[:2]) for m in (FAST, GOOD, BEST))
    return [
        a_setting(qps * workers, workers, two, levels)
        for qps in (4.0, 25.0, 60.0)
        for workers in (1, 3)
        for levels in (fixed_levels(0.1, 4), model_levels(0.1, two[:2]))
    ]


def mean_reward(plain: Dense, choice: np.ndarray, objective: Objective) -> float:
    """Return the mean objective of a table, per decision or per query."""
    at = np.arange(len(choice))
    reward = np.where(plain.on_time[at, choice], plain.accuracy[choice], -objective.price)
    weight = shares(plain, choice) * (plain.served if objective.per == "query" else 1.0)
    return float((weight * reward).sum() / weight.sum())


def every_table(plain: Dense) -> list[np.ndarray]:
    options = [np.flatnonzero(row) for row in plain.allowed]
    return [np.array(chosen) for chosen in product(*options)]


def flat(setting: Setting, solution: Solution) -> np.ndarray:
    """Return a solution's choices in the state order of the plain process."""
    return np.append(solution.choice[: setting.longest].ravel(), solution.choice[-1, 0])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("per", ["decision", "query"])
@pytest.mark.parametrize("price", LATE)
def test_no_other_table_is_worth_more(solver: str, per: str, price: float) -> None:
    objective = Objective(per=per, price=price)
    for setting in tiny_settings():
        plain = dense(setting)
        found = SOLVERS[solver](whole_queue(setting), objective, None)
        best = max(mean_reward(plain, table, objective) for table in every_table(plain))
        assert mean_reward(plain, flat(setting, found), objective) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("per", ["decision", "query"])
@pytest.mark.parametrize("qps", [10.0, 100.0, 240.0, 600.0])
def test_value_and_policy_iteration_find_the_same_table(per: str, qps: float) -> None:
    process = whole_queue(a_setting(qps, 6, levels=fixed_levels(0.1, 40)))
    objective = Objective(per=per)
    by_values = SOLVERS["value-iteration"](process, objective, None)
    by_policy = SOLVERS["policy-iteration"](process, objective, None)
    met = by_values.mass > 1e-9
    assert by_values.choice[met].tolist() == by_policy.choice[met].tolist()
    assert by_values.worth.accuracy == pytest.approx(by_policy.worth.accuracy, abs=1e-9)
    assert by_values.worth.violation == pytest.approx(by_policy.worth.violation, abs=1e-9)


@pytest.mark.parametrize("qps", [10.0, 100.0, 240.0, 600.0])
def test_the_per_decision_table_matches_a_hundred_plain_sweeps(qps: float) -> None:
    setting = a_setting(qps, 6, levels=fixed_levels(0.1, 20))
    found = SOLVERS["value-iteration"](whole_queue(setting), Objective(per="decision"), None)
    assert flat(setting, found).tolist() == iterate(dense(setting)).tolist()


@pytest.mark.parametrize("qps", [10.0, 100.0, 240.0])
def test_shares_of_the_states_are_those_of_the_plain_process(qps: float) -> None:
    setting = a_setting(qps, 6, levels=fixed_levels(0.1, 20))
    plain, process = dense(setting), whole_queue(setting)
    found = SOLVERS["value-iteration"](process, Objective(per="decision"), None)
    mass = stationary(process, found.choice)
    assert np.append(mass[:-1].ravel(), mass[-1, 0]) == pytest.approx(
        shares(plain, flat(setting, found)), abs=1e-11
    )


@pytest.mark.parametrize(
    ("models", "qps", "dispersion"),
    [
        *(((FAST, GOOD, BEST), *rest) for rest in
          ((6.0, 1.0), (14.0, 1.0), (20.0, 1.0), (6.0, 4.0), (14.0, 4.0))),
        # A model whose latency is mostly below its quantile.
        ((FAST, USUALLY_QUICK, BEST), 14.0, 1.0), ((FAST, USUALLY_QUICK, BEST), 60.0, 1.0),
    ],
)  # fmt: skip
def test_a_single_worker_meets_the_prediction_of_its_table(
    models: tuple[Any, ...], qps: float, dispersion: float
) -> None:
    # With one worker and levels at the latencies, the process is exact; no offset is estimated.
    setting = a_setting(qps, 1, models, model_levels(0.1, models), dispersion)
    worth, accuracy, violation = predicted_and_seen(setting, whole_queue(setting))
    assert within(worth.accuracy, accuracy)
    assert within(worth.violation, violation)


@pytest.mark.parametrize("qps", [6.0, 20.0, 45.0])
def test_a_worker_with_partial_batches_does_better_than_the_prediction_of_its_table(
    qps: float,
) -> None:
    # Exact except for the levels: slack is rounded down again for the rest of a queue.
    setting = a_setting(qps, 1, levels=fixed_levels(0.1, 200))
    worth, accuracy, violation = predicted_and_seen(
        setting, part_of_queue(setting), "policy-iteration"
    )
    assert within(worth.accuracy, accuracy, slack=3e-3)
    assert within(worth.violation, violation, slack=2e-2)
    assert worth.violation >= min(violation)


@pytest.mark.parametrize("qps", [30.0, 70.0, 90.0])
def test_a_worker_among_several_meets_the_prediction_of_its_table_up_to_level_rounding(
    qps: float,
) -> None:
    setting = a_setting(qps, 5, levels=fixed_levels(0.1, 200))
    worth, accuracy, violation = predicted_and_seen(setting, whole_queue(setting))
    # Slack is rounded down by up to 1/200 of the SLO, so the prediction is slightly pessimistic.
    assert within(worth.accuracy, accuracy, slack=2e-3)
    assert within(worth.violation, violation, slack=2e-3)


def predicted_and_seen(
    setting: Setting, process: DecisionProcess, solver: str = "value-iteration"
) -> tuple[QueueValue, list[float], list[float]]:
    """Return what the best table predicts, and the accuracy and violation of ten runs, with
    different arrivals per run."""
    found = SOLVERS[solver](process, Objective(per="query"), None)
    table = decisions(process, found.choice)
    chances = [np.random.default_rng((5, run)) for run in range(10)]
    seen = [follow(setting, *table, with_increments(setting, 15_000, rng)) for rng in chances]
    return found.worth, [accuracy for accuracy, _ in seen], [violation for _, violation in seen]


def within(promised: float, seen: list[float], slack: float = 0.0) -> bool:
    """Return whether the prediction lies in a 99.9 % interval around the mean of the runs."""
    half = 4.8 * float(np.std(seen, ddof=1)) / len(seen) ** 0.5  # Student's t, 9 degrees
    return abs(float(np.mean(seen)) - promised) <= half + slack


def test_the_worth_of_a_table_is_weighted_by_queries() -> None:
    setting = a_setting(30.0, 3)
    process = whole_queue(setting)
    found = SOLVERS["policy-iteration"](process, Objective(per="query"), None)
    assert found.worth == queue_value(process, found.choice, found.mass)
    assert 0 <= found.worth.violation <= 1
