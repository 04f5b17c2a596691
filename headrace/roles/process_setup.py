"""Set up the process of a role: its clock, its time dilation, and the schema release in which it
writes.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import click

from headrace.broker.connect import release_limit
from schemas.codec.single_object import write_as
from schemas.release import RELEASE, UNDECLARED
from streams.live.dilation import REAL, Dilation
from streams.live.steady_clock import Clock, SteadyClock

# This clock counts the time in which the host was suspended; Linux's monotonic clock does not. A
# role would lag by that time, and drop every query as late for the rest of its life.
ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Of nodes, timers and time stamps.
process_clock = SteadyClock(time.time, partial(time.clock_gettime, ELAPSED))


def write_within_limit() -> Callable[[int], None]:
    """Return a function that sets the schema release in which this process writes, up to
    ``HEADRACE_WRITE_RELEASE``; before the first plan it is that of nodes that declare none."""
    most = release_limit() or RELEASE

    def write(release: int) -> None:
        write_as(min(release, most))

    write(UNDECLARED)
    return write


DILATION = "HEADRACE_DILATION"  # FACTOR@SINCE: slow-down factor, and its start in epoch seconds


def dilation(env: Mapping[str, str] = os.environ) -> Dilation:
    """Return this process's dilation; raise ``click.UsageError`` for an invalid variable."""
    said = env.get(DILATION, "")
    if not said:
        return REAL
    factor, _, since = said.partition("@")
    try:
        found = Dilation(float(factor), float(since))
    except ValueError:
        found = Dilation(0.0)
    if not found.factor > 0:
        raise click.UsageError(
            f"{DILATION} is {said!r}; it is set by `headrace fidelity` as FACTOR@SINCE, so unset it"
        )
    return found


def node_clock() -> Clock:
    """Return the process' clock as its nodes see it; the dilation is read once."""
    return dilation().clock(process_clock)


@contextmanager
def dilated(factor: float, since_s: float) -> Iterator[Dilation]:
    """Set the dilation of the processes started within the block; restore it afterwards."""
    before = os.environ.get(DILATION)
    os.environ[DILATION] = f"{factor!r}@{since_s!r}"
    try:
        yield Dilation(factor, since_s)
    finally:
        if before is None:
            del os.environ[DILATION]
        else:
            os.environ[DILATION] = before
