"""control/per_query/table_lookup.py: the arrival rate at a worker, which selects a table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.per_query.table_lookup import WINDOW_S, OwnLoad


def after(*times_s: float) -> OwnLoad:
    load = OwnLoad(0.0)
    for at_s in times_s:
        load.arrived(1, at_s)
    return load


def test_before_a_whole_window_was_seen_the_load_is_without_bound() -> None:
    assert after(0.1, 0.2).qps(WINDOW_S - 0.01) == math.inf


def test_even_gaps_tell_the_rate() -> None:
    assert after(*(n / 10 for n in range(1, 21))).qps(2.0) == pytest.approx(10.0)


def test_a_gap_that_goes_on_bounds_the_rate() -> None:
    # One query came at 1.0 s; at 2/s the next would have arrived before now.
    assert after(0.5, 1.0).qps(1.5) == pytest.approx(2.0)
    assert after(0.5, 1.0).qps(1.5, run=3) == pytest.approx(6.0)
    assert after(1.0).qps(11.0) == pytest.approx(0.1)


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=200))
def test_no_more_arrivals_are_kept_than_the_window_needs(gaps_s: list[float]) -> None:
    load, now = OwnLoad(0.0), 0.0
    for gap_s in gaps_s:
        now += gap_s
        load.arrived(1, now)
        load.qps(now)
    assert len([at for at in load._times if at <= now - WINDOW_S]) <= 1
