"""Batching rules: when a batch begins and how many items it takes.

The plan's batch is the largest. By name in a policy:

    idle       work-conserving: an idle device runs the waiting items at once
    patient    an idle device waits for a full batch, but no longer than the head of the queue can:
               until its batch, of the plan's size, would end at its budget

A policy's ``batch_delay`` limits the wait of a queue's first item, from its receipt by the worker;
with it, ``idle`` waits as well.

For a thin stream, waiting makes fewer and larger batches, which saves device time but not latency.
``idle`` is the default, because the time of an idle device is lost.

With SLO classes, items of slacker classes join a batch only while its most urgent item is likely to
stay in time (``sparing``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, takewhile
from math import ceil, inf

from schemas.pipeline import Policy

FULL = "full"  # the plan's largest batch
IDLE = "idle"  # the device was idle
PATIENT = "patient"  # the name of the waiting rule
DUE = "due"  # the head of the queue could wait no longer


# Newly requested items arrive tens of ms later; the worker must stay busy until then.
HELD_BATCHES = 8
HELD_S = 0.2


def batcher_of(policy: Policy) -> str:
    """Return the name of the policy's batching rule."""
    waits = policy.batch_delay_s is not None and policy.batching == IDLE
    return PATIENT if waits else policy.batching


def most_held(batch: int, latency_s: float, held_s: float = HELD_S) -> int:
    """Return the number of items above which a worker stops reading until it holds half as many.

    The number is the throughput over ``held_s``, at least ``HELD_BATCHES`` batches; a batch takes
    ``latency_s`` (0: not measured).
    """
    batches = held_s / latency_s if latency_s > 0 else 0.0
    return ceil(max(HELD_BATCHES, batches) * batch)


def batch_size(queued: int, largest: int) -> int:
    """Return the number of queued items that the next batch takes."""
    return min(queued, largest)


def sparing(
    largest: int,
    own_s: Sequence[float],
    left_s: Sequence[float],
    takes_s: Callable[[int], float],
    *,
    likely: float = 1.0,
) -> int:
    """Return the largest batch that ends in time for the most urgent item that can be saved.

    ``own_s`` are the SLOs of the queued items by deadline, ``left_s`` the seconds until their batch
    must end, which is expected to take ``takes_s`` and likely takes up to ``likely`` times as long.
    Items of slacker classes must not make it likely that an item is late. Later items of the same
    or a tighter SLO may make it late, because among equals large batches lose the fewest items.
    """
    for first, (slo_s, within_s) in enumerate(zip(own_s, left_s, strict=True)):
        behind = len(own_s) - first
        equals = sum(1 for _ in takewhile(slo_s.__ge__, own_s[first:]))
        least = min(largest, equals)
        for size in range(min(largest, behind), least - 1, -1):
            if takes_s(size) * (likely if size > least else 1.0) <= within_s:
                return size
    return min(largest, len(own_s))


def count_within(sizes: Iterable[int], largest: int) -> int:
    """Return how many of the first queries have a total size of at most ``largest``; at least 1."""
    totals = accumulate(sizes)
    return max(sum(1 for _ in takewhile(lambda total: total <= largest, totals)), 1)


def release_rule(batch: int, largest: int, batching: str = IDLE) -> str:
    """Return why a batch of this size begins, as the word recorded with its items."""
    if batch >= largest:
        return FULL
    return IDLE if batching == IDLE else DUE


def _idle(queued: int, largest: int, latest_s: float) -> float:
    return -inf


def _patient(queued: int, largest: int, latest_s: float) -> float:
    return -inf if queued >= largest else latest_s


# (items queued, largest batch, latest start for the head, s) -> earliest start, s
BATCHERS: Mapping[str, Callable[[int, int, float], float]] = {IDLE: _idle, PATIENT: _patient}
