"""The clock of nodes while the machine's clock is set."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.live.steady_clock import LOOK_S, SLEW, SteadyClock


@dataclass
class Machine:
    """Time that the test advances; the wall clock is off by ``error_s``."""

    passed_s: float = 0.0
    error_s: float = 0.0

    def wall(self) -> float:
        return 1_790_000_000.0 + self.passed_s + self.error_s

    def monotonic(self) -> float:
        return 5000.0 + self.passed_s

    def clock(self) -> SteadyClock:
        return SteadyClock(self.wall, self.monotonic)


@pytest.mark.parametrize("step_s", [-60.0, 60.0])
def test_a_step_of_the_wall_clock_is_followed_slowly(step_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.passed_s = 10.0
    before = clock()
    machine.error_s = step_s
    machine.passed_s = 11.0
    assert clock() - before == pytest.approx(1.0, abs=SLEW)
    machine.passed_s = 12.0
    assert clock() - before == pytest.approx(2.0, abs=2 * SLEW)


def test_it_ends_at_the_walls_time() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.error_s = 0.5
    for _ in range(200):
        machine.passed_s += LOOK_S
        clock()
    assert clock() == pytest.approx(machine.wall(), abs=0.02)


def test_a_host_that_is_suspended_for_a_night_wakes_with_the_right_time() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.passed_s, machine.error_s = LOOK_S, 0.001  # as while NTP corrects the wall clock
    clock()
    machine.passed_s += 8 * 3600.0
    assert clock() == pytest.approx(machine.wall(), abs=SLEW)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(-100, 100)), max_size=50))
def test_it_never_goes_back(changes: list[tuple[float, float]]) -> None:
    machine = Machine()
    clock, last = machine.clock(), 0.0
    for passed_s, error_s in changes:
        machine.passed_s, machine.error_s = machine.passed_s + passed_s, error_s
        now = clock()
        assert now >= last
        last = now
