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

from headrace.processes import Process, environment

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


def keep(home: Path) -> None:
    """Wait for the end of standard input, then stop the broker if it still runs."""
    sys.stdin.buffer.read()
    from headrace.broker.local_broker import stop  # nothing heavy stays in memory while it waits

    stop(home)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
