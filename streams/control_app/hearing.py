"""Does the control app hear what stands on the reports topic?"""

DEAF_S = 10.0  # a consumer that brings nothing for so long, although reports come, is started anew


class Hearing:
    """Compares the end of the reports topic with what was heard of it."""

    __slots__ = ("_end", "_heard", "_since_s")

    def __init__(self) -> None:
        self._heard = True
        self._end = 0
        self._since_s = 0.0

    def hear(self) -> None:
        """A report was heard."""
        self._heard = True

    def deaf(self, end: int, now: float, within_s: float = DEAF_S) -> bool:
        """Whether reports have been written for ``within_s`` and none of them was heard; ``end``
        is the offset behind the last one now."""
        if self._heard or end <= self._end:
            self._heard, self._end, self._since_s = False, max(end, self._end), now
            return False
        return now - self._since_s > within_s
