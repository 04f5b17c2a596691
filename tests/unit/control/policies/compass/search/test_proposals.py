"""What a search proposes first: likely, fast enough, quick to profile, by the newest history."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.sequential_tests import run_test
from control.policies.compass.search.camo import (
    FORCED_AFTER,
    Past,
    Proposal,
    SearchOptions,
    SessionSearch,
    Slo,
)
from tests.unit.control.policies.compass.search.test_search import RULE, World, a_space

WORLD = World(a_space(options=2), 1)
COUNT = WORLD.space.configuration_count
EASY = Slo(accuracy=0.5, latency_s=10.0)
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def known(accuracy: Floats, seconds: Floats | None = None) -> Past:
    """Return an earlier search that profiled every configuration."""
    taken = np.full((COUNT, 3), 0.01) if seconds is None else seconds
    return Past(np.arange(COUNT), accuracy, np.full(COUNT, 1e-4), taken)


def a_search(*history: Past, slo: Slo = EASY, most: int = 12) -> SessionSearch:
    options = SearchOptions(rule=RULE, history=most)
    return SessionSearch(WORLD.deployment, slo, options, WORLD.sent, history)


def asked(search: SessionSearch) -> Proposal:
    proposal = search.ask()
    assert proposal is not None
    return proposal


def test_of_equally_good_configurations_the_quickest_to_profile_is_first() -> None:
    seconds = np.full((COUNT, 3), 0.05)
    seconds[COUNT - 1] = 0.01
    assert asked(a_search(known(np.full(COUNT, 0.9), seconds))).configuration == COUNT - 1


def test_a_configuration_with_cached_stages_is_quicker_to_profile() -> None:
    """The last one was not accurate enough; the one before it has the same first two stages."""
    search = a_search(known(np.full(COUNT, 0.9)), slo=replace(EASY, accuracy=0.89))
    search.tell(replace(WORLD.profiled(COUNT - 1, EASY), tested=run_test(np.zeros(200), 0.5, RULE)))
    assert asked(search).configuration == COUNT - 2


def test_the_newest_searches_are_the_history_that_counts() -> None:
    """By the older one, configuration 1 was the only accurate one; by the newer one, 6 is."""
    older, newer = (known(np.where(np.arange(COUNT) == accurate, 0.9, 0.1)) for accurate in (1, 6))
    assert asked(a_search(older, newer, most=1)).configuration == 6


def proposed(fits: Bools) -> list[Proposal]:
    """Return all proposals of a search with placements that do not fit."""
    deployment = replace(WORLD.deployment, fits=fits)
    search = SessionSearch(deployment, EASY, SearchOptions(rule=RULE), WORLD.sent)
    found: list[Proposal] = []
    while (proposal := search.ask()) is not None and len(found) <= COUNT:
        found.append(proposal)
        search.exclude(proposal.configuration)
    return found


def test_a_placement_whose_models_do_not_fit_is_not_proposed() -> None:
    fits = WORLD.deployment.fits.copy()
    first = proposed(fits)[0].placement
    fits[:, first] = False
    assert first not in {each.placement for each in proposed(fits)}


def test_each_configuration_is_proposed_once_where_none_fits() -> None:
    found = proposed(np.zeros_like(WORLD.deployment.fits))
    assert sorted(each.configuration for each in found) == list(range(COUNT))


def test_history_that_leads_to_no_plan_is_left_after_ten_profiles() -> None:
    world = World(a_space(options=3), 1)
    accuracy = np.full(world.space.configuration_count, 0.9)
    history = Past(np.arange(len(accuracy)), accuracy, np.full(len(accuracy), 1e-4), world.seconds)
    search = SessionSearch(world.deployment, EASY, SearchOptions(rule=RULE), world.sent, [history])
    for _ in range(FORCED_AFTER):
        proposal = asked(search)
        assert proposal.origin == "committee"
        search.exclude(proposal.configuration)
    assert asked(search).origin == "own"


def test_an_accuracy_near_the_floor_is_expected_to_take_more_samples() -> None:
    """(2.33 * 0.3 / 0.05)^2 = 195 by the normal bound at 0.99; no model says the mean exactly."""
    near, far = (
        asked(a_search(known(np.full(COUNT, 0.9)), slo=replace(EASY, accuracy=floor))).samples
        for floor in (0.84, 0.5)
    )
    assert far == RULE.least
    assert 90 < near <= RULE.most


def test_of_plans_of_equal_cost_the_most_accurate_is_the_best() -> None:
    search = a_search()
    (plan, *_) = search.tell(
        replace(WORLD.profiled(0, EASY), tested=run_test(np.ones(200), 0.5, RULE))
    )
    better = replace(plan, accuracy=plan.accuracy + 0.1)
    for plans in ((plan, better), (better, plan)):
        search.plans = plans
        assert search.best is better
