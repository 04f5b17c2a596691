"""Sessions leave a device that has become slower than its profile, in virtual time."""

from typing import Any

import numpy as np
import pytest

from schemas.records import Hop, Session
from tests.session_world import EVERY_LINK, Profilers
from tests.simulation.session_system import World
from tests.toys import Toy

SLOWER_S, ENDS_S = 10.0, 30.0


def passing(value: Any, rng: np.random.Generator) -> Any:
    return {"read": [value]}


def answering(value: Any, rng: np.random.Generator) -> Any:
    return {"read": value}


class Profiled(Toy):
    """A model that takes the seconds of its profile, times those of its device in ``slower``."""

    def __init__(self, world: "Pacing", node: str, setting: str) -> None:
        scans = setting.startswith("scan")
        super().__init__(world.rng, passing if scans else answering, load_s=world.load_s)
        tier = node.split("-")[0]
        votes = 3 if "votes=3" in setting else 1
        self._each_s = (0.004 if scans else 0.01 * votes) / world.space.tiers[tier].speed
        self._slower, self._tier = world.slower, tier

    def latency_s(self, batch: int) -> float:
        return self._each_s * batch * self._slower.get(self._tier, 1.0)


class Pacing(World):
    """A system whose operators take the seconds of their profile; ``slower`` is by tier. Profilers
    take ``sample_s`` per sample."""

    def __init__(self, sample_s: float = 0.002) -> None:
        self.slower: dict[str, float] = {}
        super().__init__({"handheld": 2, "depot": 2, "cloud": 2}, EVERY_LINK, comm_s=0.003)
        self.profilers = Profilers(lambda options: 0.97, sample_s)
        self.system.start("profiler", self.profilers)

    def model(self, node: str, setting: str) -> Toy:
        return Profiled(self, node, setting)


def opened(slo: str, sample_s: float = 0.002) -> Pacing:
    world = Pacing(sample_s)
    world.command(1.0, "open-session", session="a", slo=slo, accuracy="0.9")
    world.ask("a", 5.0, ENDS_S, qps=20.0)
    world.system.run(SLOWER_S)
    return world


def reader(session: Session) -> str:
    return session.plans[session.chosen].tiers["read"]


@pytest.mark.thorough
@pytest.mark.parametrize(("slo", "steps"), [("32ms", 3), ("36ms", 2)])
def test_a_device_that_becomes_slower_is_left_within_seconds_and_nothing_is_profiled(
    slo: str, steps: int
) -> None:
    """18 ms of operators on the whole depot, 12 ms between processes. The pace rises over many
    batches, so first it asks for a smaller change. For ten seconds after it, the session missed its
    objective."""
    world = opened(slo)
    assert reader(world.session("a")) == "depot"
    run = len(world.profilers.run)
    world.slower["depot"] = 2.0
    world.system.run(ENDS_S)
    session = world.session("a")
    assert session.cause.startswith("its operators take longer than planned: ")
    assert (reader(session), session.stopped, session.replans) == ("cloud", "priced", steps)
    assert len(world.profilers.run) == run
    assert session.changed_s - SLOWER_S < 4.5
    hops: list[Hop] = [answer.paths[0][1] for answer in world.answers("a")]
    assert hops[-1].finished_s - hops[-1].started_s == pytest.approx(0.01)


def test_a_session_that_opens_beside_one_on_a_slower_device_is_planned_with_its_pace() -> None:
    world = opened("33.2ms")
    world.slower["depot"] = 1.3
    world.command(25.0, "open-session", session="b", slo="32ms", accuracy="0.9")
    world.system.run(ENDS_S)
    first, second = world.session("a"), world.session("b")
    assert (first.replans, reader(first), reader(second)) == (0, "depot", "cloud")
    for plan in second.plans:
        expected = {task: 1.3 for task, tier in plan.tiers.items() if tier == "depot"}
        assert plan.paces == pytest.approx(expected, rel=0.01)


def test_a_session_with_time_to_spare_stays_on_a_slower_device() -> None:
    world = opened("100ms")
    world.slower["depot"] = 1.3
    world.system.run(ENDS_S)
    assert world.session("a").replans == 0


def test_a_session_does_not_share_a_search_that_began_at_other_paces() -> None:
    """Its plan was too slow from its first query on, and it was planned again at once."""
    world = opened("33.2ms", sample_s=0.02)
    world.slower["depot"] = 1.3
    for at_s, name in ((10.1, "b"), (14.0, "c")):  # b's search is not over when c opens
        objectives = {"slo": "32ms", "accuracy": "0.9", "samples": "workload@2"}
        world.command(at_s, "open-session", session=name, **objectives)
    world.system.run(ENDS_S)
    assert world.session("b").replans == 1
    assert world.session("c").replans == 0
