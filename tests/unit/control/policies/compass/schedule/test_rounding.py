"""Rounded schedules, before an integer program may improve them, and the order of greedy ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.compass.schedule.classes import session_classes
from control.policies.compass.schedule.greedy import cheapest_pairs, greedy_pairs
from control.policies.compass.schedule.instance import (
    OBJECTIVES,
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.schedule.relaxation import model, relax
from control.policies.compass.schedule.rounding import PackedSessions, rounded
from control.policies.compass.schedule.scheduling import finished, schedule
from control.problem.problem import PlanError
from tests.unit.control.policies.compass.schedule.test_scheduling import instances


def a_plan(*items: tuple[str, int]) -> PlanOption:
    return PlanOption(tuple(PlanItem(tier, quarters) for tier, quarters in items))


def rounded_one(instance: Instance, objective: str) -> PackedSessions | None:
    """Return the rounded schedule; None if the linear program has no solution."""
    found = session_classes(instance)
    data = model(instance, found, objective)
    relaxed = relax(data) if len(found.owner) else None
    free = tuple(instance.free.get(bin, (0, 0, 0)) for bin in found.bins)
    return None if relaxed is None else rounded(data, free, relaxed)


@settings(deadline=None)
@given(instances(), st.sampled_from(OBJECTIVES))
def test_a_rounded_schedule_fits_and_leaves_no_session_out_that_fits(
    instance: Instance, objective: str
) -> None:
    made = rounded_one(instance, objective)
    if made is None:
        return
    found = made.data.classes
    served = np.bincount(found.owner, made.taken, minlength=len(found.count))
    assert made.fits
    assert (made.taken >= 0).all()
    assert (served <= found.count).all()
    for column, owner in enumerate(found.owner.tolist()):
        assert served[owner] == found.count[owner] or made.more(column) is None


@settings(deadline=None)
@given(instances(), st.sampled_from(OBJECTIVES))
def test_sessions_taken_one_by_one_are_packed_as_all_together(
    instance: Instance, objective: str
) -> None:
    made = rounded_one(instance, objective)
    if made is None:
        return
    together = PackedSessions.of(made.data, made.free, made.taken)
    assert made.sizes.tolist() == together.sizes.tolist()
    assert (made.used, made.room) == (together.used, together.room)
    assert (made.weight, made.usd_per_h) == (together.weight, together.usd_per_h)


def test_of_sessions_that_share_no_gpu_the_one_of_less_weight_is_left_out() -> None:
    """Half a GPU each in the linear program, a whole one each in fact."""
    sessions = tuple(
        Candidate(name, weight, (PlanOption((PlanItem("cloud", 2, name),)),))
        for name, weight in (("8b", 2.0), ("70b", 1.0), ("405b", 3.0))
    )
    made = rounded_one(Instance(tiers={"cloud": Tier(2, 5.0)}, sessions=sessions), "goodput")
    assert made is not None
    assert (made.weight, made.used) == (5.0, [1, 0, 1])  # bins by name: 405b, 70b, 8b


TWO = Instance(
    tiers={"cloud": Tier(2, 5.0), "near": Tier(4, 20.0)},
    sessions=(
        Candidate("a", 2.0, (a_plan(("cloud", 4)), a_plan(("near", 4)))),
        Candidate("b", 1.0, (a_plan(("cloud", 1)), a_plan())),
        Candidate("c", 9.0, ()),
    ),
)


@pytest.mark.parametrize(
    ("objective", "order"),
    [
        # By parts of the tiers 1/2, 1/4, 1/8: 2 / 0.5, 2 / 0.25, 1 / 0.125; a free plan is first.
        ("goodput", [(1, 1), (0, 1), (1, 0), (0, 0)]),
        # By $ an hour 5, 20, 1.25: 0.4, 0.1, 0.8.
        ("cost", [(1, 1), (1, 0), (0, 0), (0, 1)]),
    ],
)
def test_the_greedy_takes_the_most_weight_for_its_resources_first(
    objective: str, order: list[tuple[int, int]]
) -> None:
    assert list(greedy_pairs(TWO, objective)) == order
    assert list(cheapest_pairs(TWO, objective)) == [(0, 0), (1, 1)]


def test_resources_of_an_unlimited_tier_are_dollars_and_a_tier_without_gpus_is_last() -> None:
    unlimited = Instance(
        tiers={"cloud": Tier(None, 5.0), "near": Tier(None, 20.0)}, sessions=TWO.sessions
    )
    assert list(greedy_pairs(unlimited, "goodput")) == list(greedy_pairs(TWO, "cost"))
    without = Instance(tiers={"cloud": Tier(0, 5.0), "near": Tier(4, 20.0)}, sessions=TWO.sessions)
    assert list(greedy_pairs(without, "goodput")) == [(1, 1), (0, 1), (0, 0), (1, 0)]


def test_equal_sessions_are_served_in_their_order_by_the_first_of_equal_plans() -> None:
    equal = a_plan(("cloud", 4))
    instance = Instance(
        tiers={"cloud": Tier(2, 5.0)},
        sessions=tuple(Candidate(name, 1.0, (equal, equal)) for name in "abc"),
    )
    assert schedule(instance, "goodput").plans == (0, 0, None)


def test_a_schedule_of_nothing_reaches_its_bound() -> None:
    made = schedule(Instance(tiers={}, sessions=()), "goodput")
    assert (made.bound, made.ratio, made.run.gap) == (0.0, 1.0, 0.0)


def test_plans_that_do_not_fit_are_no_schedule() -> None:
    both = Candidate("b", 1.0, (a_plan(("cloud", 4)),))
    instance = Instance(
        tiers={"cloud": Tier(1, 5.0)}, sessions=(Candidate("a", 1.0, both.plans), both)
    )
    assert finished(instance, (0, None), "goodput", None).opened == {"cloud": 1}
    with pytest.raises(PlanError, match="needs 2 GPUs of tier 'cloud'; it has 1"):
        finished(instance, (0, 0), "goodput", None)
