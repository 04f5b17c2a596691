"""When a link counts as drifted, and the rate that is then assumed."""

import pytest

from control.problem.tiers import Link
from control.sessions.link_drift import LinkDrift, LinkSums

PLANNED = Link(bytes_per_s=100_000.0, delay_s=0.01)
RECORD = 2000  # bytes


def seen(count: int, bytes_per_s: float, before: int = 0) -> tuple[Link, float] | None:
    """Return the observed rate after ``before`` records as planned and ``count`` others."""
    drift = LinkDrift()
    planned_s = RECORD / PLANNED.bytes_per_s + PLANNED.delay_s
    if before:
        drift.add(LinkSums(1.0, before, before * RECORD, before * planned_s))
    busy_s = count * (RECORD / bytes_per_s + PLANNED.delay_s)
    drift.add(LinkSums(1.2, count, count * RECORD, busy_s))
    return drift.seen(PLANNED)


@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("factor", [0.1, 0.3, 20.0])
def test_another_rate_is_found(factor: float, before: int) -> None:
    found = seen(4, PLANNED.bytes_per_s * factor, before)
    assert found is not None
    assert found[0].bytes_per_s == pytest.approx(PLANNED.bytes_per_s * factor)
    assert found[1] == 1.2


def test_small_slowdown_or_few_records_are_no_drift() -> None:
    assert seen(4, PLANNED.bytes_per_s * 0.8) is None
    assert seen(2, PLANNED.bytes_per_s * 0.1) is None


def test_broker_latency_of_milliseconds_is_no_drift() -> None:
    drift = LinkDrift()
    drift.add(LinkSums(1.0, 5, 5 * 10, 5 * (0.01 + 0.009)))  # 10 bytes each, 9 ms too long
    assert drift.seen(PLANNED) is None


@pytest.mark.parametrize("busy_s", [0.001, 0.5])
def test_records_without_bytes_do_not_show_the_rate(busy_s: float) -> None:
    drift = LinkDrift()
    planned = Link(bytes_per_s=100_000.0, delay_s=0.1)
    for at in range(5):
        drift.add(LinkSums(1.0 + at / 10, 1, 0.0, busy_s))
    assert drift.seen(planned) is None
    drift.add(LinkSums(1.5, 3, 3 * RECORD, 3 * (0.2 + 0.1)))
    found = drift.seen(planned)
    assert found is not None
    assert found[0].bytes_per_s == pytest.approx(10_000.0)


def test_old_transfers_are_forgotten() -> None:
    drift = LinkDrift()
    drift.add(LinkSums(1.0, 4, 4 * RECORD, 4 * 0.5))
    drift.add(LinkSums(3.0, 1, RECORD, 0.03))
    assert drift.seen(PLANNED) is None


def test_transfers_before_the_change_do_not_dilute_it() -> None:
    drift = LinkDrift()
    drift.add(LinkSums(1.0, 2, 2 * RECORD, 2 * 0.03))
    drift.add(LinkSums(1.4, 1, RECORD, 0.21))
    found = drift.seen(PLANNED)
    assert found is not None
    assert found[0].bytes_per_s == pytest.approx(PLANNED.bytes_per_s / 10)
    assert found[1] == 1.4


def test_drift_is_detected_on_a_link_that_carries_two_records_a_second() -> None:
    drift = LinkDrift()
    for number in range(3):
        drift.add(LinkSums(1.0 + 0.6 * number, 1, RECORD, 0.6))
    found = drift.seen(PLANNED)
    assert found is not None
    assert found[0].bytes_per_s == pytest.approx(RECORD / 0.59)
