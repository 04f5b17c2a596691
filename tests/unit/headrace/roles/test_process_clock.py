"""The clock of a role's process."""

import sys
import time

import pytest

from headrace.roles.process_setup import process_clock


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such clock")
def test_it_counts_the_time_in_which_the_host_was_suspended() -> None:
    clock = process_clock._monotonic
    assert clock.func is time.clock_gettime  # type: ignore[attr-defined]
    assert clock.args == (time.CLOCK_BOOTTIME,)  # type: ignore[attr-defined]
    assert clock() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=60.0)
