"""Stops a borrowed broker when its borrower is gone, also one that was killed.

The borrower holds the other end of standard input; its end, however it comes, closes the pipe.
Run as ``python -m headrace.broker.watchdog HOME``.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker.connect import KAFKA_CONFIG
from headrace.processes import Process, environment
from headrace.terminal import waiting

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running

PATIENCE_S = 30.0


@contextlib.contextmanager
def kept(home: Path) -> Iterator[Process]:
    """While the block lasts, a process that would stop the broker of this home after us."""
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.broker.watchdog", str(home)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal is not meant for it
        env=environment(os.environ, None),
    ) as keeper:
        assert keeper.stdin is not None
        try:
            yield Process.found("keeper", keeper.pid)
        finally:
            keeper.stdin.close()
            keeper.wait(PATIENCE_S)


@contextlib.contextmanager
def temporary_broker(home: Path, what: str) -> Iterator[tuple["Running", tuple[Process, ...]]]:
    """A broker of this process's own, stopped after the block and also if this process is killed;
    with the processes that were started. ``what`` is said while it starts."""
    from headrace.broker.local_broker import borrow

    os.environ.pop(KAFKA_CONFIG, None)  # its own broker knows no passwords
    with contextlib.ExitStack() as stack:
        keeper = stack.enter_context(kept(home))
        with waiting(what):
            running = stack.enter_context(borrow(home))
        yield running, (keeper, Process.found("broker", running.pid))
        with waiting("stopping the broker"):
            stack.close()


def keep(home: Path) -> None:
    """Wait for the end of standard input, then stop the broker if it still runs."""
    sys.stdin.buffer.read()
    from headrace.broker.local_broker import stop  # nothing heavy stays in memory while it waits

    stop(home)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
