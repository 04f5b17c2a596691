"""Tune the heap of a role's process: collect garbage seldom, return freed memory often.

Records and effects form no cycles: reference counting frees them. At the default of one collection
per 700 new objects the collector found nothing and took an eighth of the time (two stages in
simulation: 1.73 s of CPU with it, 1.52 s without).

glibc keeps what was freed in the middle of an arena, and gives each thread an arena: 1 to 4 MB of
what a backlog takes of a role (docs/results/chaos.md, "Memory over an hour").
"""

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from functools import cache

NEW_OBJECTS = 50_000  # between two collections
TRIM_EVERY_S = 10.0  # trimming takes 0.02 ms where nothing is free, 0.1 ms after the start


def collect_seldom() -> None:
    """Set the collector's thresholds for this process and freeze the existing objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 100)


def tune_heap() -> None:
    """Collect seldom, and return freed memory to the system every ``TRIM_EVERY_S`` from now on."""
    collect_seldom()
    threading.Thread(target=_trim_often, name="trim", daemon=True).start()


def trim() -> bool:
    """Return the heap's free pages to the system; False where the C library cannot (not glibc)."""
    malloc_trim = _malloc_trim()
    if malloc_trim is None:
        return False
    malloc_trim(0)
    return True


@cache  # each CDLL makes a class, which only a full collection frees
def _malloc_trim() -> Callable[[int], int] | None:
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


def _trim_often() -> None:
    while trim():
        time.sleep(TRIM_EVERY_S)
