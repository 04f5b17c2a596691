"""The memory that bodies of requests may take at once, over both protocols."""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.gateway.protocol.statuses import Ending, Unserved


class BodyBudget:
    """At most ``most`` bytes for the bodies of all requests in flight. In the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0  # bytes

    @contextmanager
    def held(self, size: int) -> Iterator["HeldBody"]:
        """Count a body of ``size`` bytes while the block runs; raise ``Unserved`` if the budget has
        no room for it."""
        if self.used + size > self._most:
            raise Unserved(
                Ending.OVER_CAPACITY,
                f"bodies of requests in flight here hold {self.used} of {self._most} bytes, and "
                f"this one has up to {size}",
            )
        self.used += size
        body = HeldBody(self, size)
        try:
            yield body
        finally:
            self.used -= body.size


class HeldBody:
    """The bytes of one body that count."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self.size = size

    def shrink(self, size: int) -> None:
        """Count ``size`` bytes if that is less, once the body is there."""
        freed = max(self.size - size, 0)
        self._budget.used -= freed
        self.size -= freed
