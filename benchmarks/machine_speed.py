"""Describe this machine and its speed, to tell a slow machine from a slow change."""

import os
import platform
import sys
import timeit

from headrace.machine import cpu_model
from headrace.machine import machine as described

ADDITIONS = 60_000_000  # about 1 s on most machines that the results pages name


def machine() -> dict[str, object]:
    """Return a description of this machine; the additions are timed now."""
    return {
        "cores": os.cpu_count(),
        "processor": cpu_model(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "additions_60m_s": round(additions_s(), 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def machine_line() -> str:
    """Return the description as one line."""
    return (
        f"{described()}; 60 million additions took {additions_s():.2f} s, "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def additions_s() -> float:
    """Return the seconds that Python takes for 60 million additions in a loop."""
    return timeit.timeit("total += 1", "total = 0", number=ADDITIONS)
