"""A search step is a function of the results so far, independent of process memory."""

from dataclasses import replace

import pytest

from control.policies.compass.search import search_step
from control.policies.compass.search.camo import Profiled, SearchOptions, Slo
from control.policies.compass.search.search_step import (
    SEARCHES,
    SearchProblem,
    next_step,
    search_options,
)
from control.policies.compass.search.sequential_test import Estimate, Verdict
from control.policies.compass.search.sequential_test import Tested as Outcome
from control.problem.problem import PlanError
from tests.session_world import a_space

PROBLEM = SearchProblem(
    search="a", sessions=a_space(), slo=Slo(accuracy=0.9, latency_s=0.5), options=SearchOptions()
)


def learnt(configuration: int) -> Profiled:
    accuracy = 0.95 if configuration % 4 > 1 else 0.7
    verdict = Verdict.ACCEPTED if accuracy >= 0.9 else Verdict.REJECTED
    return Profiled(
        configuration=configuration,
        tested=Outcome(verdict, 50, 0.99, Estimate(accuracy, 1e-3, 49.0)),
        seconds=(0.004, 0.01),
        sent=(9e3, 2e3, 20.0),
    )


@pytest.mark.parametrize("surrogate", SEARCHES)
def test_a_process_without_memory_makes_the_same_steps(surrogate: str) -> None:
    problem = replace(PROBLEM, options=SearchOptions(surrogate=surrogate))
    for _ in range(8):
        step = next_step(problem)
        search_step._kept.clear()
        assert next_step(problem) == step
        if step.proposal is None:
            break
        problem = replace(problem, learnt=(*problem.learnt, learnt(step.proposal.configuration)))
    assert step.plans
    assert step.plans[0].usd_per_h == min(plan.usd_per_h for plan in step.plans)


def test_another_search_under_the_same_name_begins_anew() -> None:
    first = next_step(PROBLEM).proposal
    assert first is not None
    next_step(replace(PROBLEM, learnt=(first.configuration,)))
    other = replace(PROBLEM, slo=Slo(accuracy=0.5, latency_s=0.5))
    again = next_step(other)
    search_step._kept.clear()
    assert next_step(other) == again


def test_a_configuration_whose_operators_fail_is_not_proposed_again() -> None:
    problem = PROBLEM
    for _ in range(8):
        proposal = next_step(problem).proposal
        assert proposal is not None
        assert proposal.configuration not in problem.learnt
        problem = replace(problem, learnt=(*problem.learnt, proposal.configuration))
    assert next_step(problem).proposal is None


def test_models_of_a_plan_fit_the_memory_of_its_devices() -> None:
    """Live, models of any size were placed on any tier."""
    tiers = dict(PROBLEM.sessions.tiers)
    tiers["depot"] = replace(tiers["depot"], memory_bytes=4e9)
    tiers["cloud"] = replace(tiers["cloud"], memory_bytes=8e9)
    sessions = replace(PROBLEM.sessions, tiers=tiers, memory={"read/v": 1e9, "read/w": 5e9})
    problem = replace(PROBLEM, sessions=sessions)
    while (proposal := next_step(problem).proposal) is not None:
        problem = replace(problem, learnt=(*problem.learnt, learnt(proposal.configuration)))
    plans = next_step(problem).plans
    large = [p for p in plans if sessions.space.named(p.configuration)["read.variant"] == "w"]
    assert large
    for plan in large:
        assert sessions.space.placed(plan.placement)["read"] == "cloud"
        assert plan.occupied[1] == 3  # 5 of 8 GB


def test_invalid_options_are_refused() -> None:
    options = {"confidence": 0.99, "test": "one-sided", "members": "better", "history": 12,
               "surrogate": "composed"}  # fmt: skip
    with pytest.raises(PlanError, match="it can have least and most"):
        search_options({**options, "samples": {"fewest": 3}})
