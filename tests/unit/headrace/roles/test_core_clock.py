"""headrace/roles/core_clock.py: a thread's time without its waits for a core."""

import time

from headrace.roles.core_clock import waited_s, without_core_waits_s


def test_waits_are_the_second_figure_of_a_threads_statistics() -> None:
    assert waited_s("380433000 250000000 21\n") == 0.25


def test_the_clock_never_passes_more_time_than_a_monotonic_one() -> None:
    for _ in range(100):
        began_s, before_s = time.monotonic(), without_core_waits_s()
        after_s, ended_s = without_core_waits_s(), time.monotonic()
        assert after_s - before_s <= ended_s - began_s
