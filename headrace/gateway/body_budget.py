"""The memory that bodies of requests may take at once, over both protocols."""

from headrace.gateway.protocol.statuses import Ending, Unserved


class BodyBudget:
    """At most ``most`` bytes for the bodies of all requests in flight. In the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0  # bytes

    def held(self, size: int) -> "HeldBody":
        """Return a body of ``size`` bytes, which counts while its ``with`` block runs.

        Raises ``Unserved`` at the block's begin if the budget has no room for it.
        """
        return HeldBody(self, size)

    def take(self, size: int) -> None:
        """Count ``size`` bytes more; raise ``Unserved`` if the budget has no room for them."""
        if self.used + size > self._most:
            raise Unserved(
                Ending.OVER_CAPACITY,
                f"bodies of requests in flight here hold {self.used} of {self._most} bytes, and "
                f"this one has up to {size}",
            )
        self.used += size

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self.used -= size


class HeldBody:
    """The bytes of one body that count."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def __enter__(self) -> "HeldBody":
        self._budget.take(self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._size)

    def shrink(self, size: int) -> None:
        """Count ``size`` bytes if that is less, once the body is there."""
        freed = max(self._size - size, 0)
        self._budget.give_back(freed)
        self._size -= freed
