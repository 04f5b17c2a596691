"""Keep the operators of a process to their parts of a device's CPU time (device_time.py)."""

import time
from collections.abc import Callable
from threading import Condition
from typing import Any

from headrace.roles.workers.device_time import DeviceTime
from operators.timed_batch import delayed_batch
from streams.live.executors import Operator
from streams.live.steady_clock import Clock


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
        self.clock, self._wait = clock, wait
        self._time = DeviceTime(parts, rate, clock())
        self._ended = Condition()

    def charged_s(self, part: int) -> float:
        """Return the CPU time that a part was charged for its last batch, s."""
        return self._time.charged_s[part]

    def run(self, part: int, batch: Callable[[], list[Any]], used_s: Clock) -> list[Any]:
        """Return a batch's outputs, begun once the part owes no time; ``used_s`` reads what the
        calling thread has used of the device."""
        with self._ended:
            while (left_s := self._time.wait_s(part, self.clock())) > 0.0:
                self._wait(self._ended, left_s)
            self._time.begin(part, self.clock())
        began_s = used_s()
        try:
            return batch()
        finally:
            with self._ended:
                self._time.end(part, used_s() - began_s, self.clock())
                self._ended.notify_all()


class PaidOperator:
    """An operator on a device with ``share`` of a core: outputs leave once they are paid for.

    So a batch takes as long as on a core that is ``1 / share`` times slower, as the profile of its
    type says, or on an emulated tier; a part of a shared device pays after its batch instead.
    ``used_s`` reads what the calling thread has used of the device.
    """

    def __init__(
        self, operator: Operator, share: float, used_s: Clock, clock: Clock = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._operator, self._share = operator, share
        self._clock, self._sleep, self._used_s = clock, sleep, used_s

    def load(self, device: str) -> None:
        self._operator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the operator's outputs once the device would have them."""
        began_s, before_s = self._clock(), self._used_s()
        try:
            return self._operator.predict(batch)
        finally:
            used_s, took_s = self._used_s() - before_s, self._clock() - began_s
            self._sleep(max(0.0, used_s / self._share - took_s))


class PartOperator:
    """An operator that runs on one part of a device.

    A batch is charged the CPU time of its thread; one of an operator in a process of its own
    (``limits``) the time that it takes.
    """

    def __init__(
        self, operator: Operator, cpu: SharedCpu, part: int, *, apart: bool,
        thread_s: Clock = time.thread_time,
    ) -> None:  # fmt: skip
        self._operator, self._cpu, self._part = operator, cpu, part
        self._used_s = time.monotonic if apart else thread_s

    def load(self, device: str) -> None:
        self._operator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the operator's outputs."""
        asked_s = self._cpu.clock()

        def begun() -> list[Any]:
            return self._operator.predict(delayed_batch(batch, self._cpu.clock() - asked_s))

        return self._cpu.run(self._part, begun, self._used_s)
