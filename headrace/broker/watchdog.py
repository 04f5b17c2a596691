"""Stop a borrowed broker once its borrower has ended, even if the borrower was killed.

The borrower holds the write end of standard input; the pipe closes when the borrower ends. Run as
``python -m headrace.broker.watchdog HOME``.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker.connect import KAFKA_CONFIG
from headrace.processes import PYTHON, Process, environment
from headrace.terminal import waiting

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running

PATIENCE_S = 30.0


@contextlib.contextmanager
def watched(home: Path) -> Iterator[Process]:
    """Run a watchdog for the broker of this home while the block lasts."""
    with subprocess.Popen(
        [*PYTHON, "-m", "headrace.broker.watchdog", str(home)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        env=environment(os.environ, None),
    ) as watchdog:
        assert watchdog.stdin is not None
        try:
            yield Process.found("watchdog", watchdog.pid)
        finally:
            watchdog.stdin.close()
            watchdog.wait(PATIENCE_S)


@contextlib.contextmanager
def temporary_broker(home: Path, what: str) -> Iterator[tuple["Running", tuple[Process, ...]]]:
    """Yield a private broker and the started processes; the broker stops after the block, also if
    this process is killed. ``what`` is shown during start-up."""
    from headrace.broker.local_broker import borrow

    os.environ.pop(KAFKA_CONFIG, None)  # the private broker has no authentication
    with contextlib.ExitStack() as stack:
        watchdog = stack.enter_context(watched(home))
        with waiting(what):
            running = stack.enter_context(borrow(home))
        yield running, (watchdog, Process.found("broker", running.pid))
        with waiting("stopping the broker"):
            stack.close()


def stop_at_end_of_input(home: Path) -> None:
    """Wait for end of file on standard input, then stop the broker if it still runs."""
    sys.stdin.buffer.read()
    from headrace.broker.local_broker import stop  # imported late: little memory while it waits

    stop(home)


if __name__ == "__main__":
    stop_at_end_of_input(Path(sys.argv[1]))
