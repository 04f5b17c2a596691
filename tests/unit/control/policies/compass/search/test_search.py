"""The search finds compliant plans and finally the cheapest; equal inputs give equal searches."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.sequential_tests import run_test
from control.policies.compass.search.camo import (
    PRICED,
    Past,
    Profiled,
    SearchOptions,
    SessionSearch,
    Slo,
)
from control.policies.compass.search.composition import Deployment, HopBytes, queued
from control.policies.compass.search.pricing import cheapest_estimates, priced
from control.policies.compass.search.sequential_test import StopRule, Verdict
from control.problem.problem import PlanError
from control.problem.space import Knob, Space, Stage

TIERS = ("edge", "near", "cloud")
SPEED = np.array([0.1, 0.45, 1.0])
PRICE = np.array([0.0, 2.0, 5.0])
RULE = StopRule(most=200)


def a_space(pinned: bool = False, options: int = 4) -> Space:
    names = tuple(str(each) for each in range(options))
    return Space(
        stages=(
            Stage("scan", "", ("edge",) if pinned else TIERS, cpu=True),
            Stage("find", "scan", TIERS),
            Stage("read", "find", TIERS),
        ),
        knobs=(
            Knob("scan", "scale", names),
            Knob("find", "net", names),
            Knob("read", "net", names),
        ),
        tiers=TIERS,
    )


class World:
    """Draw true accuracies and seconds of a space by a seed."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        rng = np.random.default_rng(seed)
        rows = space.configurations
        gain = [np.sort(rng.uniform(0, 0.2, len(knob.options))) for knob in space.knobs]
        loss = sum(gain[k].max() - gain[k][rows[:, k]] for k in range(rows.shape[1]))
        self.accuracy = np.clip(0.97 - loss, 0.05, 0.98)
        base = np.array([0.001, 0.01, 0.02])
        self.seconds = base * (1 + 2.0**rows)
        self.sent = np.tile([2e5, 1e5, 2e4, 1e3], (len(rows), 1))
        self.deployment = self._deployment()
        self._rng_seed = seed

    def _deployment(self) -> Deployment:
        space, placements = self.space, self.space.placements
        cpu = np.array([stage.cpu for stage in space.stages])
        ends = np.zeros((len(placements), 1), dtype=int)
        froms, tos = (np.hstack(each) for each in ((ends, placements), (placements, ends)))
        rate = np.where(froms == 0, 50e6, 500e6) / 8
        return Deployment(
            space=space,
            slowdown=np.where(cpu, 1.0, 1 / SPEED[placements]).T,
            per_byte=np.where(froms != tos, 1 / rate, 0).T,
            delay=np.where(froms != tos, 0.01, 0).T,
            price=np.where(cpu, 0.0, PRICE[placements]).T,
            memory=np.zeros((space.configuration_count, len(space.stages))),
            capacity=np.ones((len(space.stages), len(placements))),
            fits=np.ones((space.configuration_count, len(placements)), dtype=bool),
            own_tiers=frozenset({"edge"}),
        )

    def profiled(self, configuration: int, slo: Slo) -> Profiled:
        rng = np.random.default_rng([self._rng_seed, configuration])
        scores = (rng.random(RULE.most) < self.accuracy[configuration]).astype(float)
        return Profiled(
            configuration=configuration,
            tested=run_test(scores, slo.accuracy, RULE),
            seconds=tuple(self.seconds[configuration]),
        )


def searched(world: World, slo: Slo, history: list[Past], steps: int = 1000) -> SessionSearch:
    search = SessionSearch(world.deployment, slo, SearchOptions(rule=RULE), world.sent, history)
    for _ in range(steps):
        asked = search.ask()
        if asked is None:
            break
        search.tell(world.profiled(asked.configuration, slo))
    return search


def test_transfers_wait_for_their_link_and_for_ever_where_it_is_always_busy() -> None:
    seconds = np.array([0.0, 0.05, 0.1, 0.3])
    assert queued(seconds, 0.0).tolist() == seconds.tolist()
    # M/D/1: at 50 % utilisation a record waits for half of its own service time.
    assert queued(seconds, 5.0) == pytest.approx([0.0, 0.05 + 0.05 / 6, 0.15, np.inf])


SLO = Slo(accuracy=0.85, latency_s=0.25)


def first(world: World, slo: Slo, history: list[Past]) -> int:
    """Return the number of steps to the first compliant plan."""
    search = SessionSearch(world.deployment, slo, SearchOptions(rule=RULE), world.sent, history)
    for step in range(1, 200):
        asked = search.ask()
        assert asked is not None
        if search.tell(world.profiled(asked.configuration, slo)):
            return step
    return 200


def past(world: World, configurations: list[int]) -> Past:
    chosen = np.array(configurations)
    return Past(chosen, world.accuracy[chosen], np.full(len(chosen), 1e-4), world.seconds[chosen])


@pytest.mark.parametrize("seed", range(5))
def test_a_finished_search_has_the_cheapest_accepted_plan(seed: int) -> None:
    world = World(a_space(), seed)
    search = searched(world, SLO, [])
    every = SessionSearch(world.deployment, SLO, SearchOptions(rule=RULE), world.sent)
    for configuration in range(world.space.configuration_count):
        every.tell(world.profiled(configuration, SLO))
    assert search.best is not None
    assert every.best is not None
    assert search.best.usd_per_h <= every.best.usd_per_h * 1.1 + 1e-9


def test_search_goes_on_while_a_less_likely_configuration_may_be_cheaper() -> None:
    """It ended after the sixty likeliest ones, if all of these cost more."""
    world = World(a_space(options=5), 0)
    everyone = np.arange(world.space.configuration_count)
    cost, _ = cheapest_estimates(
        world.deployment, everyone, world.seconds, world.sent, SLO.latency_s
    )
    known = int(np.argsort(cost, kind="stable")[5])
    plans = priced(world.deployment, known, world.seconds[known], world.sent[known], SLO.latency_s)
    least = min(plan.usd_per_h for plan in plans)
    cheaper, dearer = cost < 0.9 * least, cost > 1.5 * least
    cheaper[known] = False
    assert cheaper.any()
    assert dearer.sum() > PRICED
    world.accuracy = np.where(dearer, 0.95, np.where(cheaper, 0.86, 0.2))
    world.accuracy[known] = 0.95
    search = SessionSearch(
        world.deployment,
        SLO,
        SearchOptions(rule=RULE),
        world.sent,
        [past(world, list(everyone))] * 2,
    )
    assert search.tell(world.profiled(known, SLO))
    asked = search.ask()
    assert asked is not None
    assert cheaper[asked.configuration]


def test_found_plans_meet_the_slo_by_the_true_latencies() -> None:
    world = World(a_space(), 1)
    for plan in searched(world, SLO, []).plans:
        stages = range(3)
        seconds = world.seconds[plan.configuration].copy()
        for stage in stages:
            if plan.shares[stage]:
                seconds[stage] *= 4 / plan.shares[stage]
        true = world.deployment.latency(seconds[None], world.sent[:1])[0, plan.placement]
        assert true == pytest.approx(plan.latency_s)
        assert plan.latency_s <= SLO.latency_s


def test_history_of_a_like_session_saves_steps() -> None:
    without, with_history = [], []
    for seed in range(12):
        world = World(a_space(), seed)
        history = [past(world, list(range(0, 64, 3)))]
        without.append(first(world, SLO, []))
        with_history.append(first(world, SLO, history))
    assert sum(with_history) < sum(without)


def test_members_that_mislead_are_outvoted() -> None:
    world = World(a_space(), 2)
    wrong = Past(
        np.arange(64), 1 - world.accuracy, np.full(64, 1e-4), world.seconds[:, ::-1].copy()
    )
    assert first(world, SLO, [wrong, wrong, past(world, list(range(0, 64, 3)))]) < 20


def test_the_same_input_makes_the_same_search() -> None:
    one, other = (searched(World(a_space(), 3), SLO, [], steps=15) for _ in range(2))
    assert one.plans == other.plans


def test_a_pinned_stage_is_on_its_tier_in_every_plan() -> None:
    world = World(a_space(pinned=True), 4)
    plans = searched(world, SLO, []).plans
    assert plans
    assert {world.space.placed(plan.placement)["scan"] for plan in plans} == {"edge"}


def test_search_for_an_unreachable_slo_ends_with_the_nearest_plan() -> None:
    world = World(a_space(options=2), 5)
    search = searched(world, Slo(accuracy=1.0, latency_s=1e-6), [])
    assert search.plans == ()
    assert search.ask() is None
    assert search.nearest is not None


def test_a_cost_slo_bounds_every_plan() -> None:
    world = World(a_space(), 1)
    search = searched(world, Slo(accuracy=0.8, latency_s=0.2, usd_per_h=1.0), [])
    assert all(plan.usd_per_h <= 1.0 for plan in search.plans)


def test_accepted_plans_were_accepted_by_the_test() -> None:
    world = World(a_space(), 6)
    for plan in searched(world, SLO, []).plans:
        found = world.profiled(plan.configuration, SLO)
        assert found.tested.verdict is Verdict.ACCEPTED


def test_counts_and_names() -> None:
    space = a_space()
    assert (space.configuration_count, space.placement_count, space.plans) == (64, 27, 1728)
    assert a_space(pinned=True).placement_count == 9
    assert all(space.index_of(space.named(c)) == c for c in range(64))
    assert space.index_of({"scan.size": "9"}) is None
    assert a_space(options=3).digest != space.digest


@pytest.mark.parametrize(
    ("options", "stages", "plans"),
    [
        ((4, 4, 5), 4, 6480),  # SR, and VT with a fourth frame size
        ((5, 3, 6), 4, 7290),  # LVC
        ((6, 6), 3, 972),  # ACG
        ((4, 2, 4, 3, 3), 4, 23328),  # DVC with four encoders
    ],
)
def test_spaces_of_the_papers_applications_have_their_published_sizes(
    options: tuple[int, ...], stages: int, plans: int
) -> None:
    names = "abcd"[:stages]
    space = Space(
        stages=tuple(
            Stage(name, names[at - 1] if at else "", TIERS) for at, name in enumerate(names)
        ),
        knobs=tuple(
            Knob(names[at % stages], f"knob-{at}", tuple(map(str, range(count))))
            for at, count in enumerate(options)
        ),
        tiers=TIERS,
    )
    assert space.plans == plans == len(space.configurations) * len(space.placements)


def test_an_enormous_space_is_refused_with_its_largest_knob() -> None:
    names = tuple(map(str, range(400)))
    knobs = (Knob("a", "x", names), Knob("a", "y", names[:300]))
    with pytest.raises(PlanError, match=r"1,080,000 query plans.*shorten a\.x"):
        Space((Stage("a", "", TIERS + tuple("456789")),), knobs, TIERS + tuple("456789"))


def test_a_stage_without_tiers_is_refused() -> None:
    with pytest.raises(PlanError, match="no tier may run 'a'"):
        Space((Stage("a", "", ()),), (), TIERS)


@pytest.mark.parametrize("wrong", [{"accuracy": 1.2}, {"latency_s": 0.0}, {"usd_per_h": -1.0}])
def test_contradictory_slos_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PlanError, match="SLO"):
        Slo(**{"accuracy": 0.9, "latency_s": 0.1, **wrong})


def test_bytes_of_a_hop_are_those_of_equal_options_up_to_the_sender() -> None:
    space = a_space(options=2)
    hops = HopBytes(space)
    assert not hops.bytes.any()
    hops.tell(0, [100.0, 50.0, 20.0, 4.0])
    assert (hops.bytes[:, 0] == 100).all()  # the session's input
    assert (hops.bytes == [100.0, 50.0, 20.0, 4.0]).all()  # unknown sizes: the mean of known ones
    hops.tell(7, [100.0, 30.0, 10.0, 4.0])
    same_scan = space.prefixes[:, 0] == space.prefixes[7, 0]
    assert (hops.bytes[same_scan, 1] == 30).all()
    assert (hops.bytes[~same_scan, 1] == 50).all()
    assert hops.bytes[0, 2] == 20
    assert hops.bytes[1, 2] == 20  # the same scan and find as configuration 0
    assert hops.bytes[2, 2] == pytest.approx(15)  # another find: the mean of both known values


def test_a_configuration_that_cannot_run_is_never_proposed_again() -> None:
    world = World(a_space(options=2), 1)
    search = SessionSearch(
        world.deployment, Slo(accuracy=0.99, latency_s=10.0), SearchOptions(rule=RULE), world.sent
    )
    seen = set()
    while (proposal := search.ask()) is not None:
        assert proposal.configuration not in seen
        seen.add(proposal.configuration)
        search.exclude(proposal.configuration)
    assert len(seen) == world.space.configuration_count


@pytest.mark.parametrize(("most", "origin"), [(0, "own"), (1, "committee")])
def test_a_search_uses_as_much_history_as_its_options_say(most: int, origin: str) -> None:
    """With `history: 0`, `headrace search` used all of it."""
    world = World(a_space(options=2), 3)
    options = SearchOptions(rule=RULE, history=most)
    history = [past(world, [0, 1])] * 2
    search = SessionSearch(world.deployment, SLO, options, world.sent, history)
    proposal = search.ask()
    assert proposal is not None
    assert proposal.origin == origin


def a_doubtful_search() -> tuple[SessionSearch, World, Profiled, Profiled]:
    """Return a search with a sure plan, its profile, and that of a cheaper plan which only a few
    lucky samples and no other profile speak for."""
    world = World(a_space(), 0)
    search = SessionSearch(world.deployment, SLO, SearchOptions(rule=RULE), world.sent)
    sure, cheaper = (
        Profiled(configuration=c, tested=run_test(scores, SLO.accuracy, RULE), seconds=seconds)
        for c, scores, seconds in (
            (63, np.ones(200), (0.002, 0.05, 0.05)),
            (21, np.array([1.0] * 47 + [0.0] * 3), (0.002, 0.02, 0.02)),
        )
    )
    for c in (20, 22, 17, 25, 5, 37):  # one option away from the cheaper one
        search.tell(replace(sure, configuration=c, tested=run_test(np.zeros(200), 0.85, RULE)))
    assert search.tell(sure)
    asked = search.ask()
    assert asked is None or asked.prior is None
    return search, world, sure, cheaper


def test_a_doubtful_plan_serves_and_is_profiled_further_until_it_is_confirmed() -> None:
    search, _, _, cheaper = a_doubtful_search()
    assert search.tell(cheaper)
    assert search.best is not None
    assert search.best.configuration == cheaper.configuration
    asked = search.ask()
    assert asked is not None
    assert (asked.configuration, asked.placement) == (21, search.best.placement)
    assert asked.prior is not None
    assert asked.prior.mean < SLO.accuracy
    assert search.tell(replace(cheaper, tested=run_test(np.ones(400), SLO.accuracy, RULE)))
    assert search.best.configuration == cheaper.configuration
    asked = search.ask()
    assert asked is None or asked.configuration != cheaper.configuration


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_doubtful_plan_the_one_before_serves_again(fails: bool) -> None:
    """The cheaper plan had taken the place of the sure one."""
    search, _, sure, cheaper = a_doubtful_search()
    before = search.plans
    search.tell(cheaper)
    if fails:
        search.exclude(cheaper.configuration)
    else:
        rejected = replace(cheaper, tested=run_test(np.zeros(400), SLO.accuracy, RULE))
        assert search.tell(rejected) == ()
    assert search.plans == before
    assert search.best is not None
    assert search.best.configuration == sure.configuration
    asked = search.ask()
    assert asked is None or asked.prior is None
