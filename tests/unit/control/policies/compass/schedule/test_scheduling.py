"""Schedules fit, equal exhaustive search and are never worse than the greedy ones."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.compass.packing import packed_items
from control.policies.compass.schedule.classes import session_classes
from control.policies.compass.schedule.greedy import Pair, cheapest_pairs, first_fit, greedy_pairs
from control.policies.compass.schedule.instance import (
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.schedule.reference_schedulers import SCHEDULERS
from control.policies.compass.schedule.relaxation import (
    DIRECT,
    FIRST_WINDOW,
    WHOLE,
    dual_bound,
    model,
    near_columns,
    others,
)
from control.policies.compass.schedule.scheduling import Schedule, opened_gpus, schedule
from control.problem.problem import PlanError
from tests.property_examples import at_most

ITEM = st.builds(
    PlanItem,
    st.sampled_from(["cloud", "near"]),
    st.integers(1, 4),
    st.sampled_from(["", "", "llm"]),
)
PLAN = st.builds(PlanOption, st.lists(ITEM, max_size=3).map(tuple), st.floats(0, 5))
PLANS = st.lists(PLAN, max_size=3).map(tuple)


@st.composite
def instances(draw: st.DrawFn, limited: bool = True) -> Instance:
    gpus = st.integers(0, 3) if limited else st.none()
    free = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1))
    return Instance(
        tiers={"cloud": Tier(draw(gpus), 5.0), "near": Tier(draw(gpus), 2.0)},
        sessions=tuple(
            Candidate(index, draw(st.sampled_from([1.0, 2.0, 2.5])), plans)
            for index, plans in enumerate(draw(st.lists(PLANS, max_size=5)))
        ),
        free={("cloud", ""): draw(free), ("near", "llm"): draw(free)},
    )


def exhaustive(instance: Instance) -> list[tuple[float, int, float]]:
    """Return the weight, number served and $ an hour of every schedule that fits."""
    options = [(None, *range(len(session.plans))) for session in instance.sessions]
    found = []
    for plans in product(*options):
        used = opened_gpus(instance, plans)
        if all(t.gpus is None or used[n] <= t.gpus for n, t in instance.tiers.items()):
            served = [s for s, p in zip(instance.sessions, plans, strict=True) if p is not None]
            cost = sum(instance.tiers[name].price * count for name, count in used.items())
            found.append((sum(s.weight for s in served), len(served), cost))
    return found


def placed(instance: Instance, made: Schedule) -> dict[str, int]:
    """Return the number of GPUs that best fit opens, computed independently of the formula."""
    items: dict[tuple[str, str], list[int]] = {}
    for session, plan in zip(instance.sessions, made.plans, strict=True):
        for item in session.plans[plan].items if plan is not None else ():
            items.setdefault((item.tier, item.pool), []).append(item.quarters)
    opened = dict.fromkeys(instance.tiers, 0)
    for bin, quarters in items.items():
        free = [k + 1 for k, n in enumerate(instance.free.get(bin, (0, 0, 0))) for _ in range(n)]
        opened[bin[0]] += len(packed_items(quarters, free).free) - len(free)
    return opened


@settings(deadline=None, max_examples=at_most(60))
@given(instances())
def test_goodput_equals_exhaustive_search(instance: Instance) -> None:
    made = schedule(instance, "goodput")
    assert made.weight == pytest.approx(max(weight for weight, _, _ in exhaustive(instance)))
    assert made.bound is not None
    assert made.weight <= made.bound + 1e-6
    assert placed(instance, made) == made.opened


@settings(deadline=None, max_examples=at_most(60))
@given(instances())
def test_cost_equals_exhaustive_search_or_is_infeasible(instance: Instance) -> None:
    made = schedule(instance, "cost")
    every = [cost for _, n, cost in exhaustive(instance) if n == len(instance.sessions)]
    assert made.feasible == bool(every)
    if made.feasible:
        assert made.usd_per_h == pytest.approx(min(every))
        assert made.bound is not None
        assert made.bound <= made.usd_per_h + 1e-6
        assert placed(instance, made) == made.opened


@settings(deadline=None, max_examples=at_most(60))
@given(instances(), st.sampled_from([cheapest_pairs, greedy_pairs]))
def test_a_session_that_a_greedy_leaves_out_fits_with_none_of_its_plans(
    instance: Instance, offered: Callable[[Instance, str], Iterator[Pair]]
) -> None:
    made = first_fit(instance, offered(instance, "goodput"))
    for session, plan in offered(instance, "goodput"):
        if made[session] is None:
            more = [*made[:session], plan, *made[session + 1 :]]
            used = opened_gpus(instance, more)
            assert any(used[n] > t.gpus for n, t in instance.tiers.items() if t.gpus is not None)


@settings(deadline=None, max_examples=at_most(40))
@given(instances(limited=False))
def test_unlimited_tiers_serve_every_session_that_has_a_plan(instance: Instance) -> None:
    made = schedule(instance, "goodput")
    assert made.served == sum(bool(session.plans) for session in instance.sessions)


def drawn(sessions: int, seed: int, gpus: int | None, weights: tuple[float, ...]) -> Instance:
    rng = np.random.default_rng(seed)
    names = ("cloud", "near", "near-edge")

    def plan() -> PlanOption:
        count = int(rng.integers(1, 4))
        return PlanOption(
            tuple(PlanItem(names[rng.integers(3)], int(rng.integers(1, 5))) for _ in range(count))
        )

    return Instance(
        tiers={
            name: Tier(gpus, price) for name, price in zip(names, (5.075, 2.0, 1.3), strict=True)
        },
        sessions=tuple(
            Candidate(
                i, float(rng.choice(weights)), tuple(plan() for _ in range(rng.integers(1, 5)))
            )
            for i in range(sessions)
        ),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 4.0), (1.5, 2.25, 3.7, 5.1)])
@pytest.mark.parametrize("sessions", [40, 300, 2500])
def test_never_worse_than_the_greedy_and_near_the_bound(
    sessions: int, weights: tuple[float, ...]
) -> None:
    instance = drawn(sessions, sessions, sessions // 9, weights)
    made = schedule(instance, "goodput")
    assert made.weight >= SCHEDULERS["compass-paper"](instance, "goodput", unmetered).weight
    assert made.ratio is not None
    assert made.ratio > 1 - 4 / sessions
    assert placed(instance, made) == made.opened


def unmetered() -> tuple[float, float]:
    return 0.0, 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("objective", ["goodput", "cost"])
def test_sifting_finds_the_bound_of_the_whole_program(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = drawn(2500, 7, 250 if objective == "goodput" else None, (1.0, 1.3, 2.2))
    assert model(instance, session_classes(instance), objective).columns > DIRECT
    sifted = schedule(instance, objective).bound
    monkeypatch.setattr("control.policies.compass.schedule.relaxation.DIRECT", 10**9)
    whole = schedule(instance, objective).bound
    assert sifted == pytest.approx(whole, rel=2e-6)


def test_a_window_is_widened_until_it_selects_other_columns() -> None:
    instance = drawn(60, 3, 20, (1.0, 2.0))
    data = model(instance, session_classes(instance), "goodput")
    prices = np.full(len(data.free), 0.3)
    window, last = FIRST_WINDOW, near_columns(data, prices, FIRST_WINDOW)
    selections = [[part.tobytes() for part in last]]
    while window < WHOLE:
        window, *last = others(data, prices, window, last)
        selections.append([part.tobytes() for part in last])
    assert len(selections) >= 3
    assert all(one != other for one, other in pairwise(selections[:-1]))  # the last one may be all


@pytest.mark.parametrize("objective", ["goodput", "cost"])
def test_any_prices_give_a_bound(objective: str) -> None:
    instance = drawn(60, 3, 20, (1.0, 2.0))
    data = model(instance, session_classes(instance), objective)
    made = schedule(instance, objective)
    assert made.feasible
    for seed in range(20):
        prices = np.random.default_rng(seed).uniform(0, 3, len(data.free))
        bound = dual_bound(data, prices)
        better = bound <= made.value + 1e-9 if objective == "cost" else bound >= made.value - 1e-9
        assert better


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("objective", ["goodput", "cost"])
def test_the_integer_program_over_single_gpus_agrees(seed: int, objective: str) -> None:
    instance = drawn(8, seed, 3 if objective == "goodput" else 12, (1.0, 2.0))
    ours = schedule(instance, objective)
    theirs = SCHEDULERS["compass-ilp"](instance, objective, unmetered)
    assert ours.value == pytest.approx(theirs.value)


def test_goodput_that_serves_everything_is_as_cheap_as_can_be() -> None:
    dear, cheap = PlanOption((PlanItem("cloud", 4),)), PlanOption((PlanItem("near", 1),))
    instance = Instance(
        tiers={"cloud": Tier(4, 5.0), "near": Tier(4, 2.0)},
        sessions=tuple(Candidate(i, 1.0, (dear, cheap)) for i in range(3)),
    )
    made = schedule(instance, "goodput")
    assert (made.plans, made.usd_per_h) == ((1, 1, 1), 2.0)


def test_seats_of_different_models_share_no_gpu() -> None:
    # Compass, Appendix D.2: a quarter of an LLM is a seat in a batch of that model.
    halves = [Candidate(m, 1.0, (PlanOption((PlanItem("cloud", 2, m),)),)) for m in ("8b", "70b")]
    instance = Instance(tiers={"cloud": Tier(1, 5.0)}, sessions=tuple(halves))
    assert schedule(instance, "goodput").served == 1


def test_equal_demands_take_the_plan_that_costs_less() -> None:
    plans = (PlanOption((PlanItem("near", 1),), 2.0), PlanOption((PlanItem("near", 1),), 1.0))
    instance = Instance(tiers={"near": Tier(1, 2.0)}, sessions=(Candidate("a", 1.0, plans),))
    assert schedule(instance, "goodput").plans == (1,)


def test_no_cost_bounds_a_schedule_that_cannot_serve_a_session_without_plans() -> None:
    plan = PlanOption((PlanItem("near", 1),))
    sessions = Candidate("a", 1.0, (plan,)), Candidate("b", 1.0, ())
    made = schedule(Instance(tiers={"near": Tier(1, 2.0)}, sessions=sessions), "cost")
    assert (made.plans, made.feasible) == ((0, None), False)
    assert (made.bound, made.ratio) == (None, None)


def test_the_same_instance_has_the_same_schedule() -> None:
    instance = drawn(400, 1, 40, (1.0, 2.0))
    assert schedule(instance, "goodput") == schedule(instance, "goodput")


def test_an_unknown_objective_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match="goodput, cost"):
        schedule(Instance(tiers={}, sessions=()), "speed")


@pytest.mark.parametrize(
    ("tiers", "session", "words"),
    [
        ({"near": Tier(-1, 2.0)}, Candidate("a", 1.0, ()), "give 0 to"),
        ({"near": Tier(1, 1e20)}, Candidate("a", 1.0, ()), "give 0 to"),
        ({"near": Tier(10**400, 1.0)}, Candidate("a", 1.0, ()), "give 0 to"),
        ({}, Candidate("a", 1e20, ()), "must be 0 to"),
        ({}, Candidate("a", -1.0, ()), "must be 0 to"),
        ({}, Candidate("a", 1.0, (PlanOption((PlanItem("moon", 1),)),)), "the tiers are none"),
        ({"near": Tier(1, 2.0)}, Candidate("a", 1.0, (PlanOption((PlanItem("near", 5),)),)),
         "1 to 4"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_sentence(
    tiers: dict[str, Tier], session: Candidate, words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        Instance(tiers=tiers, sessions=(session,))


def test_a_session_listed_twice_is_refused() -> None:
    twice = Candidate("a", 1.0, ())
    with pytest.raises(PlanError, match="listed twice"):
        Instance(tiers={}, sessions=(twice, twice))


def test_the_integer_program_of_many_gpus_is_refused_before_it_lists_them() -> None:
    instance = Instance(tiers={"near": Tier(10**9, 2.0)}, sessions=())
    with pytest.raises(PlanError, match="5000000000 variables"):
        SCHEDULERS["compass-ilp"](instance, "goodput", unmetered)


@pytest.mark.parametrize("policy", SCHEDULERS)
@pytest.mark.parametrize("sessions", [(), (Candidate("a", 1.0, ()),)])
def test_an_instance_with_nothing_to_choose_has_a_schedule(
    policy: str, sessions: tuple[Candidate, ...]
) -> None:
    made = SCHEDULERS[policy](Instance(tiers={}, sessions=sessions), "goodput", unmetered)
    assert made.plans == (None,) * len(sessions)
