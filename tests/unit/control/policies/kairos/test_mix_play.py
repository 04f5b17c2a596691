import math
from dataclasses import replace

import numpy as np
import pytest

from control.policies import POLICIES
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.mix_play import MixProblem, mix_capacity, playable
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.renting import bound_of
from control.policies.solvers import MIX, solve
from headrace.planning.rentable import query_draws

DRAWS = query_draws(np.random.default_rng(3))
POOL = Pool(
    types=(PricedType("gpu", 0.5), PricedType("slow", 0.1)),
    sizes=SizeDistribution((10, 100, 1000), (0.5, 0.4, 0.1)),
    latency_s=((0.01, 0.02, 0.08), (0.05, 0.3, 2.0)), largest_s=(0.08, 2.0), largest_size=1000,
    slo_s=0.2,
)  # fmt: skip


def problem(mix: tuple[int, ...], kind: str = "kairos", pool: Pool = POOL) -> MixProblem:
    policy = POLICIES[kind].usual
    return MixProblem(pool=pool, policy=policy, mix=mix, bound_qps=bound_of(pool, mix), draws=DRAWS)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [name for name, spec in POLICIES.items() if spec.dispatch])
def test_every_rule_carries_less_than_the_bound(kind: str) -> None:
    asked = problem((2, 2), kind)
    assert 0 < mix_capacity(asked) < asked.bound_qps


@pytest.mark.thorough
def test_the_same_problem_has_the_same_result_and_the_solver_gives_it() -> None:
    assert mix_capacity(problem((1, 2))) == solve(MIX, problem((1, 2)))


@pytest.mark.thorough
def test_more_devices_carry_more_and_a_greater_part_of_their_bound() -> None:
    few, many = problem((1, 0)), problem((6, 0))
    assert mix_capacity(few) < mix_capacity(many)
    assert mix_capacity(few) / few.bound_qps < mix_capacity(many) / many.bound_qps


@pytest.mark.thorough
def test_the_matching_carries_more_than_the_oldest_first() -> None:
    assert mix_capacity(problem((2, 4))) > 1.05 * mix_capacity(problem((2, 4), "fcfs"))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [name for name, spec in POLICIES.items() if spec.dispatch])
def test_type_with_spread_latencies_carries_less_than_by_its_mean(kind: str) -> None:
    # One query in twenty of size 100 takes longer than the SLO on a slow device.
    spread = replace(POOL, slo_s=0.35, worst_s=(POOL.latency_s[0], (0.05, 0.4, 2.0)))
    steady = replace(spread, worst_s=spread.latency_s)
    usual = mix_capacity(problem((1, 4), kind, replace(spread, worst_s=())))
    assert mix_capacity(problem((1, 4), kind, steady)) == usual
    assert mix_capacity(problem((1, 4), kind, spread)) < usual


@pytest.mark.thorough
def test_a_mix_carries_less_of_its_bound_where_large_queries_come_together() -> None:
    usual = problem((1, 2))
    together = replace(DRAWS, uniforms=tuple(sorted(DRAWS.uniforms, reverse=True)))
    assert mix_capacity(replace(usual, draws=together)) < 0.5 * mix_capacity(usual)


def test_one_device_carries_what_its_queue_allows() -> None:
    # One size, so M/D/1, without queries that would wait longer than four services.
    one = replace(
        POOL, types=POOL.types[:1], sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,),),
        largest_s=(0.1,), largest_size=1, slo_s=0.5,
    )  # fmt: skip
    asked = problem((1,), pool=one)
    assert mix_capacity(asked) / asked.bound_qps == pytest.approx(load_of(4, 0.01), abs=0.02)


def load_of(services: int, given_up: float) -> float:
    """Return the load of M/D/1 at which a query is dropped with this probability because it would
    wait longer than some services (de Kok and Tijms, 1985; Erlang for the wait)."""
    low, high = 0.0, 1.0
    for _ in range(30):
        load = (low + high) / 2
        terms = [(k, load * (k - services)) for k in range(services + 1)]
        waits = 1 - (1 - load) * sum(x**k / math.factorial(k) * math.exp(-x) for k, x in terms)
        lost = (1 - load) * waits / (1 - load * waits)
        low, high = (load, high) if lost <= given_up else (low, load)
    return low


def test_unplayable_mixes_are_recognised() -> None:
    assert playable(problem((1, 0)))
    assert not playable(problem((0, 1)))  # large queries are late
    assert not playable(problem((101, 0)))
    assert not playable(problem((1, 0), pool=replace(POOL, slo_s=100.0)))  # too few draws
    loki = replace(problem((1, 0)), policy=POLICIES["loki"].usual)
    assert not playable(loki)


@pytest.mark.thorough
def test_options_of_the_policy_are_played() -> None:
    paper = POLICIES["kairos"].policy("mine", {"considered": 2, "prices": "speed", "late": "serve"})
    assert mix_capacity(replace(problem((2, 2)), policy=paper)) > 0
    swept = POLICIES["threshold"].policy("mine", {"threshold": 10})
    assert mix_capacity(replace(problem((2, 2)), policy=swept)) > 0
