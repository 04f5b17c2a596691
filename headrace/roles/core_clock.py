"""A clock that stands still while the calling thread waits for a core of this machine.

The other processes of a machine are no part of an operator's seconds on a device of its own. An
emulated tier would multiply the time that they take from the operator by 1 / speed.
"""

import time
from pathlib import Path

STATISTICS = Path("/proc/thread-self/schedstat")  # run, waited (nanoseconds), time slices


def without_core_waits_s() -> float:
    """Return the seconds of a monotonic clock, less those in which the calling thread was ready to
    run and had no core; only Linux tells these."""
    return time.monotonic() - _core_waits_s()


def waited_s(statistics: str) -> float:
    """Return the seconds of waiting for a core in a thread's ``schedstat``."""
    return int(statistics.split()[1]) / 1e9


def _core_waits_s() -> float:
    try:
        return waited_s(STATISTICS.read_text(encoding="ascii"))
    except OSError:  # a kernel without the statistics
        return 0.0
