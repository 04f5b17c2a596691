"""A calibrated world: recorded delays for a simulation, by rate, contention and seed."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.simulated.delays import ANY_SIZE
from streams.simulated.world import (
    BLOCK_S,
    Levels,
    Occupancy,
    Phase,
    World,
    WorldReplay,
    rate_of,
)


def steady(**values: float) -> Levels:
    """Return one sample every 10 ms of 20 s by level (``b0``: no other device busy)."""
    return {
        int(level[1:]): tuple((at / 100, value) for at in range(2000))
        for level, value in values.items()
    }


def a_phase(rate: float, hop_s: float, **stretch: float) -> Phase:
    return Phase(
        rate_qps=rate, seconds=20.0, hops=steady(b0=hop_s), ways_in=steady(b0=hop_s / 2),
        stretch={("read", "cpu", ANY_SIZE): steady(**stretch)} if stretch else {},
    )  # fmt: skip


class Situation:
    """Return what a replay needs to know about a run."""

    def __init__(self, rate: float = 10.0, busy: int = 0) -> None:
        self.now, self.rate, self.occupied = 0.0, rate, busy

    def replay(self, world: World, seed: int = 0, dilate: float = 1.0) -> WorldReplay:
        return WorldReplay(
            world, lambda *of: np.random.default_rng([seed, *of]), now=lambda: self.now,
            rate=lambda _from, _until: self.rate,
            busy=lambda: self.occupied, dilate=dilate,
        )  # fmt: skip


def test_a_batch_takes_longer_the_more_devices_are_busy() -> None:
    at = Situation()
    phase = a_phase(10.0, 0.001, b0=1.0, b1=2.0, b3=4.0)
    (stretch,) = at.replay(World((phase,))).stretches("read", "cpu").values()
    seen = {}
    for at.occupied in (0, 1, 2, 3, 9):
        seen[at.occupied] = stretch()
    # Of two equally near levels the lower one replaces a level that was not recorded.
    assert seen == {0: 1.0, 1: 2.0, 2: 2.0, 3: 4.0, 9: 4.0}


def test_a_slow_moment_makes_batches_of_every_size_and_level_longer() -> None:
    """Batches of two were recorded at another time than the slow one, beside another device."""
    ones = tuple((at / 100, 3.0 if 500 <= at < 800 else 1.0) for at in range(1500))
    twos = tuple((at / 100, 2.0) for at in range(1500, 2000))
    stretch = {("read", "cpu", 1): {0: ones}, ("read", "cpu", 2): {1: twos}}
    at, seen = Situation(), set()
    replay = at.replay(World((replace(a_phase(10.0, 0.001), stretch=stretch),)))
    one, two = (replay.stretches("read", "cpu")[size] for size in (1, 2))
    for at.now in np.arange(0.0, 400.0, 0.5):
        assert two() == 2 * one()
        seen.add(one())
    assert seen == {1.0, 3.0}


@pytest.mark.parametrize(("task", "device"), [("locate", "cpu"), ("read", "cuda:0")])
def test_a_task_or_device_that_was_not_recorded_keeps_the_profile(task: str, device: str) -> None:
    found = Situation().replay(World((a_phase(10.0, 0.001, b0=1.0),)))
    assert found.stretches(task, device) == {}


def test_a_batch_is_charged_what_was_measured_at_the_present_rate() -> None:
    slow = replace(a_phase(10.0, 0.001), charged={"read": {0: 1.5}})
    fast = replace(a_phase(20.0, 0.001), charged={"read": {0: 1.2}, "locate": {0: 1.1}})
    for rate, read in ((5.0, 1.5), (30.0, 1.2)):
        found = Situation(rate).replay(World((slow, fast)))
        assert [found.charged(task)() for task in ("read", "locate", "other")] == [read, 1.1, inf]


def test_a_batch_is_charged_what_was_measured_with_as_many_devices_busy() -> None:
    at = Situation()
    found = at.replay(World((replace(a_phase(10.0, 0.001), charged={"read": {0: 2.5, 2: 1.5}}),)))
    charged, seen = found.charged("read"), {}
    for at.occupied in range(4):
        seen[at.occupied] = charged()
    assert seen == {0: 2.5, 1: 2.5, 2: 1.5, 3: 1.5}


@pytest.mark.parametrize(
    ("rate", "share"), [(1.0, 0.0), (10.0, 0.0), (15.0, 0.5), (20.0, 1.0), (99.0, 1.0)]
)
def test_between_two_rates_their_delays_are_mixed_and_beyond_them_the_outer_one_stands(
    rate: float, share: float
) -> None:
    world, at = World((a_phase(10.0, 0.001), a_phase(20.0, 0.003))), Situation(rate)
    hop = at.replay(world).delays().hop
    found = []
    for block in range(400):
        at.now = block * BLOCK_S
        found.append(hop() == 0.003)
    assert np.mean(found) == pytest.approx(share, abs=0.1)


def test_seeds_differ_by_the_phases_that_stand_for_a_rate() -> None:
    """Two passes that differ: the machine drifted, and a prediction must be as uncertain."""
    world = World((a_phase(10.0, 0.001), a_phase(10.0, 0.003)))
    means = []
    for seed in range(40):
        at, found = Situation(), []
        hop = at.replay(world, seed).delays().hop
        for block in range(50):
            at.now = block * BLOCK_S
            found.append(hop())
        means.append(float(np.mean(found)))
    assert min(means) == pytest.approx(0.001)
    assert max(means) == pytest.approx(0.003)
    assert np.mean(means) == pytest.approx(0.002, abs=0.0004)


def test_a_pause_of_the_machine_holds_up_everything_at_once() -> None:
    paused = {0: tuple((at / 100, 0.1 if 500 <= at < 1500 else 0.001) for at in range(2000))}
    phase = Phase(rate_qps=1.0, seconds=20.0, hops=paused, ways_in=paused, ways_out=paused)
    at = Situation()
    delays = at.replay(World((phase,))).delays()
    assert delays.way_in is not None
    assert delays.way_out is not None
    kinds = (delays.hop, delays.way_in, delays.way_out)
    same = 0
    for step in range(500):
        at.now = step * 0.37
        same += len({each() for each in kinds}) == 1
    assert same > 480  # at the edges of a pause neighbours differ


def test_in_slower_time_delays_are_shorter_and_a_stretch_is_not() -> None:
    world = World((a_phase(10.0, 0.004, b0=2.0),))
    found = Situation().replay(world, dilate=4.0)
    (stretch,) = found.stretches("read", "cpu").values()
    assert (found.delays().hop(), stretch()) == (0.001, 2.0)


def test_delay_missing_from_every_phase_uses_broker_delays_alone() -> None:
    world = World((Phase(rate_qps=1.0, seconds=20.0),), ((0.0, 0.002), (1.0, 0.002)))
    delays = Situation().replay(world).delays()
    assert (delays.hop(), delays.way_out and delays.way_out()) == (0.002, 0.002)


def test_a_phase_that_lacks_a_delay_borrows_that_of_the_nearest_rate() -> None:
    bare = Phase(rate_qps=30.0, seconds=20.0)
    world = World((a_phase(10.0, 0.001), a_phase(20.0, 0.002), bare))
    assert Situation(rate=30.0).replay(world).delays().hop() == 0.002


@given(st.integers(0, 2**31), st.lists(st.floats(0.0, 500.0), min_size=1, max_size=30))
def test_a_replay_is_a_function_of_its_seed(seed: int, moments: list[float]) -> None:
    rng = np.random.default_rng(1)
    hops = {0: tuple((at / 10, float(v)) for at, v in enumerate(rng.random(200)))}
    world = World((Phase(rate_qps=10.0, seconds=20.0, hops=hops),) * 2)

    def played() -> list[float]:
        at = Situation()
        hop, found = at.replay(world, seed).delays().hop, []
        for at.now in moments:
            found.append(hop())
        return found

    assert played() == played()


def test_only_the_machine_s_own_devices_are_counted_as_busy_and_only_until_they_end() -> None:
    there = Occupancy({"cpu-0", "cpu-1"})
    there.begin("cpu-0", 2.0)
    there.begin("emulated-0", 9.0)
    there.begin("cpu-1", 3.0)
    assert [there.busy(now) for now in (1.0, 2.0, 3.0)] == [2, 1, 0]


def test_the_rate_is_of_the_wall() -> None:
    rate = rate_of(np.arange(100) / 10, dilate=4.0)  # 10/s for 10 s, 2.5/s of the wall for 40 s
    assert (rate(0.0, 4.0), rate(36.0, 44.0)) == (2.5, pytest.approx(2.5, abs=0.3))
    assert rate_of((), 1.0)(0.0, 4.0) == 0.0


def test_a_query_meets_the_delays_of_one_recorded_query() -> None:
    """Every tenth recorded query met a slow spell, which made its way in and its hop long."""
    way_in, hop = (
        {0: tuple((at / 10 + late_s, 0.01 if at % 10 == 0 else 0.001) for at in range(200))}
        for late_s in (0.0, 0.02)
    )
    at, found = Situation(), []
    delays = at.replay(
        World((Phase(rate_qps=10.0, seconds=20.0, ways_in=way_in, hops=hop),))
    ).delays()
    assert delays.sent is not None
    assert delays.way_in is not None
    for step in range(300):
        at.now = step * 0.3
        delays.sent()
        came = delays.way_in()
        at.now += 0.02
        found.append((came, delays.hop()))
    assert set(found) == {(0.01, 0.01), (0.001, 0.001)}
