"""Pass time dilation to every role of a run through an environment variable."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from streams.live.dilation import REAL, Dilation

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
