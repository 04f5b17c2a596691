"""control/per_query/local_pace.py: the pace of a device relative to its profile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.per_query.local_pace import ENOUGH, MEMORY, NOISE, RECENT, LocalPace


def paced(*took_s: float) -> LocalPace:
    """Return the pace after batches that were planned to take 10 ms each."""
    pace = LocalPace(lambda variant, batch: 0.01)
    for seconds in (9.0, *took_s):  # a library selects its kernels in the first batch
        pace.ran("read/v", 1, seconds)
    return pace


def test_a_device_that_keeps_to_its_profile_or_is_faster_is_not_stretched() -> None:
    assert [paced(*each).stretch for each in ((), (0.01,) * 9, (0.002,) * 9)] == [1.0, 1.0, 1.0]
    assert paced(*(0.01 * NOISE - 1e-6,) * 9).stretch == 1.0


def test_one_that_takes_twice_as_long_is_stretched_by_two() -> None:
    assert paced(*(0.02,) * 9).stretch == pytest.approx(2.0)


def test_device_that_takes_half_as_long_is_shrunk_by_half_after_enough_batches() -> None:
    assert paced(*(0.005,) * ENOUGH).shrink == pytest.approx(0.5)
    assert paced(*(0.005,) * (ENOUGH - 1)).shrink == 1.0
    assert [paced(*(each,) * 30).shrink for each in (0.0099, 0.01, 0.02)] == [1.0, 1.0, 1.0]


def test_the_longest_of_the_last_batches_is_known() -> None:
    assert [paced(*each).longest for each in ((), (0.005,), (0.01, 0.03, 0.02))] == [1.0, 1.0, 3.0]
    assert paced(0.05, *(0.01,) * (RECENT - 1)).longest == pytest.approx(5.0)
    assert paced(0.05, *(0.01,) * RECENT).longest == 1.0


def test_what_most_batches_took_is_likely() -> None:
    assert paced(*(0.01,) * 95, *(0.03,) * 5).likely == pytest.approx(3.0)
    assert paced(*(0.01,) * 96, *(0.03,) * 4).likely == 1.0
    assert paced(*(0.03,) * (ENOUGH - 1)).likely == 1.0
    assert paced(*(0.005,) * 50).likely == 1.0


def test_on_a_fast_device_what_is_likely_counts_from_its_own_pace() -> None:
    pace = paced(*(0.004, 0.004, 0.004, 0.004, 0.006) * 10)
    assert pace.likely * pace.shrink == pytest.approx(0.6)


def test_old_batches_are_forgotten() -> None:
    assert paced(*(0.05,) * 100, *(0.01,) * 5 * MEMORY).stretch == 1.0


def test_unmeasured_variant_gives_no_slowdown() -> None:
    pace = LocalPace(lambda variant, batch: 0.0)
    pace.ran("read/v", 1, 3.0)
    pace.ran("read/v", 1, 3.0)
    assert pace.stretch == 1.0


@given(st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=60))
def test_the_stretch_lies_between_the_least_and_the_most_that_was_seen(took: list[float]) -> None:
    ratios = [seconds / 0.01 for seconds in took]
    assert 1.0 <= paced(*took).stretch <= max(1.0, *ratios) * (1 + 1e-9)
