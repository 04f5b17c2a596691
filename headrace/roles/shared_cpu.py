"""Keep the operators of a process to their device's share of CPU time."""

import time
from collections.abc import Callable
from threading import Condition
from typing import Any

from operators.serving.device_time import DeviceTime
from streams.live.executors import Operator

Clock = Callable[[], float]


class SharedCpu:
    """The CPU time of one device, which the threads of ``parts`` workers share.

    ``rate`` is in cores. ``wait`` sleeps at most its seconds with the condition held, and returns
    early where another part's batch has ended.
    """

    def __init__(
        self,
        parts: int,
        rate: float,
        clock: Clock = time.monotonic,
        wait: Callable[[Condition, float], object] = Condition.wait,
    ) -> None:
        self._clock, self._wait = clock, wait
        self._time = DeviceTime(parts, rate, clock())
        self._ended = Condition()

    def run(self, part: int, batch: Callable[[], list[Any]], used_s: Clock) -> list[Any]:
        """Return a batch's outputs, begun once the part owes no time; ``used_s`` reads what the
        calling thread has used of the device."""
        with self._ended:
            while (left_s := self._time.wait_s(part, self._clock())) > 0.0:
                self._wait(self._ended, left_s)
            self._time.begin(part, self._clock())
        began_s = used_s()
        try:
            return batch()
        finally:
            with self._ended:
                self._time.end(part, used_s() - began_s, self._clock())
                self._ended.notify_all()


class PartOperator:
    """An operator that runs on one part of a device.

    A batch is charged the CPU time of its thread; one of an operator in a process of its own
    (``limits``) the time that it takes.
    """

    def __init__(self, operator: Operator, cpu: SharedCpu, part: int, *, apart: bool) -> None:
        self._operator, self._cpu, self._part = operator, cpu, part
        self._used_s = time.monotonic if apart else time.thread_time

    def load(self, device: str) -> None:
        self._operator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the operator's outputs."""
        return self._cpu.run(self._part, lambda: self._operator.predict(batch), self._used_s)
