"""Plans of stage trees: prices of a configuration equal brute force over all shares."""

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies.compass.search import pricing
from control.policies.compass.search.composition import Deployment
from control.policies.compass.search.pricing import (
    Priced,
    cheapest_estimates,
    may_be_affordable,
    priced,
)
from control.problem.space import Space, Stage

TIERS = ("edge", "near")
PARENTS = st.sampled_from([("", "a", "a"), ("", "a", "a", "b"), ("", "a", "b", "b")])


def a_deployment(parents: tuple[str, ...], batched: int, seed: int) -> Deployment:
    """Return a tree on a free tier and one with GPUs; stage ``batched`` shares by seats."""
    stages = tuple(
        Stage(name, parent, TIERS, batched=at == batched)
        for at, (name, parent) in enumerate(zip("abcd", parents, strict=False))
    )
    space = Space(stages, (), TIERS)
    rng = np.random.default_rng(seed)
    hops = len(stages) + sum(stage.name not in parents for stage in stages)
    count = space.placement_count
    near = (space.placements == 1).T
    return Deployment(
        space=space,
        slowdown=np.where(near, 1.0, 4.0),
        per_byte=np.zeros((hops, count)),
        delay=rng.uniform(0, 0.03, (hops, count)),
        price=np.where(near, 2.0, 0.0),
        memory=rng.uniform(0, 0.9, (1, len(stages))),
        capacity=np.ones((len(stages), count)),
        fits=np.ones((1, count), dtype=bool),
        own_tiers=frozenset({"edge"}),
    )


def every_plan(
    deployment: Deployment, seconds: list[float], slo_s: float
) -> dict[tuple[int, tuple[int, ...]], tuple[int, float]]:
    """Return demand and latency of each placement with each vector of shares that is in time."""
    space, found = deployment.space, {}
    options = [(1, 2, 4) if stage.batched else (1, 2, 3, 4) for stage in space.stages]
    for placement, tiers in enumerate(space.placements.tolist()):
        for shares in product(*(opt if t else (0,) for opt, t in zip(options, tiers, strict=True))):
            took = []
            demand = 0
            for at, share in enumerate(shares):
                rest = 4 / share - 1 if share else 0.0
                factor = 1 + (0.12 if space.stages[at].batched else 1.0) * rest
                took.append(seconds[at] * float(deployment.slowdown[at, placement]) * factor)
                demand += max(share, ceil(4 * deployment.memory[0, at])) if share else 0
            latency = max(
                sum(took[s] + deployment.delay[s, placement] for s in path)
                + deployment.delay[len(took) + leaf, placement]
                for leaf, path in enumerate(deployment.paths)
            )
            if latency <= slo_s:
                found[placement, shares] = (demand, float(latency))
    return found


@given(PARENTS, st.integers(-1, 3), st.integers(0, 1000), st.floats(0.05, 0.5))
def test_plans_of_a_tree_equal_brute_force(
    parents: tuple[str, ...], batched: int, seed: int, slo_s: float
) -> None:
    deployment = a_deployment(parents, batched, seed)
    stages = len(deployment.space.stages)
    seconds = np.random.default_rng(seed).uniform(0.005, 0.1, stages)
    sent = np.zeros(len(deployment.delay))
    every = every_plan(deployment, seconds.tolist(), slo_s)
    found = priced(deployment, 0, seconds, sent, slo_s)
    least_of = {p: min(d for (q, _), (d, _) in every.items() if q == p) for p, _ in every}
    for plan in found:
        demand, latency = every[plan.placement, plan.shares]
        assert sum(quarters for _, quarters in plan.demand) == demand == sum(plan.occupied)
        assert plan.latency_s == pytest.approx(latency)
        assert plan.usd_per_h == pytest.approx(2.0 * demand / 4)
        equal = [took for (p, _), (d, took) in every.items() if d == demand == least_of[p]]
        assert latency == pytest.approx(min(equal))
    demands = [sum(quarters for _, quarters in each.demand) for each in found]
    least = min((demand for demand, _ in every.values()), default=None)
    assert min(demands, default=None) == least


@given(PARENTS, st.integers(-1, 3), st.integers(0, 1000), st.floats(0.05, 0.5), st.floats(0, 9))
def test_a_configuration_is_affordable_if_one_of_its_plans_is(
    parents: tuple[str, ...], batched: int, seed: int, slo_s: float, usd: float
) -> None:
    deployment = a_deployment(parents, batched, seed)
    seconds = np.random.default_rng(seed).uniform(0.005, 0.1, len(parents))
    sent = np.zeros(len(deployment.delay))
    plans = priced(deployment, 0, seconds, sent, slo_s)
    cheap = any(plan.usd_per_h <= usd for plan in plans)
    assert may_be_affordable(deployment, 0, seconds, sent, slo_s, usd) is cheap


def a_plan(**changes: object) -> Priced:
    usual = Priced(
        configuration=0, placement=0, shares=(2, 1), occupied=(2, 1), latency_s=0.1, usd_per_h=1.0,
        demand=(("cloud", 1), ("near", 2)), run_s=(0.01, 0.02), accuracy=0.9,
    )  # fmt: skip
    return replace(usual, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "covers", "covered"),
    [
        ({}, True, True),
        ({"latency_s": 0.2}, True, True),
        ({"accuracy": 0.91}, False, True),
        ({"usd_per_h": 1.1}, True, False),
        ({"demand": (("cloud", 1), ("near", 3))}, True, False),
        ({"demand": (("cloud", 1),)}, False, True),  # none of the other tier
        ({"demand": (("cloud", 2), ("near", 1))}, False, False),
        ({"accuracy": 0.91, "usd_per_h": 1.1}, False, False),
    ],
)
def test_a_plan_covers_those_that_are_no_better_in_anything_that_counts(
    changes: dict[str, object], covers: bool, covered: bool
) -> None:
    other = a_plan(**changes)
    assert (a_plan().covers(other), other.covers(a_plan())) == (covers, covered)


def test_placements_that_cost_too_much_on_any_shares_are_not_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control app stood still for 1.8 s at each block of 7 stages on 3 tiers."""
    deployment = a_deployment(("", "a", "a"), -1, 0)
    monkeypatch.delattr(pricing, "trimmed")
    sent, seconds = np.zeros(len(deployment.delay)), np.full(3, 0.01)
    slowed = replace(deployment, slowdown=np.where(deployment.price > 0, 1.0, 99.0))
    assert may_be_affordable(deployment, 0, seconds, sent, 0.5, 0.0)  # all stages on the free tier
    assert not may_be_affordable(slowed, 0, seconds, sent, 0.5, 0.4)


def test_tree_too_slow_on_quarter_gpus_takes_whole_gpus() -> None:
    deployment = replace(a_deployment(("", "a", "a"), -1, 0), memory=np.zeros((1, 3)))
    sent = np.zeros(len(deployment.delay))
    found = priced(deployment, 0, np.full(3, 0.05), sent, 0.25)
    assert found
    assert all(each.latency_s <= 0.25 for each in found)


@given(PARENTS, st.integers(-1, 3), st.integers(0, 1000), st.floats(0.05, 0.5))
def test_configurations_estimated_together_cost_what_each_costs_by_the_formula(
    parents: tuple[str, ...], batched: int, seed: int, slo_s: float
) -> None:
    deployment = a_deployment(parents, batched, seed)
    rng = np.random.default_rng(seed)
    stages, placements = len(parents), deployment.space.placement_count
    fits = rng.random((5, placements)) < 0.8
    deployment = replace(deployment, fits=fits)
    configurations = np.array([3, 0, 4])
    seconds = rng.uniform(0.005, 0.1, (3, stages))
    sent = np.zeros((3, len(deployment.delay)))
    costs, at = cheapest_estimates(deployment, configurations, seconds, sent, slo_s)
    latency = deployment.latency(seconds, sent)
    for row, configuration in enumerate(configurations.tolist()):
        expected = [
            estimate(deployment, seconds[row], p, slo_s - float(latency[row, p]))
            if fits[configuration, p]
            else float("inf")
            for p in range(placements)
        ]
        assert costs[row] == pytest.approx(min(expected))
        assert expected[int(at[row])] == pytest.approx(min(expected))


def estimate(deployment: Deployment, seconds: np.ndarray, placement: int, rest_s: float) -> float:
    """Return the cost with continuous shares of stages that have ``rest_s`` beside whole GPUs."""
    if rest_s < 0:
        return float("inf")
    root, slack, least = 0.0, rest_s, 0.0
    for at, stage in enumerate(deployment.space.stages):
        price = float(deployment.price[at, placement])
        if price == 0:
            continue
        grows = float(seconds[at] * deployment.slowdown[at, placement])
        grows *= 0.12 if stage.batched else 1.0
        root += (price * grows) ** 0.5
        slack += grows
        least += price / 4
    return max(root**2 / max(slack, 1e-9), least)
