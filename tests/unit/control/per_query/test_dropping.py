"""control/per_query/dropping.py: queries that can no longer be in time."""

from dataclasses import replace
from math import inf

import pytest

from control.per_query.dropping import BUDGETS, RULES, TaskTiming, displaces
from control.per_query.rerouting import WAYS

FIRST = TaskTiming(budget_s=0.05, rest_s=0.03, last=False)
LAST = TaskTiming(budget_s=0.05, rest_s=0.0, last=True)


@pytest.mark.parametrize(
    ("rule", "at_first", "at_last"),
    [
        ("none", inf, inf),
        ("deadline", 1.25, 1.25),
        ("last-task", inf, 1.25),
        ("per-task", 1.05, 1.05),
        ("reroute-paper", inf, 1.25),
        ("reroute", 1.22, 1.25),
    ],
)
def test_each_rule_gives_the_time_by_which_a_batch_must_end(
    rule: str, at_first: float, at_last: float
) -> None:
    must_end = RULES[rule].must_end
    assert must_end(FIRST, 1.0, 1.0, 1.25) == pytest.approx(at_first)
    assert must_end(LAST, 1.0, 1.0, 1.25) == pytest.approx(at_last)


@pytest.mark.parametrize(
    ("rule", "at_first", "at_last"),
    [
        ("none", inf, inf),
        ("deadline", 1.15, 1.15),
        ("last-task", inf, 1.25),
        ("per-task", 1.05, 1.05),
        ("reroute-paper", inf, 1.25),
        ("reroute", 1.15, 1.15),
    ],
)
def test_two_rules_reserve_the_observed_time_to_egress_while_other_items_wait(
    rule: str, at_first: float, at_last: float
) -> None:
    must_end = RULES[rule].must_end
    assert must_end(replace(FIRST, seen_s=0.1), 1.0, 1.0, 1.25) == pytest.approx(at_first)
    assert must_end(replace(LAST, seen_s=0.1), 1.0, 1.0, 1.25) == pytest.approx(at_last)


def test_observed_time_below_the_profile_does_not_shorten_the_budget() -> None:
    must_end = RULES["reroute"].must_end
    assert must_end(replace(FIRST, seen_s=0.01), 1.0, 1.0, 1.25) == pytest.approx(1.22)


def test_a_query_with_more_time_than_the_plan_is_made_for_has_more_of_it_at_each_task() -> None:
    must_end, tight = RULES["per-task"].must_end, replace(LAST, slo_s=0.1)
    assert must_end(tight, 1e9, 1e9 + 0.02, 1e9 + 0.1) == pytest.approx(1e9 + 0.07, abs=1e-6)
    assert must_end(tight, 1e9, 1e9 + 0.02, 1e9 + 1.0) == pytest.approx(1e9 + 0.52, abs=1e-6)
    assert must_end(tight, 1e9, 1e9 + 0.6, 1e9 + 1.0) == 1e9 + 1.0


@pytest.mark.parametrize("allowed_s", [0.05, 0.1, 1.0])
def test_no_budget_goes_beyond_the_deadline(allowed_s: float) -> None:
    must_end, tight = RULES["per-task"].must_end, replace(LAST, slo_s=0.1)
    assert must_end(tight, 1e9, 1e9 + allowed_s - 0.01, 1e9 + allowed_s) == 1e9 + allowed_s


def test_two_rules_reroute() -> None:
    ways = {name: rule.reroutes for name, rule in RULES.items() if rule.reroutes}
    assert ways == {"reroute-paper": "gap", "reroute": "in-time"}
    assert set(ways.values()) == set(WAYS)


def test_a_budget_has_room_for_queues_unless_it_is_the_papers() -> None:
    assert BUDGETS["shared"](0.03, 0.5, 0.001) == pytest.approx(0.061)
    assert BUDGETS["shared"](1e-6, 0.5, 0.001) == pytest.approx(0.006)
    assert BUDGETS["bare"](0.03, 0.5, 0.001) == 0.03


def test_with_classes_the_last_task_drops_nothing_that_is_in_time() -> None:
    """A batch of a slacker class is not interrupted; items waiting for it may still be in time."""
    rule = RULES["per-task"].must_end
    assert rule(replace(LAST, classes=True), 0.0, 0.0, 0.2) == 0.2
    assert rule(replace(FIRST, classes=True), 0.0, 0.0, 0.2) == rule(FIRST, 0.0, 0.0, 0.2) < 0.2
    assert rule(LAST, 0.0, 0.0, 0.2) < 0.2


@pytest.mark.parametrize(
    ("others_s", "places", "takes_one"),
    [
        ([0.1, 0.1], 2, True),
        ([0.1, 0.05], 2, True),
        ([0.1, 0.3, 1.0], 2, False),
        ([0.1], 2, False),
        ([], 1, False),
    ],
)
def test_an_item_takes_the_place_of_one_of_its_class_or_of_a_tighter_one(
    others_s: list[float], places: int, takes_one: bool
) -> None:
    assert displaces(0.1, others_s, places) is takes_one
