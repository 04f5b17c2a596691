"""Keep the operators of a process to their parts of a device's CPU time.

A device has ``rate`` seconds of CPU time per second. The parts that run a batch or owe time divide
it equally, whatever they ask for (generalised processor sharing); a part pays for a batch at its
end, and begins the next one once it owes nothing. So a device is never used beyond its rate in the
long run, a part has ``rate / parts`` of it or more, and what idle parts leave goes to the others.
A part saves no time while it idles.
"""

import time
from collections.abc import Callable
from threading import Condition
from typing import Any

from streams.live.executors import Operator

Clock = Callable[[], float]
PAID_S = 1e-9  # a smaller debt is one of rounding


class DeviceTime:
    """The accounts of ``parts`` parts, by number. Times are seconds."""

    def __init__(self, parts: int, rate: float, now: float) -> None:
        self._rate = rate
        self._owed_s = [0.0] * parts
        self._running = [False] * parts
        self._now = now

    def wait_s(self, part: int, now: float) -> float:
        """Return how long a part still has to wait for its next batch, as things are."""
        self._settle(now)
        return max(0.0, self._owed_s[part]) / self._each()

    def begin(self, part: int, now: float) -> None:
        """Begin a batch."""
        self._settle(now)
        self._running[part] = True

    def end(self, part: int, used_s: float, now: float) -> None:
        """End a batch that used ``used_s`` of CPU time."""
        self._settle(now)
        self._running[part] = False
        self._owed_s[part] = _debt_s(self._owed_s[part] + used_s)

    def _each(self) -> float:
        """Return the CPU seconds per second of each part that counts."""
        return self._rate / max(1, sum(self._counts(part) for part in range(len(self._owed_s))))

    def _counts(self, part: int) -> bool:
        return self._running[part] or self._owed_s[part] > 0.0

    def _settle(self, now: float) -> None:
        """Give each part its time since the last call; a part that pays off leaves the others more
        from that moment on."""
        left_s, self._now = max(0.0, now - self._now), max(now, self._now)
        while left_s > 0.0:
            paying = [k for k, owed in enumerate(self._owed_s) if owed > 0.0]
            each = self._each()
            ends_s = min((self._owed_s[k] / each for k in paying if not self._running[k]),
                         default=left_s)  # fmt: skip
            step_s = min(left_s, ends_s)
            for part in range(len(self._owed_s)):
                if self._running[part]:
                    self._owed_s[part] -= each * step_s
                elif self._owed_s[part] > 0.0:
                    self._owed_s[part] = _debt_s(self._owed_s[part] - each * step_s)
            left_s -= step_s


def _debt_s(owed_s: float) -> float:
    return owed_s if owed_s > PAID_S else 0.0


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


class PaidOperator:
    """An operator on a device with ``share`` of a core: outputs leave once they are paid for.

    So a batch takes as long as on a core that is ``1 / share`` times slower, as the profile of its
    type says, or on an emulated tier; a part of a shared device pays behind its batch instead. A
    batch is charged as by ``PartOperator``.
    """

    def __init__(
        self, operator: Operator, share: float, *, apart: bool, clock: Clock = time.monotonic,
        thread_s: Clock = time.thread_time, sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._operator, self._share = operator, share
        self._clock, self._sleep = clock, sleep
        self._used_s = clock if apart else thread_s

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
        return self._cpu.run(self._part, lambda: self._operator.predict(batch), self._used_s)
