"""When the clock of a search starts (after its first profiled block), and when a profile ends."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from control.controller.session_searches import nothing_complies
from control.policies.compass.search.camo import Profiled, SearchOptions, Slo
from control.policies.compass.search.profile_store import Block
from control.policies.compass.search.search_run import (
    SILENT_BLOCKS,
    SILENT_S,
    SearchLimits,
    SearchPhase,
    SearchRun,
    used_s,
)
from control.policies.compass.search.search_step import SearchProblem, next_step
from control.policies.compass.search.sequential_test import Estimate, Verdict
from control.problem.problem import PlanError
from schemas.records import ProfileResult
from tests.session_world import a_space

SPACE = a_space()
PROBLEM = SearchProblem(
    search="s", sessions=SPACE, slo=Slo(accuracy=0.9, latency_s=0.5), options=SearchOptions()
)
LIMITS = SearchLimits(deadline_s=5.0, spend_usd=0.0, price=0.2)


def a_block(
    configuration: int, first: int, finished_s: float, search: str = "other"
) -> ProfileResult:
    return ProfileResult(
        pipeline="p", space=SPACE.space.digest, options=SPACE.space.named(configuration),
        sample_set="workload@0", first=first, scores=(0.4, 0.6) * 5,
        seconds={"scan": 0.04, "read": 0.1}, bytes={"scan": 2e4, "read": 200.0}, cached={},
        input_bytes=9e4, spent_s=0.14, device="cpu", profiler="p", finished_s=finished_s,
        search=search,
    )  # fmt: skip


def proposing(run: SearchRun, now: float) -> int:
    """Take the next step; return the configuration to profile."""
    run.proposed(next_step(run.problem), now)
    assert run.phase is SearchPhase.PROFILES
    return run.configuration


def test_blocks_that_were_known_do_not_begin_the_clock() -> None:
    run = SearchRun(PROBLEM, LIMITS, 100.0)
    first = proposing(run, 100.0)
    known: dict[Block, ProfileResult] = {
        (first, at): a_block(first, at, 50.0) for at in range(0, 350, 10)
    }
    assert run.profile(known, 100.1) == ()
    assert run.phase is SearchPhase.PROPOSES
    assert run.first_s is None

    second = proposing(run, 200.0)  # long after the deadline, had the clock run
    assert run.profile(known, 200.0)[0] == (0, 10)
    assert run.first_s is None
    known[second, 0] = a_block(second, 0, 230.0)
    run.profile(known, 230.1)
    assert run.first_s == 230.1
    known |= {(second, at): a_block(second, at, 235.0) for at in range(10, 350, 10)}
    run.profile(known, 235.2)
    run.proposed(next_step(run.problem), 235.2)
    assert run.stopped == "deadline"


@pytest.mark.parametrize(
    ("search", "finished_s", "spent_s", "first_s"),
    [
        ("s", 105.0, 0.84, 107.0),
        ("s", 105.0 - 3600, 0.84, 107.0),  # the profiler's clock is an hour behind
        ("s", 105.0 + 3600, 0.84, 107.0),
        ("other", 105.0, 0.0, None),
        ("other", 105.0 + 3600, 0.0, None),
    ],
)
def test_a_search_counts_its_blocks_from_before_a_restart_whatever_the_profilers_clock(
    search: str, finished_s: float, spent_s: float, first_s: float | None
) -> None:
    """Blocks counted by their times: none if the clock was behind, those of all if it was ahead."""
    run = SearchRun(replace(PROBLEM, search="s+110.000"), LIMITS, 100.0, used_s=3.0)
    at = proposing(run, 110.0)
    run.profile({(at, n): a_block(at, n, finished_s, search) for n in range(0, 60, 10)}, 110.0)
    assert run.profile_s == pytest.approx(spent_s)
    assert run.first_s == first_s


def test_the_blocks_of_a_plan_that_is_profiled_further_count_once() -> None:
    run = SearchRun(PROBLEM, LIMITS, 100.0)
    at = proposing(run, 100.0)
    blocks = {(at, n): a_block(at, n, 100.0, "s") for n in range(0, 350, 10)}
    run.profile(blocks, 100.1)
    spent_s, step = run.profile_s, next_step(run.problem)
    assert spent_s == pytest.approx(6 * 0.14)
    assert step.proposal is not None
    again = replace(step.proposal, configuration=at, prior=Estimate(0.9, 0.01, 1.0))
    run.proposed(replace(step, proposal=again), 100.2)
    assert run.profile(blocks, 100.3) == ()
    assert (run.steps, run.profile_s) == (2, spent_s)


def test_configuration_too_slow_on_every_tier_gets_only_the_minimum_of_samples() -> None:
    problem = replace(PROBLEM, slo=Slo(accuracy=0.5, latency_s=0.002))
    run = SearchRun(problem, LIMITS, 100.0)
    first = proposing(run, 100.0)
    known = {(first, at): a_block(first, at, 50.0) for at in range(0, 50, 10)}
    assert run.profile(known, 100.1) == ()
    (learnt,) = run.problem.learnt
    assert isinstance(learnt, Profiled)
    assert (learnt.tested.verdict, learnt.tested.samples) == (Verdict.UNFIT, 50)


def searched(*scores: float) -> SearchRun:
    """Return a search in which every configuration runs out of samples after ``scores``."""
    run, ended = SearchRun(PROBLEM, LIMITS, 100.0), structs.replace
    while run.phase is not SearchPhase.ENDED:
        configuration = proposing(run, 100.0)
        block = a_block(configuration, 0, 50.0)
        known = {(configuration, 0): ended(block, scores=scores)} | {
            (configuration, at): ended(block, first=at, scores=()) for at in range(10, 60, 10)
        }
        run.profile(known, 100.0)
        step = next_step(run.problem)
        if step.proposal is None:
            run.proposed(step, 100.0)
    return run


@pytest.mark.parametrize(
    ("scores", "accuracy"),
    [
        ((1.0,) * 5, "1.000, of which its samples ensure 0.583 (0.9 wanted)"),
        ((0.0,) * 5, "0.000 (0.9 wanted)"),
        ((0.8,) * 5, "0.800 (0.9 wanted)"),
    ],
)
def test_search_with_five_samples_finds_no_plan_and_the_nearest_gives_the_reason(
    scores: tuple[float, ...], accuracy: str
) -> None:
    run = searched(*scores)
    assert (run.stopped, run.steps, run.plans) == ("space", 8, ())
    said = nothing_complies(PROBLEM.slo, run.nearest, run.stopped)
    assert said == (
        "no plan meets its objectives: every configuration that may comply was profiled; the "
        f"nearest has accuracy {accuracy}, 260 ms (500 ms wanted)"
    )


@pytest.mark.parametrize("scores", [(), (1.0,)])
def test_samples_without_truths_are_reported_in_one_sentence(scores: tuple[float, ...]) -> None:
    wanted = f"the samples end after {len(scores)}; a profile needs two with a truth at least"
    with pytest.raises(PlanError, match=wanted):
        searched(*scores)


@pytest.mark.parametrize(
    ("slo", "wanted"),
    [
        (Slo(accuracy=0.3, latency_s=0.001), " 40 ms (1 ms wanted)"),
        (Slo(accuracy=0.3, latency_s=0.5, usd_per_h=0.0), "0.050 $/h (0 $/h wanted)"),
        (Slo(accuracy=1.0, latency_s=0.001), "accuracy 0.500 (1 wanted), 40 ms (1 ms wanted)"),
    ],
)
def test_slos_that_contradict_each_other_end_with_the_nearest(slo: Slo, wanted: str) -> None:
    run = SearchRun(replace(PROBLEM, slo=slo), LIMITS, 100.0)
    while (step := next_step(run.problem)).proposal is not None:
        run.proposed(step, 100.0)
        at = run.configuration
        run.profile({(at, first): a_block(at, first, 50.0) for first in range(0, 350, 10)}, 100.0)
    run.proposed(step, 100.0)
    assert (run.stopped, run.plans) == ("space", ())
    assert wanted in nothing_complies(slo, run.nearest, run.stopped)


def test_search_reports_the_reason_if_every_configuration_fails() -> None:
    run = SearchRun(PROBLEM, LIMITS, 100.0)
    while (step := next_step(run.problem)).proposal is not None:
        run.proposed(step, 100.0)
        block = structs.replace(a_block(run.configuration, 0, 50.0), scores=(), error="no weights")
        run.profile({(run.configuration, 0): block}, 100.0)
    run.proposed(step, 100.0)
    assert (run.stopped, run.nearest) == ("space", None)
    assert nothing_complies(PROBLEM.slo, run.nearest, run.stopped, run.error) == (
        "no plan meets its objectives: no configuration could be profiled: no weights"
    )


def test_used_time_of_a_search_leaves_out_the_time_in_which_no_profiler_answered() -> None:
    times_s = (30.0, 20.0, 10.0, 10.5)  # results of several profilers need not be in order
    blocks = [a_block(0, 10 * n, at_s) for n, at_s in enumerate(times_s)]
    patience_s = SILENT_S + SILENT_BLOCKS * blocks[0].spent_s
    assert used_s(blocks) == pytest.approx(0.5 + 2 * patience_s)
    assert used_s(blocks[:1]) == used_s([]) == 0.0


def test_a_search_that_only_reprices_ends_with_the_first_plan_that_complies() -> None:
    run = SearchRun(PROBLEM, replace(LIMITS, priced=True), 100.0)
    step = next_step(PROBLEM)
    run.proposed(replace(step, plans=()), 100.0)
    assert run.phase is SearchPhase.PROFILES
    plans: Any = ("the cheapest", "another")
    run.proposed(replace(step, plans=plans), 101.0)
    assert (run.phase, run.stopped, run.plans) == (SearchPhase.ENDED, "priced", plans)


def test_steps_of_a_search_count_up_because_later_ones_void_earlier_requests() -> None:
    run = SearchRun(PROBLEM, LIMITS, 100.0)
    found = []
    for now in (100.0, 101.0, 102.0):
        run.proposed(next_step(PROBLEM), now)
        found.append(run.step)
    assert found == [1, 2, 3]
