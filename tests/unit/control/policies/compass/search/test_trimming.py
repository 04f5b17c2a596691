"""Trimming equals brute force over every vector of shares."""

from itertools import product
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies.compass.search.trimming import Occupied, trimmed

STAGE = st.builds(
    Occupied,
    seconds=st.floats(0.001, 0.2),
    tier=st.sampled_from(["near", "cloud"]),
    batched=st.booleans(),
    memory=st.floats(0, 1),
    free=st.booleans(),
)


def demand(stages: list[Occupied], vector: tuple[int, ...]) -> tuple[int, int]:
    total = {"near": 0, "cloud": 0}
    for stage, share in zip(stages, vector, strict=True):
        if not stage.free:
            total[stage.tier] += max(share, ceil(4 * stage.memory))
    return total["near"], total["cloud"]


def latency(stages: list[Occupied], vector: tuple[int, ...], rest: float) -> float:
    total = rest
    for stage, share in zip(stages, vector, strict=True):
        part = 1.0 if stage.free else share / 4
        factor = 1 + 0.12 * (1 / part - 1) if stage.batched and not stage.free else 1 / part
        total += stage.seconds * factor
    return total


@given(st.lists(STAGE, min_size=1, max_size=4), st.floats(0, 0.1), st.floats(0.05, 1.0))
def test_every_pareto_optimal_demand_and_no_other(
    stages: list[Occupied], rest: float, slo: float
) -> None:
    options = [(0,) if s.free else (1, 2, 4) if s.batched else (1, 2, 3, 4) for s in stages]
    every = {
        demand(stages, vector)
        for vector in product(*options)
        if latency(stages, vector, rest) <= slo
    }
    minimal = {d for d in every if not any(o != d and o[0] <= d[0] and o[1] <= d[1] for o in every)}
    found = trimmed(stages, [(range(len(stages)), rest)], slo)
    assert {demand(stages, each.shares) for each in found} == minimal
    assert len(found) == len(minimal)
    for each in found:
        assert each.latency_s == pytest.approx(latency(stages, each.shares, rest))
        assert each.latency_s <= slo


def test_a_model_that_does_not_fit_has_no_plan() -> None:
    assert trimmed([Occupied(seconds=0.1, tier="near", memory=1.2)], [([0], 0.0)], 10.0) == ()
