"""When the clock of a search begins, once a profiler has run a block for it, and when a profile
ends."""

from dataclasses import replace

from control.policies.compass.search.camo import Profiled, SearchOptions, Slo
from control.policies.compass.search.profile_store import Block
from control.policies.compass.search.search_run import SearchLimits, SearchPhase, SearchRun
from control.policies.compass.search.search_step import SearchProblem, next_step
from control.policies.compass.search.sequential_test import Verdict
from schemas.records import ProfileResult
from tests.session_world import a_space

SPACE = a_space()
PROBLEM = SearchProblem(
    search="s", sessions=SPACE, slo=Slo(accuracy=0.9, latency_s=0.5), options=SearchOptions()
)
LIMITS = SearchLimits(deadline_s=5.0, spend_usd=0.0, price=0.2)


def a_block(configuration: int, first: int, finished_s: float) -> ProfileResult:
    return ProfileResult(
        pipeline="p", space=SPACE.space.digest, options=SPACE.space.named(configuration),
        sample_set="workload@0", first=first, scores=(0.4, 0.6) * 5,
        seconds={"scan": 0.04, "read": 0.1}, bytes={"scan": 2e4, "read": 200.0}, cached={},
        input_bytes=9e4, spent_s=0.14, device="cpu", profiler="p", finished_s=finished_s,
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


def test_a_configuration_that_is_too_slow_on_every_tier_is_tested_no_further_than_the_least() -> (
    None
):
    problem = replace(PROBLEM, slo=Slo(accuracy=0.5, latency_s=0.002))
    run = SearchRun(problem, LIMITS, 100.0)
    first = proposing(run, 100.0)
    known = {(first, at): a_block(first, at, 50.0) for at in range(0, 50, 10)}
    assert run.profile(known, 100.1) == ()
    (learnt,) = run.problem.learnt
    assert isinstance(learnt, Profiled)
    assert (learnt.tested.verdict, learnt.tested.samples) == (Verdict.UNFIT, 50)
