"""A batch with the time left for each item, for operators that wait for other services."""

from collections.abc import Sequence
from typing import Any


class TimedBatch(list[Any]):
    """The inputs of one call of ``predict``.

    ``left_s``: the seconds until each item's deadline when the call began, negative if it has
    passed. Empty: deadlines are unknown, as in warm-ups and profiles.
    """

    def __init__(self, values: Sequence[Any], left_s: Sequence[float]) -> None:
        super().__init__(values)
        self.left_s = tuple(left_s)


def delayed_batch(batch: list[Any], waited_s: float) -> list[Any]:
    """Return a batch whose call begins ``waited_s`` later than its ``left_s`` says."""
    if not isinstance(batch, TimedBatch) or not batch.left_s:
        return batch
    return TimedBatch(batch, [left_s - waited_s for left_s in batch.left_s])


class OutOfTime(Exception):
    """Returned instead of an output: the item's deadline has passed, so it counts as dropped."""


def seconds_left(batch: Sequence[Any], most_s: float) -> list[float]:
    """Return how many seconds each item of a batch may take, at most ``most_s``.

    A batch without deadlines (a warm-up, a profile) has ``most_s`` for each.
    """
    if not isinstance(batch, TimedBatch) or not batch.left_s:
        return [most_s] * len(batch)
    return [min(most_s, left) for left in batch.left_s]
