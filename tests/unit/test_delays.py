"""How long hops take: by their quantiles, shorter in slower time, and for a while alike."""

from itertools import pairwise

import numpy as np
import pytest

from streams.delays import COMMIT_S, FETCH_S, drawn

HOPS = ((0.0, 0.001), (0.99, 0.004), (1.0, 0.1))


def test_in_slower_time_what_the_world_takes_is_that_much_shorter() -> None:
    real, slow = (drawn(np.random.default_rng(1), HOPS, factor) for factor in (1.0, 4.0))
    assert [slow.hop() * 4 for _ in range(100)] == pytest.approx([real.hop() for _ in range(100)])
    assert (slow.fetch(), slow.commit()) == (FETCH_S / 4, COMMIT_S / 4)


def test_with_a_clock_records_that_leave_together_are_held_up_together() -> None:
    times = np.arange(0.0, 1.0, 0.001).tolist()
    delays = drawn(np.random.default_rng(1), HOPS, 1.0, iter(times).__next__)
    found = [delays.hop() for _ in times]
    kept = [before == after for before, after in pairwise(found)]
    assert sum(kept) / len(kept) == pytest.approx(0.75, abs=0.06)  # another one every 4 ms
    assert min(found) >= 0.001
    assert max(found) <= 0.1
