"""control/per_query/arrival_rate.py: how much load is coming, for the choice of a table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.per_query.arrival_rate import RecentLoad


def after(*readings: tuple[float, int]) -> RecentLoad:
    load = RecentLoad()
    for now, arrived in readings:
        load = load.counted(arrived, now)
    return load


def test_before_a_whole_window_was_seen_the_load_is_without_bound() -> None:
    assert RecentLoad().qps == math.inf
    assert after((10.0, 0), (10.4, 40)).qps == math.inf


def test_the_load_is_what_came_within_the_last_window() -> None:
    assert after((10.0, 0), (10.5, 50)).qps == pytest.approx(100)
    # 30 in the first half second, 90 in the second.
    assert after((10.0, 0), (10.25, 15), (10.5, 30), (11.0, 120)).qps == pytest.approx(180)


def test_readings_far_apart_are_averaged_over() -> None:
    assert after((10.0, 0), (13.0, 300)).qps == pytest.approx(100)


def test_a_reading_from_before_the_newest_changes_nothing() -> None:
    load = after((10.0, 0), (10.5, 50))
    assert load.counted(99, 10.2) == load


def test_a_count_that_begins_anew_is_no_negative_load() -> None:
    assert after((10.0, 500), (10.5, 20)).qps == 0


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=200))
def test_no_more_readings_are_kept_than_the_window_needs(steps: list[float]) -> None:
    load, now = RecentLoad(), 0.0
    for count, step in enumerate(steps):
        now += step
        load = load.counted(count, now)
    kept = load._readings
    assert len([at for at, _ in kept if at <= now - load.window_s]) <= 1
    assert kept[-1] == (now, len(steps) - 1)
