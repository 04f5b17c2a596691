"""The paper's search: what it learns about whole plans, and the plans it finds."""

from dataclasses import replace

import numpy as np
import pytest

from control.policies.compass.search.camo import SearchOptions
from control.policies.compass.search.plan_search import PlanSearch
from tests.unit.control.policies.compass.search.test_search import (
    RULE,
    SLO,
    World,
    a_space,
    past,
    searched,
)


def a_search(world: World) -> PlanSearch:
    return PlanSearch(world.deployment, SLO, SearchOptions(rule=RULE), world.sent)


@pytest.mark.parametrize("seed", range(5))
def test_search_finds_a_compliant_plan_within_ten_percent_of_the_composed_search_cost(
    seed: int,
) -> None:
    world = World(a_space(options=3), seed)
    search = a_search(world)
    while (asked := search.ask()) is not None:
        search.tell(world.profiled(asked.configuration, SLO))
    ours = searched(world, SLO, [])
    assert search.best is not None
    assert ours.best is not None
    assert search.best.usd_per_h <= 1.1 * ours.best.usd_per_h + 1e-9
    assert all(plan.latency_s <= SLO.latency_s for plan in search.plans)


def test_profiled_latency_is_learnt_and_informs_similar_plans() -> None:
    world = World(a_space(), 2)
    search = a_search(world)
    true = world.deployment.latency(world.seconds, world.sent)
    before = np.abs(search._latency.mean - np.log(true).ravel()).mean()
    for _ in range(12):
        asked = search.ask()
        assert asked is not None
        search.tell(world.profiled(asked.configuration, SLO))
        at = asked.configuration * world.space.placement_count + asked.placement
        assert search._latency.mean[at] == pytest.approx(np.log(true.ravel()[at]), abs=0.05)
    assert np.abs(search._latency.mean - np.log(true).ravel()).mean() < before


def test_search_learns_accurate_configurations_from_history() -> None:
    world = World(a_space(), 3)
    known = [past(world, list(range(0, 64, 2)))]
    search = PlanSearch(world.deployment, SLO, SearchOptions(rule=RULE), world.sent, known)
    asked = search.ask()
    assert asked is not None
    assert asked.origin == "committee"
    assert world.accuracy[asked.configuration] > SLO.accuracy - 0.1


def test_stages_that_took_no_measurable_time_have_a_finite_latency() -> None:
    world = World(a_space(), 2)
    world.deployment.delay[:] = 0.0
    world.sent[:] = 0.0
    search = a_search(world)
    asked = search.ask()
    assert asked is not None
    found = world.profiled(asked.configuration, SLO)
    search.tell(replace(found, seconds=(0.0,) * len(found.seconds)))
    assert np.isfinite(search._latency.mean).all()
