"""The control app is killed after each of its writes, and every command counts once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from control.controller.commands import ACTIONS
from control.controller.rental import Rentable
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from headrace.planning.rentable import query_draws
from schemas.effects import Effect, Forget, Send
from schemas.pipeline import Policy
from tests.control_world import World, a_pipeline, a_profile

VIT = Policy(name="accurate", replicas={"locate/net": 1, "read/vit": 2})
SLOW = Policy(name="slow", options={"quick": False})  # its plans come from solves only
NEVER = -1

# By action: the commands before it, and its arguments.
CASES: Mapping[str, tuple[tuple[tuple[str, dict[str, str]], ...], dict[str, str]]] = {
    "apply-policy": ((), {"policy": "accurate"}),
    "set-slo": ((), {"slo": "2s"}),
    "set-demand": ((), {"qps": "40"}),
    "release-demand": ((("set-demand", {"qps": "40"}),), {}),
    "set-price": ((), {"price": "fast=2"}),
    "set-budget": ((), {"budget": "3"}),
    "drain": ((), {"target": "w2"}),
    "restore": ((("drain", {"target": "w2"}),), {"target": "w2"}),
    "pause": ((), {}),
    "resume": ((("pause", {}),), {}),
    "replan": ((), {}),
    "rollback": ((("set-slo", {"slo": "2s"}), ("set-slo", {"slo": "3s"})), {"epoch": "2"}),
    "reload": ((("reload", {"variant": "all"}),), {"variant": "all"}),
}
POLICIES = (
    "slow",
    pytest.param("static", marks=pytest.mark.thorough),
    pytest.param("loki", marks=pytest.mark.thorough),
)


def a_rentable() -> Rentable:
    sizes = SizeDistribution((1,), (1.0,))
    pool = Pool(
        types=(PricedType("fast", 0.5), PricedType("slow", 0.1, most=3)),
        sizes=sizes, latency_s=((0.1,), (0.25,)), largest_s=(0.1, 0.25), largest_size=1, slo_s=60.0,
    )  # fmt: skip
    return Rentable(
        sizes=sizes, pool=lambda _: pool, budget=1.3, start=(0, 1), boot_s=(4.0, 4.0),
        draws=query_draws(np.random.default_rng(0)),
    )  # fmt: skip


@dataclass
class KilledWorld(World):
    """A world whose control app is killed after ``left`` writes; the rest of its effects are lost.

    The next one is killed after ``again`` writes, the one after it lives.
    """

    left: int = NEVER
    again: int = NEVER
    writes: int = 0  # of all control apps

    def _perform(self, effects: Iterable[Effect]) -> None:
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send | Forget):
                if self.left == 0:
                    return self._die(done)
                self.left -= 1
                self.writes += 1
            done.append(effect)
        super()._perform(done)

    def _die(self, done: Iterable[Effect]) -> None:
        self.solving = False
        super()._perform(done)
        self.solving = True
        self.left, self.again = self.again, NEVER
        self.restart_controller()


def commanded(policy: str, action: str, left: int, again: int = NEVER) -> KilledWorld:
    """Return a world in which a command was given and carried out; its control app was killed
    after ``left`` further writes, the next one after ``again``."""
    before, arguments = CASES[action]
    pipeline = replace(a_pipeline(policies=(VIT, SLOW)), policy=policy)
    rents = action in ("set-price", "set-budget")
    world = KilledWorld(pipeline, a_profile(), rentable=a_rentable() if rents else None)
    world.start("w0", "w1", "w2")
    for name, given in before:
        world.command(name, **given)
        world.run(3.0)
    world.left, world.again, world.writes = left, again, 0
    world.command(action, **arguments)
    world.run(5.0)
    return world


def end(world: KilledWorld) -> dict[str, Any]:
    """Return what commands have changed, and their results."""
    return {
        "settings": world.plan.settings,
        "leases": world.leases(),
        "results": Counter((result.action, result.ok) for result in world.results),
        "mix": world.plan.mix,
    }


def test_every_command_is_a_case() -> None:
    assert CASES.keys() == ACTIONS.keys()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("action", CASES)
def test_the_control_app_is_killed_after_each_write(policy: str, action: str) -> None:
    """``restore`` was refused after a kill, as its target was no longer drained, and ``reload`` had
    every operator loaded again."""
    undisturbed = commanded(policy, action, NEVER)
    for left in range(undisturbed.writes):
        for again in (NEVER, 0, 1):
            assert end(commanded(policy, action, left, again)) == end(undisturbed), (left, again)
