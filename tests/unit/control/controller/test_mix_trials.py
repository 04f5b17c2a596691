"""Trials of mixes that may beat the rented one: their order, start and end."""

from dataclasses import replace

import numpy as np

from control.controller.mix_trials import FIRST_JOB, WITHIN_S, MixTrials
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.mix_play import MixProblem
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.solvers import MIX
from headrace.planning.rentable import query_draws
from schemas.effects import Failed, Solve, Solved
from schemas.pipeline import Policy

POOL = Pool(
    types=(PricedType("fast", 0.5), PricedType("slow", 0.1)),
    sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,), (0.25,)), largest_s=(0.1, 0.25),
    largest_size=1, slo_s=1.0,
)  # fmt: skip
POLICY = Policy(name="kairos", kind="kairos")
MIXES = ((1, 0), (0, 1), (1, 1))


def trials() -> MixTrials:
    made = MixTrials(query_draws(np.random.default_rng(0)))
    made.change(POOL, POLICY)
    made.ask(MIXES, 0.0)
    return made


def begun(made: MixTrials, now: float) -> Solve:
    (effect,) = made.next(now)
    assert isinstance(effect, Solve)
    assert effect.solver == MIX
    return effect


def mix_of(effect: Solve) -> tuple[int, ...]:
    assert isinstance(effect.problem, MixProblem)
    return effect.problem.mix


def test_mixes_are_played_one_at_a_time_in_order() -> None:
    made = trials()
    for at, mix in enumerate(MIXES):
        effect = begun(made, float(at))
        assert mix_of(effect) == mix
        assert made.next(float(at)) == []  # one at a time
        assert made.ended(Solved(effect.job, 5.0 + at))
    assert made.next(3.0) == []
    assert made.played == {(1, 0): 5.0, (0, 1): 6.0, (1, 1): 7.0}


def test_played_results_are_discarded_when_the_latency_spread_changes() -> None:
    made = trials()
    made.ended(Solved(begun(made, 0.0).job, 5.0))
    made.change(replace(POOL, worst_s=((0.1,), (0.4,))), POLICY)
    assert made.played == {}


def test_after_twenty_seconds_the_others_are_given_up() -> None:
    made = trials()
    effect = begun(made, 0.0)
    made.ended(Solved(effect.job, 5.0))
    assert made.next(WITHIN_S) == []
    assert made.played == {(1, 0): 5.0, (0, 1): None, (1, 1): None}


def test_changed_request_replaces_the_pending_one_with_its_own_time_limit() -> None:
    made = trials()
    first = begun(made, 0.0)
    made.ask(((2, 0), (1, 0)), 15.0)
    made.ended(Solved(first.job, 5.0))
    assert mix_of(begun(made, WITHIN_S + 1.0)) == (2, 0)
    assert made.played == {(1, 0): 5.0}  # known, so not played again


def test_played_results_are_discarded_for_new_latencies_but_not_for_new_prices() -> None:
    made = trials()
    first = begun(made, 0.0)
    dearer = replace(POOL, types=(PricedType("fast", 0.9), PricedType("slow", 0.1)))
    made.change(dearer, POLICY)
    made.ended(Solved(first.job, 5.0))
    assert made.played == {(1, 0): 5.0}
    second = begun(made, 1.0)
    made.change(replace(dearer, slo_s=0.5), POLICY)
    assert made.ended(Solved(second.job, 6.0))  # it is a trial result that arrives too late
    assert made.played == {}
    assert made.next(1.0) == []
    made.ask(MIXES, 2.0)
    assert mix_of(begun(made, 2.0)) == (1, 0)


def test_a_play_that_failed_is_not_tried_again() -> None:
    made = trials()
    effect = begun(made, 0.0)
    assert made.ended(Failed(effect.job, "killed"))
    assert made.played == {(1, 0): None}


def test_jobs_of_other_owners_are_ignored() -> None:
    made = trials()
    assert not made.ended(Solved(7, None))
    assert not made.ended(Failed("queries", "no broker"))
    assert not made.ended(Solved(FIRST_JOB - 1, None))


def test_mixes_that_cannot_be_played_are_passed_over() -> None:
    made = trials()
    made.ask(((400, 0), (0, 0), (1, 0)), 0.0)
    assert mix_of(begun(made, 0.0)) == (1, 0)
    assert made.played == {(400, 0): None, (0, 0): None}
