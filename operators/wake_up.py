"""One wake-up for a node's next work of a kind, such as a commit, however often it is asked for."""

from math import inf

from schemas.effects import Effect, Wake


class WakeUp:
    """The time of the pending wake-up, infinite without one."""

    __slots__ = ("at_s",)

    def __init__(self) -> None:
        self.at_s = inf

    def by(self, at_s: float) -> list[Effect]:
        """Wake the node at ``at_s`` at the latest; infinite: there is no need to."""
        if self.at_s <= at_s:
            return []
        self.at_s = at_s
        return [Wake(at_s)]

    def clear(self) -> None:
        """Forget the wake-up, as its work is done."""
        self.at_s = inf
