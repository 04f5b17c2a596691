"""Seats: the workers of a tier's devices, one for every task that the tier may run.

A device of a tier is a process with a worker for each of these tasks. Each worker reports the
device name ``task@tier``, which binds it to its task, so that every device serves all tasks.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.records import Lease

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it is part of its device's name


def seat_device(task: str, tier: str) -> str:
    """Return the device that the worker of a task on a tier reports."""
    return f"{task}@{tier}"


def seat_worker(device: str, task: str) -> str:
    """Return the name of a device's worker for a task; ``device`` as in "depot-0"."""
    return f"{device}-{task}"


def bound_device(tier: str, session: str) -> str:
    """Return the name of a session's own device, next to its ingress."""
    return f"{tier}:{session}"


def is_bound(device: str, tier: str) -> bool:
    """Return whether a device of a tier is bound to one session."""
    return device.startswith(bound_device(tier, ""))


def may_serve(device: str, tier: str, session: str) -> bool:
    """Return whether a device of a tier may serve a session; a bound one serves no other."""
    return not is_bound(device, tier) or device == bound_device(tier, session)


def task_of(seat: str) -> str:
    """Return the task of a seat's device; "" for a device that is no seat."""
    task, at, _ = seat.partition("@")
    return task if at else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A live worker of a device ("depot-0") of a tier, with the slot that senders write to."""

    worker: str
    task: str
    tier: str
    device: str
    slot: int


def open_seats(leases: Iterable[Lease], devices: Mapping[str, str]) -> tuple[Seat, ...]:
    """Return the seats with an open slot, in the order of ``leases``; ``devices`` is by worker."""
    found = []
    for lease in leases:
        task, at, tier = devices.get(lease.worker, "").partition("@")
        if at and lease.open_slot >= 0:
            device = lease.worker.removesuffix(f"-{task}")
            found.append(
                Seat(worker=lease.worker, task=task, tier=tier, device=device, slot=lease.open_slot)
            )
    return tuple(found)


def by_device(seats: Sequence[Seat]) -> dict[str, dict[str, Seat]]:
    """Return the seats by device and task."""
    found: dict[str, dict[str, Seat]] = {}
    for seat in seats:
        found.setdefault(seat.device, {})[seat.task] = seat
    return found
