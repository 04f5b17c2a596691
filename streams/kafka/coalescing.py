"""How long a reader lets records gather before it takes them: fewer and larger turns under load.

A turn costs wake-ups of its threads, one request of the producer for each partition, and the
broker's work on these, whatever number of records it carries. Where records come faster than turns
are done, waiting a little shares that cost among more of them; where each comes alone, the reader
never waits. Network cards moderate their interrupts in the same way.
"""

MOST_S = 0.004
LEAST_S = 0.001  # the client counts whole milliseconds
OF_SLO = 0.01  # the longest wait of one reader, as a share of the SLO
MANY = 4  # records at once from which on waits grow


class Coalescing:
    """The wait of one reader: doubled after each fetch of ``MANY`` records, halved after one of a
    single record; at most ``most_s`` seconds. Pure."""

    def __init__(self, most_s: float = MOST_S) -> None:
        self._most_s = most_s
        self.wait_s = 0.0  # between the first record and the fetch of the others

    def fetched(self, records: int) -> None:
        """Take the number of records that a fetch brought."""
        if records >= MANY:
            self.wait_s = min(self._most_s, max(2.0 * self.wait_s, LEAST_S))
        elif records == 1:
            half_s = self.wait_s / 2.0
            self.wait_s = half_s if half_s >= LEAST_S else 0.0


def longest_wait_s(slo_s: float) -> float:
    """Return the longest wait of a reader of a pipeline with this SLO, in seconds; 0 below the
    least one."""
    wait_s = min(MOST_S, OF_SLO * slo_s)
    return wait_s if wait_s >= LEAST_S else 0.0
