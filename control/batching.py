"""Close the batch now, or wait until when?

Work-conserving: an idle device takes at once what waits, up to the plan's batch.
"""


def batch_size(queued: int, largest: int) -> int:
    """How many of the queued items the next batch takes."""
    return min(queued, largest)
