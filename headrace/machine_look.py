"""A look at the machine of two seconds: how fast it computes, and how busy others keep it.

A calibration stores the look that was taken before it, and ``headrace fidelity`` takes another one
before it predicts. So a calibration that no longer holds is found in seconds, and not by minutes of
live runs. The look sees the CPU only.

    before, now = look(), look()
    print("; ".join(changes(before, now)))
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import psutil

LOOK_S = 2.0
ADDITIONS, SORTED = 40_000, 20_000  # a piece of work takes some 2 ms
SLOWER = 1.1  # a larger factor of CPU time, or one below its inverse, is a change
BUSIER = 0.15  # of all cores


@dataclass(frozen=True, slots=True)
class MachineLook:
    """``work_s``: the median CPU seconds of a piece of work that is always the same. ``others``:
    the fraction of all cores that other processes and other guests of the host used."""

    work_s: float
    others: float


def look(seconds: float = LOOK_S) -> MachineLook:
    """Return a look at this machine, taken now."""
    values = np.random.default_rng(0).random(SORTED)
    before, own_s, until_s = psutil.cpu_times(), time.process_time(), time.monotonic() + seconds
    took_s = [_work_s(values)]
    while time.monotonic() < until_s:
        took_s.append(_work_s(values))
    own_s = time.process_time() - own_s
    used_s, every_s = cpu_used_s(before, psutil.cpu_times())
    others = (used_s - own_s) / every_s if every_s > 0 else 0.0
    return MachineLook(work_s=round(median(took_s), 7), others=round(max(0.0, others), 4))


def changes(before: MachineLook, now: MachineLook) -> Iterator[str]:
    """Yield what changed between two looks, as clauses."""
    factor = now.work_s / before.work_s
    if not 1 / SLOWER <= factor <= SLOWER:
        yield f"the same work takes {factor:.2f} times the CPU time"
    if abs(now.others - before.others) > BUSIER:
        yield f"other work uses {now.others:.0%} of the cores, and used {before.others:.0%}"


def cpu_used_s(before: Any, now: Any) -> tuple[float, float]:
    """Return the CPU seconds of all cores that were used between two ``psutil.cpu_times()``, and
    those that there were."""
    spent = {name: getattr(now, name) - getattr(before, name) for name in now._fields}
    # User time includes guest time.
    every_s = sum(s for name, s in spent.items() if not name.startswith("guest"))
    return every_s - spent["idle"] - spent.get("iowait", 0.0), every_s


def _work_s(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    began_s, total = time.thread_time(), 0
    for number in range(ADDITIONS):
        total += number
    np.sort(values)
    return time.thread_time() - began_s
