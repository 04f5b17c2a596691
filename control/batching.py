"""Close the batch now, or wait until when?

Work-conserving: an idle device takes at once what waits, up to the plan's batch.
"""

FULL = "full"  # as many as the plan lets run together
IDLE = "idle"  # the device was free, so it took what waited


def batch_size(queued: int, largest: int) -> int:
    """How many of the queued items the next batch takes."""
    return min(queued, largest)


def released(batch: int, largest: int) -> str:
    """Why a batch of this size begins, in a word that travels with its items."""
    return FULL if batch >= largest else IDLE
