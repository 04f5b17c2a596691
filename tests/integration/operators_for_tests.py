"""Operators that fail or hang on request, for pipelines that tests run for real."""

import ctypes
import itertools
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from operators.timed_batch import seconds_left


class Brittle:
    """Return the inputs, unless one of them asks to hang, hoard memory or end the process."""

    def load(self, device: str) -> None:
        if device != "cpu":
            raise ValueError(f"no device {device}")

    def predict(self, batch: list[Any]) -> list[Any]:
        if b"hang" in batch:
            threading.Event().wait()
        if b"hoard" in batch:
            hoard = [bytearray(b"x" * (1 << 20)) for _ in itertools.count()]
            return hoard
        if b"die" in batch:
            os._exit(7)
        if b"fault" in batch:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a test needs no core file
            # os.kill would signal the main thread while this thread continues.
            ctypes.string_at(0)
        if b"killed" in batch:  # like the kernel when memory runs out
            os.kill(os.getpid(), signal.SIGKILL)
        if b"raise" in batch:
            raise KeyError("told to")
        if b"nonsense" in batch:
            return [threading.Lock()]
        return batch


class NeverLoads(Brittle):
    """An operator whose load does not end."""

    def load(self, device: str) -> None:
        threading.Event().wait()


class Told(Exception):
    """An exception that cannot be made anew from its message."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


class Careless(Brittle):
    """Fork, start a process, exit or return exceptions, as the inputs ask."""

    def predict(self, batch: list[Any]) -> list[Any]:
        if b"fork" in batch:
            os.fork()
        if b"start" in batch:
            return [subprocess.Popen(["sleep", "600"]).pid for _ in batch]
        if b"exit" in batch:
            sys.exit("no licence")
        if b"told" in batch:
            return [Told("dust", "the lens") if each == b"told" else each for each in batch]
        return super().predict(batch)


class Patient(Brittle):
    """Return the seconds that are left for each input."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return seconds_left(batch, math.inf)


def halting(results: list[Any]) -> Any:
    """Combine to the first result; one input makes the caller hang."""
    if b"halt" in results:
        threading.Event().wait()
    return results[0]


def halting_alone(results: list[Any]) -> Any:
    """Combine two results; a single result makes the caller hang."""
    if len(results) == 1:
        threading.Event().wait()
    return results[0]


class Halves:
    """Return two items per input for the child `echo`: a fixed one and the input itself."""

    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [{"echo": [b"first", value]} for value in batch]


class ToThree:
    """Return each input once for each of the children `one`, `two` and `three`."""

    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [{child: [value] for child in ("one", "two", "three")} for value in batch]


class Burning:
    """Use 20 ms of CPU time per batch; return the thread's CPU time and the monotonic time, in
    seconds."""

    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return [[time.thread_time(), time.monotonic()]] * len(batch)
