"""The accounts of the parts of a device that divide its CPU time, live and simulated.

A device has ``rate`` seconds of CPU time per second. The parts that run a batch or owe time divide
it equally, whatever they ask for (generalised processor sharing). A part pays for a batch at its
end, and begins the next one once it owes nothing. So a device is never used beyond its rate in the
long run, a part has ``rate / parts`` of it or more, and the others use the time of idle parts. A
part that has the device to itself saves up to ``SAVED_S`` of time while it idles, as a CPU quota of
Linux has a period of 100 ms: occasional short batches do not wait. Other parts save none, since the
parts beside them use their time.
"""

SAVED_S = 0.1
PAID_S = 1e-9  # a smaller debt is one of rounding


class DeviceTime:
    """The accounts of ``parts`` parts, by number. Times are seconds."""

    def __init__(self, parts: int, rate: float, now: float) -> None:
        self._rate = rate
        self._least_s = -rate * SAVED_S if parts == 1 else 0.0  # what a part has saved at most
        self._owed_s = [self._least_s] * parts
        self._running = [False] * parts
        self._now = now
        self.charged_s = [0.0] * parts  # each one's last batch

    def wait_s(self, part: int, now: float) -> float:
        """Return how long a part has to wait for its next batch, at the present rate."""
        self._settle(now)
        owed_s = self._owed_s[part]
        return owed_s / self._each() if owed_s > PAID_S else 0.0

    def begin(self, part: int, now: float) -> None:
        """Begin a batch."""
        self._settle(now)
        self._running[part] = True

    def end(self, part: int, used_s: float, now: float) -> None:
        """End a batch that used ``used_s`` of CPU time."""
        self._settle(now)
        self._running[part] = False
        self.charged_s[part] = used_s
        self._owed_s[part] = self._settled_s(self._owed_s[part] + used_s)

    def _each(self) -> float:
        """Return the CPU seconds per second of each part that counts."""
        return self._rate / max(1, sum(self._counts(part) for part in range(len(self._owed_s))))

    def _counts(self, part: int) -> bool:
        return self._running[part] or self._owed_s[part] > 0.0

    def _settle(self, now: float) -> None:
        """Give each part its time since the last call; once a part has paid off, the others get
        more."""
        left_s, self._now = max(0.0, now - self._now), max(now, self._now)
        while left_s > 0.0:
            paying = [k for k, owed in enumerate(self._owed_s) if owed > self._least_s]
            each = self._each()
            ends_s = min(((self._owed_s[k] - self._least_s) / each
                          for k in paying if not self._running[k]), default=left_s)  # fmt: skip
            step_s = min(left_s, ends_s)
            for part in range(len(self._owed_s)):
                if self._running[part]:
                    self._owed_s[part] -= each * step_s
                elif self._owed_s[part] > self._least_s:
                    self._owed_s[part] = self._settled_s(self._owed_s[part] - each * step_s)
            left_s -= step_s

    def _settled_s(self, owed_s: float) -> float:
        return owed_s if owed_s > self._least_s + PAID_S else self._least_s
