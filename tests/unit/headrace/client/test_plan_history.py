"""Times in `headrace policy history`."""

from datetime import datetime

from headrace.client.give_command import _clock


def test_a_plan_has_the_day_beside_the_time() -> None:
    at = datetime(2026, 11, 22, 21, 5, 9).astimezone()
    assert _clock(at.timestamp()) == "2026-11-22 21:05:09"
