"""The memory budget for request bodies in flight, over both protocols."""

from headrace.gateway.protocol.statuses import Ending, Unserved


class BodyBudget:
    """At most ``most`` bytes for the bodies of all requests in flight. Use it in the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0  # bytes

    def held(self, size: int) -> "HeldBody":
        """Return a body of ``size`` bytes, which is charged while its ``with`` block runs.

        Entering the block raises ``Unserved`` if the budget has no room for the body.
        """
        return HeldBody(self, size)

    def take(self, size: int) -> None:
        """Charge ``size`` bytes; raise ``Unserved`` if the budget has no room for them."""
        if self.used + size > self._most:
            raise Unserved(
                Ending.OVER_CAPACITY,
                f"bodies of requests in flight here hold {self.used} of {self._most} bytes, and "
                f"this one has up to {size}",
            )
        self.used += size

    def give_back(self, size: int) -> None:
        """Release ``size`` bytes."""
        self.used -= size


class HeldBody:
    """The charged bytes of one body."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def __enter__(self) -> "HeldBody":
        self._budget.take(self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._size)

    def shrink(self, size: int) -> None:
        """Reduce the charge to ``size`` bytes, the size of the body that has arrived."""
        freed = max(self._size - size, 0)
        self._budget.give_back(freed)
        self._size -= freed
