"""Known machines: work stands still in a pause, takes longer in a slow spell and beside others."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.known_machine import KnownMachine, KnownWorld

EVEN = KnownWorld(
    name="even", medians_s={"read": [0.01, 0.02]}, hop_s=0.001, hop_sigma=0.0, stretch=2.0,
    stretch_sigma=0.0, contention=0.5,
)  # fmt: skip


class Moment:
    """Returns what a machine needs to know about a run."""

    def __init__(self) -> None:
        self.now, self.busy, self.rate = 0.0, 0, 10.0

    def machine(self, world: KnownWorld) -> KnownMachine:
        return world.replay(
            lambda *of: np.random.default_rng([1, *of]), now=lambda: self.now,
            rate=lambda _from, _until: self.rate, busy=lambda: self.busy,
        )  # fmt: skip


def test_a_quiet_machine_has_even_delays_and_batches_are_longer_beside_others() -> None:
    at = Moment()
    machine = at.machine(EVEN)
    stretch = machine.stretches("read", "cpu")
    assert machine.delays().hop() == pytest.approx(0.001)
    assert [stretch[size]() for size in (1, 2)] == pytest.approx([2.0, 2.0])
    at.busy = 2
    assert stretch[1]() == pytest.approx(4.0)
    assert machine.stretches("locate", "cpu") == {}


def test_nothing_goes_on_in_a_pause() -> None:
    at = Moment()
    hop = at.machine(replace(EVEN, pause_every_s=0.5, pause_for_s=0.1)).delays().hop
    ends_s = []
    for step in range(20_000):
        at.now = step / 1000
        ends_s.append(at.now + hop())
    steps_s = [after - before for before, after in pairwise(ends_s)]
    # What begins later ends later; all that begins in a pause ends 1 ms behind it.
    assert min(steps_s) >= -1e-9
    assert np.mean(np.array(steps_s) < 1e-9) == pytest.approx(1 / 6, abs=0.08)


def test_a_slow_spell_makes_all_work_longer() -> None:
    at = Moment()
    world = replace(EVEN, slow_every_s=5.0, slow_for_s=5.0, slow=3.0)
    machine, found = at.machine(world), set()
    hop = machine.delays().hop
    for step in range(1000):
        at.now = step / 10
        found.add(round(hop() * 1e3, 1))
    assert {1.0, 3.0} <= found
    assert all(1.0 <= each <= 3.0 for each in found)


def test_hops_take_longer_the_more_queries_come() -> None:
    at = Moment()
    assert at.machine(replace(EVEN, by_rate=0.1)).delays().hop() == pytest.approx(0.002)
