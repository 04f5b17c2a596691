"""Violated constraints as values, and the sentence for each.

A ``Violation`` names the constraint, its ``subject`` (names, slots), the value ``found`` and the
``limit``. Units: seconds, items/s, queries/s, bytes, shares 0..1, counts. ``sentence`` gives the
text for command results, logs and ``plan``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Constraint(Enum):
    """The constraints of allocations and plans. The value is the name in logs and metrics."""

    DEVICES = "devices"
    TASK_SLOTS = "task-slots"
    TASK_REPLICAS = "task-replicas"
    MEMORY = "memory"
    SWAP_MEMORY = "swap-memory"
    REPLICAS = "replicas"
    LISTED_ONCE = "listed-once"
    PROFILED = "profiled"
    FAN_OUT = "fan-out"
    PATH = "path"
    REPLICA_OF_PATH = "replica-of-path"
    SERVED_SHARE = "served-share"
    SHARE = "share"
    SUM_OF_SHARES = "sum-of-shares"
    TIED_SHARES = "tied-shares"
    TASK_SHARE = "task-share"
    LATENCY = "latency"
    CAPACITY = "capacity"
    ACCURACY = "accuracy"
    ACCURACY_LEAST = "accuracy-least"
    ONE_LEASE = "one-lease"
    KNOWN_TASK = "known-task"
    KNOWN_VARIANT = "known-variant"
    BATCH = "batch"
    OPEN_SLOT_READ = "open-slot-read"
    SLOT_RANGE = "slot-range"
    OPEN_ONCE = "open-once"
    READ_ONCE = "read-once"
    ROUTE_OPEN = "route-open"
    ROUTE_SHARE = "route-share"
    ROUTE_FIGURES = "route-figures"
    SUM_OF_ROUTES = "sum-of-routes"
    ROUTE_ONCE = "route-once"
    TASK_SERVED = "task-served"
    ADMITTED = "admitted"
    SESSION_TIER = "session-tier"
    SESSION_SLOT = "session-slot"
    SESSION_SHARE = "session-share"
    SESSION_POOL = "session-pool"
    SESSION_DEVICE = "session-device"
    SESSION_ONCE = "session-once"


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated constraint."""

    constraint: Constraint
    subject: tuple[str, ...] = ()
    found: float = 0.0
    limit: float = 0.0


def violation_text(violation: Violation) -> str:
    """Return a violation as one clause, with units."""
    return _SENTENCES[violation.constraint](violation)


def sentences(violations: Iterable[Violation]) -> str:
    """Return several violations, separated by semicolons."""
    return "; ".join(map(violation_text, violations))


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:g} ms"


def _path(names: Iterable[str]) -> str:
    return " > ".join(names)


def _devices(v: Violation) -> str:
    kind = f" of kind {v.subject[0]!r}" if v.subject else ""
    return f"the plan uses {v.found:g} devices{kind} and there are {v.limit:g}"


def _swap(v: Violation) -> str:
    worker, new, *old = v.subject
    return (
        f"worker {worker!r} holds {' and '.join(old)} until {new} is loaded, together "
        f"{_mb(v.found)}, and has {_mb(v.limit)}; use smaller variants, raise cluster.memory or "
        "restart the worker"
    )


def _sum_of_routes(v: Violation) -> str:
    task, source = v.subject
    sender = f" from {source!r}" if source else ""
    return f"the shares of task {task!r}{sender} sum to {v.found:g}; it must be 1"


_SENTENCES: Mapping[Constraint, Callable[[Violation], str]] = {
    Constraint.DEVICES: _devices,
    Constraint.TASK_SLOTS: lambda v: (
        f"task {v.subject[0]!r} has {v.found:g} replicas for {v.limit:g} slots"
    ),
    Constraint.TASK_REPLICAS: lambda v: (
        f"task {v.subject[0]!r} has {v.found:g} replicas and its bound is {v.limit:g}"
    ),
    Constraint.MEMORY: lambda v: (
        f"{v.subject[0]} takes {_mb(v.found)} and a worker of {v.subject[1]} has {_mb(v.limit)}"
    ),
    Constraint.SWAP_MEMORY: _swap,
    Constraint.REPLICAS: lambda v: f"{v.subject[0]} is listed with {v.found:g} replicas",
    Constraint.LISTED_ONCE: lambda v: f"{v.subject[0]} is listed {v.found:g} times",
    Constraint.PROFILED: lambda v: (
        f"{v.subject[0]} was not profiled in batches of {v.found:g} on a device that it may use"
    ),
    Constraint.FAN_OUT: lambda v: f"{v.subject[0]} has no profiled fan-out to {v.subject[1]!r}",
    Constraint.PATH: lambda v: f"{_path(v.subject)} is no path from the root to a leaf task",
    Constraint.REPLICA_OF_PATH: lambda v: f"{v.subject[0]} gets traffic and has no replica",
    Constraint.SERVED_SHARE: lambda v: (
        f"the plan calls itself feasible and serves a share of {v.found:g}"
    ),
    Constraint.SHARE: lambda v: f"{_path(v.subject)} has the negative share {v.found:g}",
    Constraint.SUM_OF_SHARES: lambda v: (
        f"the shares of {v.subject[0]} sum to {v.found:g} and {v.limit:g} is served"
    ),
    Constraint.TIED_SHARES: lambda v: (
        f"{_path(v.subject)} has the share {v.limit:g} for one branch and {v.found:g} for "
        "another, which are tied"
    ),
    Constraint.TASK_SHARE: lambda v: (
        f"task {v.subject[0]!r} gets a share of {v.found:g} and its bound is {v.limit:g}"
    ),
    Constraint.LATENCY: lambda v: (
        f"{_path(v.subject)} takes {_ms(v.found)} of compute and may take {_ms(v.limit)}"
    ),
    Constraint.CAPACITY: lambda v: (
        f"{v.subject[0]} gets {v.found:g} items/s and its replicas serve {v.limit:g} items/s"
    ),
    Constraint.ACCURACY: lambda v: (
        f"the plan states an accuracy of {v.found:g} and its shares give {v.limit:g}"
    ),
    Constraint.ACCURACY_LEAST: lambda v: (
        f"the shares give an accuracy of {v.found:g} and accuracy_least is {v.limit:g}"
    ),
    Constraint.ONE_LEASE: lambda v: (
        f"worker {v.subject[0]!r} has {v.found:g} leases; it can have one"
    ),
    Constraint.KNOWN_TASK: lambda v: (
        f"worker {v.subject[0]!r} is to serve {v.subject[1]!r}, which is no task"
    ),
    Constraint.KNOWN_VARIANT: lambda v: (
        f"worker {v.subject[0]!r} is to load {v.subject[1]!r}, which its task does not have"
    ),
    Constraint.BATCH: lambda v: (
        f"worker {v.subject[0]!r} is to run batches of {v.found:g}; 1 is the least"
    ),
    Constraint.OPEN_SLOT_READ: lambda v: (
        f"worker {v.subject[0]!r} does not read slot {v.found:g}, which it has open"
    ),
    Constraint.SLOT_RANGE: lambda v: (
        f"worker {v.subject[0]!r} is to read slot {v.found:g} of task {v.subject[1]!r}, which has "
        f"0 to {v.limit - 1:g}"
    ),
    Constraint.OPEN_ONCE: lambda v: (
        f"slot {v.subject[1]} of task {v.subject[0]!r} is open for {v.found:g} workers"
    ),
    Constraint.READ_ONCE: lambda v: (
        f"slot {v.subject[1]} of task {v.subject[0]!r} is read {v.found:g} times"
    ),
    Constraint.ROUTE_OPEN: lambda v: (
        f"a route leads to slot {v.subject[1]} of task {v.subject[0]!r}, which is not open"
    ),
    Constraint.ROUTE_SHARE: lambda v: (
        f"a share of task {v.subject[0]!r} is {v.found:g}; it must be in 0..1"
    ),
    Constraint.ROUTE_FIGURES: lambda v: (
        f"a route of task {v.subject[0]!r} states a spare capacity or latency below 0"
    ),
    Constraint.SUM_OF_ROUTES: _sum_of_routes,
    Constraint.ROUTE_ONCE: lambda v: (
        f"slot {v.subject[1]} of task {v.subject[0]!r} has {v.found:g} routes from one sender"
    ),
    Constraint.TASK_SERVED: lambda v: (
        f"task {v.subject[0]!r} has no open slot although the plan calls itself feasible"
    ),
    Constraint.ADMITTED: lambda v: (
        f"ingress may admit {v.found:g} queries/s and the workers of task {v.subject[0]!r} serve "
        f"{v.limit:g}"
    ),
    Constraint.SESSION_TIER: lambda v: (
        f"session {v.subject[0]!r} runs task {v.subject[1]!r} on tier {v.subject[2]!r}, which may "
        "not run it"
    ),
    Constraint.SESSION_SLOT: lambda v: (
        f"session {v.subject[0]!r} sends to slot {v.found:g} of task {v.subject[1]!r}, which its "
        "device has not open"
    ),
    Constraint.SESSION_SHARE: lambda v: (
        f"sessions take {v.found:g} of device {v.subject[0]!r}; it has {v.limit:g}"
    ),
    Constraint.SESSION_POOL: lambda v: (
        f"device {v.subject[0]!r} has shares of {' and '.join(v.subject[1:])}; seats in batches of "
        "a setting leave no room for other settings"
    ),
    Constraint.SESSION_DEVICE: lambda v: (
        f"device {v.subject[0]!r} serves sessions {' and '.join(v.subject[1:])}; it is for one"
    ),
    Constraint.SESSION_ONCE: lambda v: (
        f"session {v.subject[0]!r} has {v.found:g} plans that admit; it can have one"
    ),
}
