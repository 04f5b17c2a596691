"""control/per_query/batching.py: close the batch now, or wait until when?"""

from math import inf

import pytest

from control.per_query.batching import (
    BATCHERS,
    HELD_BATCHES,
    HELD_S,
    batch_size,
    most_held,
    released,
)


@pytest.mark.parametrize(
    ("name", "queued", "begins_s"),
    [("idle", 1, -inf), ("idle", 4, -inf), ("patient", 1, 7.5), ("patient", 4, -inf)],
)
def test_a_device_waits_for_more_only_where_it_is_patient(
    name: str, queued: int, begins_s: float
) -> None:
    assert BATCHERS[name](queued, 4, 7.5) == begins_s


def test_a_batch_is_what_waits_up_to_the_plans() -> None:
    assert [batch_size(queued, 4) for queued in (1, 4, 9)] == [1, 4, 4]


def test_why_a_batch_begins() -> None:
    assert [released(4, 4), released(3, 4), released(3, 4, "patient")] == ["full", "idle", "due"]
    assert released(4, 4, "patient") == "full"


def test_a_worker_holds_what_it_runs_until_more_can_have_come() -> None:
    assert most_held(2, 0.004) * 0.004 / 2 == HELD_S
    assert most_held(2, 0.0) == most_held(2, HELD_S) == HELD_BATCHES * 2
    assert most_held(3, 0.007) * 0.007 / 3 >= HELD_S
