"""Admission control at the rate that the plan can serve."""


class Admission:
    """A token bucket: ``rate`` queries/s in the long run, bursts of ``burst`` queries.

    The bucket starts full. ``rate`` None admits everything.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float | None, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._at = now

    def admit(self, now: float) -> bool:
        """Take a token; return whether there was one."""
        if self._rate is None:
            return True
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def follow(self, before: "Admission", now: float) -> None:
        """Begin with the tokens that ``before`` has left."""
        self._tokens = min(self._burst, before.left(now))

    def left(self, now: float) -> float:
        """Return the tokens; infinite without a rate."""
        if self._rate is None:
            return float("inf")
        return min(self._burst, self._tokens + (now - self._at) * self._rate)

    def change(self, rate: float | None, burst: float, now: float) -> None:
        """Change the rate and keep the tokens; without a rate the bucket was full."""
        filled = float("inf")
        if self._rate is not None:
            filled = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at, self._rate, self._burst = now, rate, max(1.0, burst)
        self._tokens = min(filled, self._burst)
