"""Tune the heap of a role's process: collect garbage seldom, return freed memory every 10 s.

Records and effects form no cycles: reference counting frees them. At the default of one collection
per 700 new objects the collector found nothing and took an eighth of the time (two stages in
simulation: 1.73 s of CPU with it, 1.52 s without).

glibc keeps memory that is freed in the middle of an arena, and gives each thread an arena. Trimming
returns 1 to 4 MB of a backlog's memory (docs/results/chaos.md, "Memory over an hour").

It maps each large block anew, and returns memory freed at the heap's end at once: each matching of
200 queries and devices caused 202 page faults, a quarter of its time. ``keep_freed`` lets both
begin at ``KEPT_BYTES``.
"""

import ctypes
import gc
import threading
import time
from functools import cache
from typing import Any

NEW_OBJECTS = 50_000  # between two collections
KEPT_BYTES = 4 * 2**20  # of freed memory, between two trims; matrices of 700 x 700
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_... of malloc.h
TRIM_EVERY_S = 10.0  # trimming takes 0.02 ms where nothing is free, 0.1 ms after the start


def collect_seldom() -> None:
    """Set the collector's thresholds and freeze the existing objects, in a process that has just
    started: imports leave five objects of garbage, and to find them takes 40 ms of CPU, a twentieth
    of a role's start."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 100)


def tune_heap() -> None:
    """Tune a process that has just started: collect seldom, and return freed memory to the system
    every ``TRIM_EVERY_S`` from now on, not at once."""
    collect_seldom()
    keep_freed()
    threading.Thread(target=_trim_often, name="trim", daemon=True).start()


def keep_freed() -> bool:
    """Keep freed memory, up to ``KEPT_BYTES``, until it is trimmed; False if the C library cannot
    (not glibc)."""
    mallopt = _in_libc("mallopt")
    if mallopt is None:
        return False
    return all([mallopt(name, KEPT_BYTES) for name in (TRIM_THRESHOLD, MMAP_THRESHOLD)])


def trim() -> bool:
    """Return the heap's free pages to the system; False if the C library cannot (not glibc)."""
    malloc_trim = _in_libc("malloc_trim")
    if malloc_trim is None:
        return False
    malloc_trim(0)
    return True


@cache  # each CDLL makes a class, which only a full collection frees
def _in_libc(name: str) -> Any:
    """Return a function of the C library, or None if it lacks one of that name."""
    return getattr(ctypes.CDLL(None), name, None)


def _trim_often() -> None:
    while trim():
        time.sleep(TRIM_EVERY_S)
