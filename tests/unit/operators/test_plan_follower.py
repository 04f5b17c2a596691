"""Catching up with the plans topic: plans that are kept, and plans deleted by a tombstone."""

import pytest

from operators.plan_follower import CatchUp
from schemas.effects import PLANS, Arrived
from tests.builders import a_plan


def read(past: CatchUp, offset: int, epoch: int) -> None:
    event = Arrived(a_plan(epoch=epoch), PLANS, 0, offset, 0.0)
    past.take(event, f"p/{epoch}".encode())


def epochs(past: CatchUp) -> list[int]:
    return [event.record.epoch for event in past.newest()]  # type: ignore[union-attr]


def test_first_plan_after_a_purge_counts() -> None:
    past = CatchUp("p")
    past.end = 7
    for offset, epoch in enumerate((7, 8, 9)):
        read(past, offset, epoch)
    for offset, epoch in enumerate((7, 8, 9), start=3):
        past.forget(f"p/{epoch}".encode(), offset)
    assert epochs(past) == []
    read(past, 6, 1)
    assert (epochs(past), past.over) == ([1], True)


def test_a_past_that_ends_with_a_tombstone_is_over() -> None:
    past = CatchUp("p")
    past.end = 2
    read(past, 0, 7)
    past.forget(b"p/6", 1)
    assert (epochs(past), past.over) == ([7], True)


@pytest.mark.parametrize("key", [b"p/7", None])
def test_first_of_two_plans_with_the_same_epoch_counts(
    key: bytes | None,
) -> None:
    # A replaced control app sent the second one late: nodes keep the first (``accept``).
    past = CatchUp("p")
    past.end = 2
    for offset, reason in enumerate(("first", "late")):
        past.take(Arrived(a_plan(epoch=7, reason=reason), PLANS, 0, offset, 0.0), key)
    (kept,) = past.newest()
    assert kept.record.reason == "first"  # type: ignore[union-attr]
