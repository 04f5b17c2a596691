"""CPU seconds of this process and its ended children."""

import resource
import time  # noqa: TID251  (measures what a computation takes; no decision reads it)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def spent() -> tuple[float, float]:
    """Return ``cpu_seconds`` and the seconds of a clock that never goes back."""
    return cpu_seconds(), time.monotonic()
