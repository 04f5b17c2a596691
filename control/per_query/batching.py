"""When a batch begins: at once, or when it is full or its first item can wait no longer.

The plan's batch is the most that run together. By name in a policy:

    idle       work-conserving: an idle device takes at once what waits
    patient    an idle device waits for a full batch, but no longer than the head of the queue can:
               until its batch, as large as the plan lets it be, would end at its budget

A policy's ``batch_delay`` is the longest wait of a queue's first item, counted from when its worker
received it; with it ``idle`` waits as well.

Waiting makes fewer and larger batches of a thin stream, which spares the device, not the queries:
``idle`` is the default, since an idle device that waits has wasted what it waited.
"""

from collections.abc import Callable, Mapping
from math import ceil, inf

from schemas.pipeline import Policy

FULL = "full"  # as many as the plan lets run together
IDLE = "idle"  # the device was free, so it took what waited
PATIENT = "patient"  # the rule that waits
DUE = "due"  # the head of the queue could wait no longer


# What a worker asks for anew comes tens of ms later, and it must not be idle until then.
HELD_BATCHES = 8
HELD_S = 0.2


def batcher_of(policy: Policy) -> str:
    """Return the name of the rule that a policy runs with."""
    waits = policy.batch_delay_s is not None and policy.batching == IDLE
    return PATIENT if waits else policy.batching


def most_held(batch: int, latency_s: float) -> int:
    """Items above which a worker stops reading until it holds half as many: what it runs in
    ``HELD_S``, and ``HELD_BATCHES`` at least; a batch takes ``latency_s`` (0: not measured)."""
    batches = HELD_S / latency_s if latency_s > 0 else 0.0
    return ceil(max(HELD_BATCHES, batches) * batch)


def batch_size(queued: int, largest: int) -> int:
    """How many of the queued items the next batch takes."""
    return min(queued, largest)


def released(batch: int, largest: int, batching: str = IDLE) -> str:
    """Why a batch of this size begins, in a word that travels with its items."""
    if batch >= largest:
        return FULL
    return IDLE if batching == IDLE else DUE


def _idle(queued: int, largest: int, latest_s: float) -> float:
    return -inf


def _patient(queued: int, largest: int, latest_s: float) -> float:
    return -inf if queued >= largest else latest_s


# (items queued, most in a batch, when the head must have begun) -> when to begin
BATCHERS: Mapping[str, Callable[[int, int, float], float]] = {IDLE: _idle, PATIENT: _patient}
