"""How long hops take: by their quantiles, shorter in slower time, and for a while alike."""

from itertools import pairwise

import numpy as np
import pytest

from streams.delays import COMMIT_S, FETCH_S, World, as_seen, drawn

HOPS = ((0.0, 0.001), (0.99, 0.004), (1.0, 0.1))


def test_in_slower_time_what_the_world_takes_is_that_much_shorter() -> None:
    real, slow = (drawn(np.random.default_rng(1), HOPS, factor) for factor in (1.0, 4.0))
    assert [slow.hop() * 4 for _ in range(100)] == pytest.approx([real.hop() for _ in range(100)])
    assert (slow.fetch(), slow.commit()) == (FETCH_S / 4, COMMIT_S / 4)


def test_as_seen_records_that_leave_together_are_held_up_together() -> None:
    times = np.arange(0.0, 1.0, 0.001).tolist()
    delays = as_seen(World(hops=HOPS), np.random.default_rng(1), 1.0, iter(times).__next__)
    found = [delays.hop() for _ in times]
    kept = [before == after for before, after in pairwise(found)]
    assert sum(kept) / len(kept) == pytest.approx(0.75, abs=0.06)  # another one every 4 ms
    assert min(found) >= 0.001
    assert max(found) <= 0.1


def test_as_seen_the_ways_in_and_out_and_the_lag_are_their_own() -> None:
    steady = [((0.0, seconds), (0.99, seconds), (1.0, seconds)) for seconds in (1.0, 2.0, 4.0, 8.0)]
    between, way_in, way_out, lag = steady
    world = World(hops=between, ways_in=way_in, ways_out=way_out, lags=lag)
    found = as_seen(world, np.random.default_rng(1), 2.0, lambda: 0.0)
    assert found.way_in is not None
    assert found.way_out is not None
    assert [each() for each in (found.hop, found.way_in, found.way_out, found.lag)] == [
        0.5, 1.0, 2.0, 4.0
    ]  # fmt: skip
