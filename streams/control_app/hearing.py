"""Detection of a consumer that no longer delivers the reports topic."""

DEAF_S = 10.0  # the app restarts if its consumer delivers no report for this long while some exist


class Hearing:
    """Compares the end of the reports topic with the reports delivered."""

    __slots__ = ("_end", "_heard", "_since_s")

    def __init__(self) -> None:
        self._heard = True
        self._end = 0
        self._since_s = 0.0

    def hear(self) -> None:
        """Record a delivered report."""
        self._heard = True

    def deaf(self, end: int, now: float, within_s: float = DEAF_S) -> bool:
        """Return whether reports were written for more than ``within_s`` without a delivery;
        ``end`` is the topic's end offset at ``now``."""
        if self._heard or end <= self._end:
            self._heard, self._end, self._since_s = False, max(end, self._end), now
            return False
        return now - self._since_s > within_s
