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
    TOGETHER_S,
    Delay,
    DelayTrace,
    RecordedQueries,
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


def unsent(now: Delay) -> RecordedQueries:
    """Return the queries of a recording that has none: moments stand for themselves."""
    return RecordedQueries((), np.random.default_rng(1), now, now)


def test_recorded_pause_of_the_machine_delays_every_event_in_it() -> None:
    # A delay every ms for ten seconds; in the sixth second everything is delayed.
    seen = tuple((at / 1e3, HELD_UP if 5000 <= at < 6000 else CALM) for at in range(10_000))
    world = DelayTrace(seconds=10.0, hops=seen, ways_in=seen, starts={"read": seen})
    now = 0.0
    found = as_seen(world, np.random.default_rng(1), 1.0, unsent(lambda: now))
    assert found.way_in is not None
    for now, expected in ((1.0, CALM), (5.5, HELD_UP), (9.9, CALM), (15.5, HELD_UP), (1e4, CALM)):
        kinds = (found.hop, found.way_in, found.way_out, found.starts["read"])
        assert {each() for each in kinds if each is not None} == {expected}, now


def test_parts_of_a_query_take_the_values_of_one_moment_in_turn_and_else_the_nearest() -> None:
    """Of three records one is late: among three that are drawn it would be missing in a third."""
    seen = ((0.1, 1.0), (0.1, 2.0), (0.1005, 3.0), (0.5, 4.0), (0.9, 5.0))
    rng = np.random.default_rng(1)
    for at_s in (0.0, 0.1, 0.29, 1.1):
        again = replayed(seen, 1.0, rng, repeat(at_s).__next__)
        assert {again() for _ in range(3)} == {1.0, 2.0, 3.0}
    moments = iter([0.31, 0.6, 0.99])
    again = replayed(seen, 1.0, rng, moments.__next__)
    assert [again() for _ in range(3)] == [4.0, 4.0, 5.0]


def test_queries_sent_together_meet_what_one_recorded_query_met() -> None:
    now = 50.3
    sent_s = [float(at) for at in range(100)]
    queries = RecordedQueries(sent_s, np.random.default_rng(1), lambda: now, lambda: 50.3)
    assert queries.moment() == 50.3  # none is sent so far
    queries.sent()
    stands = queries.moment()
    assert stands in sent_s
    assert abs(stands - 50.3) <= NEAR + 1
    now += TOGETHER_S / 2
    queries.sent()
    assert queries.moment() == pytest.approx(stands + TOGETHER_S / 2)
    drawn = set()
    for step in range(200):
        now = 60.0 + step
        queries.sent()
        drawn.add(queries.moment())
    assert len(drawn) == 2 * NEAR


def test_recorded_queries_are_drawn_as_often_as_they_were_seen() -> None:
    rng = np.random.default_rng(1)
    took = rng.exponential(1.0, 20_000)
    # After a pause it takes longer; the pause must not always be replaced by that one.
    took[::20] *= 5
    gaps = np.ones(20_000)
    gaps[::20] = 20.0
    times = np.cumsum(gaps) / 10
    seen = tuple(zip(times.tolist(), took.tolist(), strict=True))
    now = 0.0
    queries = RecordedQueries(times.tolist(), rng, lambda: now, lambda: now)
    again = replayed(seen, float(times[-1]) + 1.0, rng, queries.moment)
    found = []
    for moment in sorted(np.random.default_rng(2).uniform(0.0, times[-1], 40_000).tolist()):
        now = moment
        queries.sent()
        found.append(again())
    assert np.mean(found) == pytest.approx(took.mean(), rel=0.1)


def test_a_query_in_a_slow_spell_is_slow_at_all_its_tasks() -> None:
    """Drawn one by one, two delays would sum to 11 ms as often as they are in a slow spell."""
    first, second = (
        tuple((at / 10 + late_s, 0.01 if at % 10 == 0 else 0.001) for at in range(1000))
        for late_s in (0.0, 0.02)
    )
    now, rng = 0.0, np.random.default_rng(1)
    queries = RecordedQueries([at_s for at_s, _ in first], rng, lambda: now, lambda: now)
    one, two = (replayed(seen, 100.0, rng, queries.moment) for seen in (first, second))
    sums = []
    for moment in np.arange(0.0, 80.0, 0.2).tolist():
        now = moment
        queries.sent()
        found = one()
        now += 0.02
        sums.append(round((found + two()) * 1e3))
    assert set(sums) == {2, 20}
    assert sums.count(20) / len(sums) == pytest.approx(0.1, abs=0.05)


def test_as_seen_the_ways_in_and_out_and_the_lag_are_their_own() -> None:
    between, way_in, way_out, lag = ([(0.0, seconds)] * 9 for seconds in (1.0, 2.0, 4.0, 8.0))
    world = DelayTrace(seconds=1.0, hops=between, ways_in=way_in, ways_out=way_out, lags=lag)
    found = as_seen(world, np.random.default_rng(1), 2.0, unsent(lambda: 0.0))
    assert found.way_in is not None
    assert found.way_out is not None
    assert [each() for each in (found.hop, found.way_in, found.way_out, found.lag)] == [
        0.5, 1.0, 2.0, 4.0
    ]  # fmt: skip


def test_a_single_task_has_no_hops_between_and_its_ways_as_they_were_seen() -> None:
    world = DelayTrace(seconds=1.0, ways_in=[(0.0, 2.0)] * 9, ways_out=[(0.0, 4.0)] * 9)
    found = as_seen(world, np.random.default_rng(1), 1.0, unsent(lambda: 0.0))
    assert found.way_in is not None
    assert found.way_out is not None
    assert (found.way_in(), found.way_out()) == (2.0, 4.0)
    assert found.report() < 0.1  # as on the local broker


def test_machine_without_recorded_delays_counts_as_quiet() -> None:
    found = as_seen(DelayTrace(seconds=9.0), np.random.default_rng(1), 2.0, unsent(lambda: 0.0))
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
