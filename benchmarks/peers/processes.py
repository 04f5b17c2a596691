"""The processes of a server under test: its roots and all of their descendants."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

END_WITHIN_S = 15.0

CpuSeconds = Mapping[psutil.Process, float]


class Tree:
    """Processes with all of their children; ``roots`` are process ids."""

    def __init__(self, *roots: int) -> None:
        self._roots = [psutil.Process(root) for root in roots]

    def processes(self) -> list[psutil.Process]:
        """Return the living processes, parents first."""
        found = []
        for root in self._roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [root, *root.children(recursive=True)]
        return found

    def cpu_s(self) -> CpuSeconds:
        """Return the CPU seconds of each living process so far."""
        seconds = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds[process] = times.user + times.system
        return seconds


def spent_s(before: CpuSeconds, after: CpuSeconds) -> float:
    """Return the CPU seconds spent between two looks."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())


@contextmanager
def server(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, log: Path
) -> Iterator[int]:
    """Run a server in ``folder`` during the block, then end it and its descendants; yield its
    process id. A ``TimeoutError`` in the block gets the end of the server's log as a note."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command], cwd=folder, stdout=out, stderr=out, env={**os.environ, **variables}
        )
    try:
        yield process.pid
    except TimeoutError as error:
        error.add_note(f"the end of {log.name}:\n{log.read_text(errors='replace')[-2000:]}")
        raise
    finally:
        below = Tree(process.pid).processes()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN_S)
        left = below
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for each in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(each)
            _, left = psutil.wait_procs(left, END_WITHIN_S)
