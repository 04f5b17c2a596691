"""Nodes that are gone for good, so that what is known of them can be forgotten.

Every rented device and every new container may have a new name: without an end, the memory of a
control app, and the time of each estimate over all workers, would grow with all names there ever
were.
"""

GONE_S = 3600.0  # without a report; a node that returns sooner goes on where it was


class Departures:
    """The times of the last reports of nodes, the oldest first."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}

    def heard(self, node: str, now: float) -> tuple[str, ...]:
        """Record a report; return the nodes that are gone since the last one, once each."""
        self._heard.pop(node, None)
        self._heard[node] = now
        gone = []
        for each, at_s in self._heard.items():
            if now - at_s <= GONE_S:
                break
            gone.append(each)
        for each in gone:
            del self._heard[each]
        return tuple(gone)
