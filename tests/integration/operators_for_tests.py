"""An operator that gets into trouble, of pipelines that tests run for real."""

import ctypes
import itertools
import os
import resource
import signal
import threading
import time
from typing import Any


class Brittle:
    """Its inputs back, unless one says to hang, to hoard memory, or to end the process."""

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
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file for a test
            # A signal from os.kill goes to the main thread, and this one would go on meanwhile.
            ctypes.string_at(0)
        if b"killed" in batch:  # as by the kernel when memory runs out
            os.kill(os.getpid(), signal.SIGKILL)
        if b"raise" in batch:
            raise KeyError("told to")
        if b"nonsense" in batch:
            return [threading.Lock()]
        return batch


def halting(results: list[Any]) -> Any:
    """Combine to the first result; one of them stops its caller for good."""
    if b"halt" in results:
        threading.Event().wait()
    return results[0]


def halting_alone(results: list[Any]) -> Any:
    """Combine two results; one alone stops its caller for good."""
    if len(results) == 1:
        threading.Event().wait()
    return results[0]


class Halves:
    """Two parts of each input for the child `echo`: another one, and the input itself."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [{"echo": [b"first", value]} for value in batch]


class ToThree:
    """Every input once for each of the children `one`, `two` and `three`."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [{child: [value] for child in ("one", "two", "three")} for value in batch]


class Burning:
    """Computes for 20 ms of CPU time a batch; returns its thread's CPU time and the time, s."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return [[time.thread_time(), time.monotonic()]] * len(batch)
