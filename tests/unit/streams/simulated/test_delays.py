"""Durations of hops: from quantiles, shortened in dilated time, or replayed from a recording."""

from itertools import repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.simulated.delays import (
    BESIDE_S,
    COMMIT_S,
    FETCH_S,
    NEAR,
    DelayTrace,
    as_seen,
    beside,
    drawn,
    replayed,
)

HOPS = ((0.0, 0.001), (0.99, 0.004), (1.0, 0.1))


def test_dilated_time_shortens_delays_of_the_world_by_the_factor() -> None:
    real, slow = (drawn(np.random.default_rng(1), HOPS, factor) for factor in (1.0, 4.0))
    assert [slow.hop() * 4 for _ in range(100)] == pytest.approx([real.hop() for _ in range(100)])
    assert (slow.fetch(), slow.commit()) == (FETCH_S / 4, COMMIT_S / 4)


CALM, HELD_UP = 0.001, 0.1


def a_machine_that_pauses() -> tuple[tuple[float, float], ...]:
    """Return a delay every ms for ten seconds; in the sixth second everything is delayed."""
    return tuple((at / 1e3, HELD_UP if 5000 <= at < 6000 else CALM) for at in range(10_000))


def test_recorded_pause_of_the_machine_delays_every_event_in_it() -> None:
    seen = a_machine_that_pauses()
    world = DelayTrace(seconds=10.0, hops=seen, ways_in=seen, starts={"read": seen})
    now = 0.0
    found = as_seen(world, np.random.default_rng(1), 1.0, lambda: now)
    assert found.way_in is not None
    for now, expected in ((1.0, CALM), (5.5, HELD_UP), (9.9, CALM), (15.5, HELD_UP), (1e4, CALM)):
        kinds = (found.hop, found.way_in, found.way_out, found.starts["read"])
        assert {each() for each in kinds if each is not None} == {expected}, now


def test_recorded_delays_are_equal_for_one_process_at_one_moment() -> None:
    rng = np.random.default_rng(1)
    seen = tuple((at / 1e3, float(took)) for at, took in enumerate(rng.random(1000)))
    for at_s in (0.2, 0.5, 0.9):
        together, apart = (
            replayed(seen, 1.0, rng, repeat(at_s).__next__, together=each) for each in (True, False)
        )
        assert len({together() for _ in range(50)}) == 1
        assert len({apart() for _ in range(200)}) == 2 * NEAR


@pytest.mark.parametrize("together", [True, False])
def test_recorded_delays_are_drawn_as_often_as_they_were_seen(together: bool) -> None:
    rng = np.random.default_rng(1)
    took = rng.exponential(1.0, 20_000)
    # After a pause it takes longer; the delay that replaces the pause must not always be that one.
    took[::20] *= 5
    gaps = np.ones(20_000)
    gaps[::20] = 20.0
    times = np.cumsum(gaps) / 1e3
    seen = tuple(zip(times.tolist(), took.tolist(), strict=True))
    moments = iter(np.random.default_rng(2).uniform(0.0, times[-1], 40_000).tolist())
    again = replayed(seen, float(times[-1]), rng, moments.__next__, together=together)
    assert np.mean([again() for _ in range(40_000)]) == pytest.approx(took.mean(), rel=0.1)


def test_as_seen_the_ways_in_and_out_and_the_lag_are_their_own() -> None:
    between, way_in, way_out, lag = ([(0.0, seconds)] * 9 for seconds in (1.0, 2.0, 4.0, 8.0))
    world = DelayTrace(seconds=1.0, hops=between, ways_in=way_in, ways_out=way_out, lags=lag)
    found = as_seen(world, np.random.default_rng(1), 2.0, lambda: 0.0)
    assert found.way_in is not None
    assert found.way_out is not None
    assert [each() for each in (found.hop, found.way_in, found.way_out, found.lag)] == [
        0.5, 1.0, 2.0, 4.0
    ]  # fmt: skip


def test_a_single_task_has_no_hops_between_and_its_ways_as_they_were_seen() -> None:
    world = DelayTrace(seconds=1.0, ways_in=[(0.0, 2.0)] * 9, ways_out=[(0.0, 4.0)] * 9)
    found = as_seen(world, np.random.default_rng(1), 1.0, lambda: 0.0)
    assert found.way_in is not None
    assert found.way_out is not None
    assert (found.way_in(), found.way_out()) == (2.0, 4.0)
    assert found.report() < 0.1  # as on the local broker


def test_machine_without_recorded_delays_counts_as_quiet() -> None:
    found = as_seen(DelayTrace(seconds=9.0), np.random.default_rng(1), 2.0, lambda: 0.0)
    quiet = drawn(np.random.default_rng(1), dilate=2.0)
    assert [found.hop() for _ in range(9)] == [quiet.hop() for _ in range(9)]


@given(seconds=st.floats(1.0, 500.0), share=st.floats(0.0, 0.999))
def test_a_moment_goes_by_another_that_is_near_it(seconds: float, share: float) -> None:
    at_s, span_s = seconds * share, min(BESIDE_S, seconds / 2)
    other_s = beside(at_s, seconds)
    assert 0 <= other_s < seconds
    assert abs(other_s - at_s) == pytest.approx(span_s)


def test_two_spans_take_each_others_moments() -> None:
    assert [beside(at_s, 45.0) for at_s in (0.0, 9.5, 10.0, 19.5, 20.5, 40.0, 44.0)] == [
        10.0, 19.5, 0.0, 9.5, 30.5, 30.0, 34.0
    ]  # fmt: skip
    assert beside(46.0, 45.0) == beside(1.0, 45.0)
    assert beside(-1.0, 45.0) == beside(44.0, 45.0)
