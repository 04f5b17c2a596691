"""control/per_query/batching.py: whether to close a batch now or how long to wait."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.per_query.batching import (
    BATCHERS,
    HELD_BATCHES,
    HELD_S,
    IDLE,
    PATIENT,
    batch_size,
    batcher_of,
    most_held,
    release_rule,
    sparing,
)
from schemas.pipeline import Policy


@pytest.mark.parametrize(
    ("name", "queued", "begins_s"),
    [("idle", 1, -inf), ("idle", 4, -inf), ("patient", 1, 7.5), ("patient", 4, -inf)],
)
def test_only_a_patient_device_waits_for_more_items(
    name: str, queued: int, begins_s: float
) -> None:
    assert BATCHERS[name](queued, 4, 7.5) == begins_s


def test_a_device_also_waits_where_the_policy_has_a_delay() -> None:
    for rule in (IDLE, PATIENT):
        assert batcher_of(Policy(name="loki", batching=rule)) == rule
        assert batcher_of(Policy(name="loki", batching=rule, batch_delay_s=0.0)) == PATIENT


def test_a_batch_is_what_waits_up_to_the_plans() -> None:
    assert [batch_size(queued, 4) for queued in (1, 4, 9)] == [1, 4, 4]


def test_batch_start_reason_is_reported() -> None:
    assert [release_rule(4, 4), release_rule(3, 4), release_rule(3, 4, "patient")] == [
        "full",
        "idle",
        "due",
    ]
    assert release_rule(4, 4, "patient") == "full"


def test_worker_holds_its_items_until_more_can_have_arrived() -> None:
    assert most_held(2, 0.004) * 0.004 / 2 == HELD_S
    assert most_held(2, 0.0) == most_held(2, HELD_S) == HELD_BATCHES * 2
    assert most_held(3, 0.007) * 0.007 / 3 >= HELD_S


def takes_s(size: int) -> float:
    return 0.01 * (1 + size)


def test_items_of_a_slacker_class_join_only_while_the_most_urgent_is_in_time() -> None:
    own_s = [0.1, 1.0, 1.0, 1.0]
    assert sparing(4, own_s, [0.05, 0.9, 0.9, 0.9], takes_s) == 4
    assert sparing(4, own_s, [0.035, 0.9, 0.9, 0.9], takes_s) == 2
    assert sparing(4, own_s, [0.02, 0.9, 0.9, 0.9], takes_s) == 1


@pytest.mark.parametrize(("likely", "size"), [(1.0, 4), (1.1, 3), (1.4, 2), (2.0, 1), (9.0, 1)])
def test_items_of_a_slacker_class_leave_time_for_what_a_batch_likely_takes(
    likely: float, size: int
) -> None:
    own_s, left_s = [0.1, 1.0, 1.0, 1.0], [0.05, 0.9, 0.9, 0.9]
    assert sparing(4, own_s, left_s, takes_s, likely=likely) == size
    assert sparing(4, [0.1] * 4, left_s, takes_s, likely=likely) == 4


def test_items_of_one_class_do_not_make_the_batch_smaller_until_all_would_be_late() -> None:
    assert sparing(4, [0.1] * 5, [0.02, 0.05, 0.05, 0.05, 0.05], takes_s) == 4
    assert sparing(4, [0.1] * 4, [0.02] * 4, takes_s) == 1


def test_item_that_is_already_too_late_does_not_shrink_the_batch() -> None:
    assert sparing(4, [0.1, 1.0, 1.0, 1.0], [0.0, 0.9, 0.9, 0.9], takes_s) == 3
    assert sparing(4, [0.1, 1.0], [0.0, 0.0], takes_s) == 2  # none can be saved


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.3, 1.0]), st.floats(-0.1, 1.0)), min_size=1),
    st.integers(1, 8),
)
def test_a_sparing_batch_saves_an_urgent_item_if_one_of_its_own_class_alone_would(
    items: list[tuple[float, float]], largest: int
) -> None:
    by_deadline = sorted(items, key=lambda item: item[1])
    own_s, left_s = [own for own, _ in by_deadline], [left for _, left in by_deadline]
    size = sparing(largest, own_s, left_s, takes_s)
    assert 1 <= size <= min(largest, len(items))
    slack = [own > own_s[0] for own in own_s[1:]]
    if all(slack) and left_s[0] >= takes_s(1):
        assert takes_s(size) <= left_s[0]
