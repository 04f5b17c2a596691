"""A test in blocks: the verdict is that of the samples in order, whatever the order of blocks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sequential_tests import run_test
from control.policies.compass.search.profile_run import ProfileRun, blocks
from control.policies.compass.search.sequential_test import StopRule, Verdict
from control.problem.problem import PlanError

RULE = StopRule(least=20, most=95)


@given(st.integers(0, 10**6), st.floats(0.6, 1.0), st.randoms(use_true_random=False))
def test_blocks_in_any_order_give_the_verdict_of_the_whole_series(
    seed: int, mean: float, chance: object
) -> None:
    scores = (np.random.default_rng(seed).random(RULE.most) < mean).astype(float)
    run = ProfileRun(0.8, RULE)
    while wanted := list(run.wanted(ahead=2)):
        chance.shuffle(wanted)  # type: ignore[attr-defined]
        for first, upto in wanted:
            run.add(first, scores[first:upto])
    assert run.tested == run_test(scores, 0.8, RULE)


def test_only_missing_blocks_up_to_the_next_look_are_wanted() -> None:
    run = ProfileRun(0.8, RULE)
    assert run.wanted() == ((0, 10), (10, 20))
    run.add(10, [1.0] * 10)
    assert run.wanted(ahead=1) == ((0, 10), (20, 30))
    assert blocks(RULE, 95)[-1] == (90, 100)


def test_a_test_of_more_samples_goes_on_behind_the_last_block_of_one_of_fewer() -> None:
    """After a policy's samples.most was raised from 95, every profile still ended at 95."""
    halves = [0.0, 1.0] * 50
    short, long = ProfileRun(0.5, RULE), ProfileRun(0.5, replace(RULE, most=200))
    for first, upto in blocks(RULE, RULE.most):
        short.add(first, halves[first:upto])
        long.add(first, halves[first:upto])
    assert (short.wanted(), short.tested.samples) == ((), 95)
    assert (long.wanted(), long.tested.samples) == (((100, 110),), 100)


def test_a_block_far_below_the_floor_ends_the_profile() -> None:
    run = ProfileRun(0.8, RULE)
    run.add(10, [1.0] * 10)  # a later block that arrived first
    run.add(0, [0.0] * 10)
    assert (run.tested.verdict, run.tested.samples) == (Verdict.REJECTED, 10)
    assert run.wanted(ahead=1) == ()


def test_samples_that_end_at_an_undecided_look_are_decided_there() -> None:
    run = ProfileRun(0.5, RULE)
    halves = [0.0, 1.0] * (RULE.look // 2)
    for first in range(0, RULE.least, RULE.look):
        run.add(first, halves)
    assert run.tested.verdict is Verdict.OPEN
    run.add(RULE.least, [])
    assert run.tested.verdict is not Verdict.OPEN
    assert run.tested.samples == RULE.least
    assert run.wanted(1) == ()


def test_a_short_block_is_the_end_of_the_samples() -> None:
    run = ProfileRun(0.5, RULE)
    run.add(0, [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert run.tested.verdict is Verdict.ACCEPTED
    assert run.tested.samples == 7
    assert run.wanted() == ()
    with pytest.raises(PlanError, match="end after 1"):
        ProfileRun(0.5, RULE).add(0, [1.0])
