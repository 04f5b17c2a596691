"""control/estimation/slowdown.py: slowdown of a kind of device relative to the profile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.report_deltas import ReportDeltas
from control.estimation.slowdown import FEWEST, SHORT_S, Slowdown, drifted_kind, ran_since
from profiles.profile_table import ProfileTable
from schemas.records import Report
from tests.control_world import a_profile

PROFILE = a_profile()
PLANNED_S = PROFILE.latency_s("read", "forest", "cpu", 2, "mean")


def report(
    batches: float, busy_s: float, at_s: float, node: str = "w", began_s: float = 0.0
) -> Report:
    """Return the report of a worker that has run this many batches of two in this time."""
    counts = {
        "batches/read/forest": batches,
        "finished/read/forest": 2 * batches,
        "busy_s/read/forest": busy_s,
    }
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=began_s, sent_s=at_s,
        state="ready", device="cpu", task="read", variant="forest", counts=counts,
    )  # fmt: skip


def seen(*reports: Report, profile: ProfileTable | None = PROFILE) -> dict[str, float]:
    slowdown, readings = Slowdown(), ReportDeltas("worker")
    # Its first batch, in which a library selected its kernels, was before.
    for each in (report(0, 0.0, 0.2), report(1, 9.0, 0.4), *reports):
        news = readings.take(each)
        slowdown = slowdown.observe(each, ran_since(news, profile)) if news else slowdown
    return slowdown.stretches()


def test_batches_that_take_twice_as_long_stretch_their_kind_of_device_by_two() -> None:
    found = seen(report(1, 9.0, 1.0), report(51, 9.0 + 50 * 2 * PLANNED_S, 2.0))
    assert found == {"cpu": pytest.approx(2.0)}


def test_devices_that_keep_to_their_profile_or_are_faster_are_not_named() -> None:
    for part in (0.5, 1.0, 1.09):
        assert seen(report(1, 9.0, 1.0), report(51, 9.0 + 50 * part * PLANNED_S, 2.0)) == {}


def test_few_batches_give_no_slowdown() -> None:
    few = FEWEST - 1
    assert seen(report(1, 9.0, 1.0), report(1 + few, 9.0 + few * 9 * PLANNED_S, 2.0)) == {}


def test_what_was_counted_before_a_restart_is_not_counted_again() -> None:
    again = report(30, 30 * 9 * PLANNED_S, 5.0, began_s=4.0)
    assert seen(report(1, 9.0, 1.0), report(51, 9.0 + 50 * PLANNED_S, 2.0), again) == {}
    later = report(130, 130 * 9 * PLANNED_S, 6.0, began_s=4.0)
    assert seen(again, later) == {"cpu": pytest.approx(9.0)}


def test_an_old_report_changes_nothing() -> None:
    new = (report(1, 9.0, 1.0), report(51, 9.0 + 50 * 2 * PLANNED_S, 3.0))
    assert seen(*new, report(21, 9.0 + 20 * 9 * PLANNED_S, 2.0)) == seen(*new)


def test_old_batches_lose_weight() -> None:
    slow = report(201, 9.0 + 200 * 3 * PLANNED_S, 2.0)
    fast = report(801, 9.0 + 200 * 3 * PLANNED_S + 600 * PLANNED_S, 3.0)
    assert seen(slow, fast) == {}


SHORT = PROFILE.stretched({"cpu": 0.2 * SHORT_S / PLANNED_S})  # a batch is a fifth of SHORT_S


def test_stall_among_short_batches_is_no_slowdown() -> None:
    stalled_s = 50 * 0.2 * SHORT_S + 0.020
    assert seen(report(1, 9.0, 1.0), report(51, 9.0 + stalled_s, 2.0), profile=SHORT) == {}


@given(st.floats(1.2, 9.0))
def test_short_batches_show_a_slow_device_after_as_much_work(stretch: float) -> None:
    enough = 5 * FEWEST + 1
    slow = report(enough, 9.0 + stretch * (enough - 1) * 0.2 * SHORT_S, 2.0)
    assert seen(report(1, 9.0, 1.0), slow, profile=SHORT) == {"cpu": pytest.approx(stretch)}


def test_unmeasured_variant_gives_no_slowdown() -> None:
    new = (report(1, 9.0, 1.0), report(51, 9.0 + 50 * 2 * PLANNED_S, 2.0))
    assert seen(*new, profile=None) == {}


def test_plan_is_outdated_when_device_slowdowns_change_much() -> None:
    assert drifted_kind({}, {"cpu": 1.14}) is None
    assert drifted_kind({}, {"cpu": 1.2}) == ("cpu", 1.2)
    assert drifted_kind({"cpu": 2.0}, {"cpu": 1.9}) is None
    assert drifted_kind({"cpu": 2.0}, {}) == ("cpu", 1.0)
