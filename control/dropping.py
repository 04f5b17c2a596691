"""Which queries are past saving?"""


def lateness(deadline_s: float, now: float, latency_s: float) -> float:
    """Seconds by which an item misses its deadline if its batch starts now; negative: in time.

    ``latency_s`` is what the batch about to run takes; 0 where it was never measured.
    """
    return now + latency_s - deadline_s
