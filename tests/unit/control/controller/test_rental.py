"""The rental with a fleet whose devices take time to boot and to hand over their work."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.controller.missing_types import AGAIN_S, PATIENCE_S
from control.controller.rental import Rentable, Rental
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from headrace.planning.rentable import query_draws
from schemas.effects import Counted, Scale
from schemas.enumerations import NodeState
from schemas.pipeline import Policy
from schemas.records import Plan, Report, Settings

# One size: a fast device carries 10/s for 0.5 $/h, a slow one 4/s for 0.1 $/h. The SLO leaves time
# to wait, so a mix carries nearly its bound.
POOL = Pool(
    types=(PricedType("fast", 0.5), PricedType("slow", 0.1, most=3)),
    sizes=SizeDistribution((1,), (1.0,)), latency_s=((0.1,), (0.25,)), largest_s=(0.1, 0.25),
    largest_size=1, slo_s=60.0,
)  # fmt: skip
SETTINGS = Settings(policy="kairos", slo_s=60.0)
BOOT_S, LEAVE_S = 4, 2
POLICY = Policy(name="kairos", kind="kairos", options={"pick": "first"})


@dataclass
class World:
    """Step through seconds of arrivals with a fleet that follows the rental."""

    rental: Rental
    seed: int = 0
    now: float = 0.0
    arrived: int = 0
    ready_s: dict[str, list[float]] = field(default_factory=lambda: {"fast": [], "slow": [0.0]})
    gone_s: dict[str, list[float]] = field(default_factory=lambda: {"fast": [], "slow": []})
    scaled: list[Scale] = field(default_factory=list)
    dearest: float = 0.0
    sold_out: frozenset[str] = frozenset()  # types whose number cannot grow

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def pass_by(self, seconds: int, qps: float, settings: Settings = SETTINGS) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.arrived += int(self._rng.poisson(qps))
            self.rental.count(Counted(self.arrived, 0, self.now))
            serving = {t: sum(at <= self.now for at in each) for t, each in self.ready_s.items()}
            leaving = {t: sum(at > self.now for at in each) for t, each in self.gone_s.items()}
            for effect in self.rental.decide(serving, leaving, settings, POLICY, self.now):
                assert isinstance(effect, Scale)
                self._do(effect)
            cost = sum(p * self._paid(t) for t, p in (("fast", 0.5), ("slow", 0.1)))
            self.dearest = max(self.dearest, cost)

    def _do(self, effect: Scale) -> None:
        self.scaled.append(effect)
        here = self.ready_s[effect.type]
        while len(here) < effect.count:
            here.append(math.inf if effect.type in self.sold_out else self.now + BOOT_S)
        while len(here) > effect.count:
            here.pop()
            self.gone_s[effect.type].append(self.now + LEAVE_S)

    def _paid(self, type_: str) -> int:
        return len(self.ready_s[type_]) + sum(at > self.now for at in self.gone_s[type_])


def rental(budget: float = 1.3) -> Rental:
    def pool(sizes: SizeDistribution) -> Pool:
        # Twice the size takes twice the time.
        return replace(
            POOL,
            sizes=sizes,
            latency_s=tuple(tuple(s * size for size in sizes.sizes) for s in (0.1, 0.25)),
            largest_size=100,
        )

    return Rental(
        Rentable(
            sizes=POOL.sizes,
            pool=pool,
            budget=budget,
            start=(0, 1),
            boot_s=(BOOT_S, BOOT_S),
            draws=query_draws(np.random.default_rng(0)),
        )
    )


@pytest.mark.thorough
@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.floats(0, 40), min_size=1, max_size=4),
    st.floats(0.1, 2.0),
    st.integers(0, 1000),
)
def test_the_cost_never_exceeds_the_budget_and_the_mix_settles(
    demands: list[float], budget: float, seed: int
) -> None:
    world = World(rental(budget), seed)
    for demand in demands:
        world.pass_by(60, demand)
    assert world.dearest <= budget + 1e-9
    world.pass_by(60, 0.0)
    before = len(world.scaled)
    world.pass_by(120, 0.0)
    assert len(world.scaled) == before
    assert world.rental.mix == {"fast": 0, "slow": 1}


@pytest.mark.parametrize("silent_s", [3, 10, 20, 30, 90])
def test_counts_that_fail_for_a_while_release_no_device(silent_s: int) -> None:
    """The first count after a silence showed no arrivals, so that all devices were released."""
    world = World(rental(5.0))
    world.pass_by(60, 30.0)
    before = world.rental.mix
    scaled = len(world.scaled)
    world.now += silent_s
    world.arrived += 30 * silent_s
    world.pass_by(20, 30.0)
    assert world.rental.mix == before
    assert world.scaled[scaled:] == []


@pytest.mark.parametrize("qps", [1.0, 5.0, 10.0, 18.0])
def test_steady_demand_does_not_make_the_mix_swing(qps: float) -> None:
    world = World(rental(), seed=3)
    world.pass_by(60, qps)
    before = len(world.scaled)
    world.pass_by(300, qps)
    assert len(world.scaled) - before <= 10


def test_demand_prices_and_budget_set_by_commands_take_effect() -> None:
    world = World(rental())
    world.pass_by(40, 2.0, replace_settings(demand_qps=19.0))
    assert world.rental.mix == {"fast": 1, "slow": 3}
    # At 2 $/h slow devices cost more per throughput than fast ones.
    world.pass_by(40, 2.0, replace_settings(demand_qps=19.0, prices={"slow": 2.0}))
    assert world.rental.mix == {"fast": 2, "slow": 0}
    world.pass_by(1, 2.0, replace_settings(demand_qps=19.0, budget=0.5))
    assert world.rental.mix == {"fast": 1, "slow": 0}


def test_the_final_mix_is_rented_at_once_and_no_other_before_it() -> None:
    world = World(rental())
    world.pass_by(120, 2.0, replace_settings(demand_qps=19.0))
    assert world.scaled == [Scale("fast", 1), Scale("slow", 3)]


def replace_settings(**changed: object) -> Settings:
    return Settings(policy="kairos", slo_s=60.0, **changed)  # type: ignore[arg-type]


def test_larger_queries_need_more_devices() -> None:
    world = World(rental())
    world.pass_by(60, 3.0)
    assert world.rental.mix == {"fast": 0, "slow": 1}
    for count in (0.0, 5_000.0):
        world.rental.take(
            Report(
                node="ingress-0", role="ingress", pipeline="p", epoch=1, incarnation=0.0,
                sent_s=0.0, state=NodeState.READY, counts={"arrived": count, "size/3": count},
            )
        )  # fmt: skip
    world.pass_by(5, 3.0)
    assert world.rental.mix != {"fast": 0, "slow": 1}


def test_rental_continues_from_the_mix_of_a_plan() -> None:
    resumed = rental()
    plan = Plan(
        pipeline="p", epoch=1, issued_s=0.0, reason="", settings=SETTINGS, mix={"fast": 2, "old": 1}
    )
    resumed.resume(plan)
    assert resumed.mix == {"fast": 2, "slow": 0}
    assert resumed.decide({}, {}, SETTINGS, POLICY, 1.0) == []  # nothing is counted yet


def test_budget_below_every_price_keeps_running_devices() -> None:
    world = World(rental())
    world.pass_by(10, 3.0, replace_settings(budget=0.01))
    assert world.scaled == []
    assert "budget" in world.rental.trouble


def test_a_type_that_never_comes_is_given_up_for_another_and_tried_again_later() -> None:
    world = World(rental(), sold_out=frozenset(("slow",)))
    demand = replace_settings(demand_qps=11.0)
    world.pass_by(60, 2.0, demand)
    assert world.rental.mix == {"fast": 0, "slow": 3}  # one serves, two were requested
    world.pass_by(int(BOOT_S + PATIENCE_S), 2.0, demand)
    assert world.rental.mix == {"fast": 1, "slow": 1}
    world.sold_out = frozenset()
    world.pass_by(int(AGAIN_S), 2.0, demand)
    assert world.rental.mix == {"fast": 0, "slow": 3}
    assert world.dearest <= 1.3 + 1e-9
