"""Cells of tables in plain text."""

from datetime import datetime

from headrace.cells import local_time


def test_a_time_has_the_day_beside_it() -> None:
    at = datetime(2026, 11, 22, 21, 5, 9).astimezone()
    assert local_time(at.timestamp()) == "2026-11-22 21:05:09"
