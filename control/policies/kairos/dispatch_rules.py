"""Dispatch rules: which waiting query goes to which device now.

    kairos       matching at least cost with urgency (matching.py)
    kairos-paper the same with urgency 0
    fcfs         oldest query first, to a free device, base types preferred (Ribbon, SC 2021)
    threshold    queries above a size to base devices only, the others to auxiliary devices only
                 (DeepRecSys, ISCA 2020)
    earliest     every query, as it comes, to the device that is predicted to finish it first; each
                 device has a queue of its own (Clockwork, OSDI 2020)

A rule sees a ``Round``: queries in order of arrival and devices with the time until each is free.
It returns pairs (query, device). A device takes a query when it is free within ``lead_s``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from control.policies.kairos.matching import MatchingWeights, Matrix, Vector, costs_of, matched

CONSIDERED = 2  # times the number of devices: queries that enter the matching (artifact)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """The devices of a plan, constant between plans.

    ``kinds[j]`` is the row of device j's type, ``coefficients[j]`` its C_j, ``base[j]`` whether
    it is of the base type.
    """

    kinds: tuple[int, ...]
    coefficients: Vector
    base: tuple[bool, ...]
    columns: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    preference: tuple[int, ...] = field(init=False)  # devices by falling coefficient, base first

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", np.array(self.kinds, dtype=np.int64))
        order = sorted(
            range(len(self.kinds)), key=lambda j: (not self.base[j], -self.coefficients[j], j)
        )
        object.__setattr__(self, "preference", tuple(order))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One decision: what waits and when each device is free.

    Queries in order of arrival: ``sizes``, seconds waited, seconds until the deadline, and
    the predicted seconds on each type, as mean and for the deadline's sake. ``held[i]`` is the
    device that an earlier round chose for the query, -1 where none did (``earliest``).
    """

    sizes: list[int]
    wait_s: list[float]
    slack_s: list[float]
    latency_s: list[tuple[float, ...]]  # by query, by type
    worst_s: list[tuple[float, ...]]
    held: list[int]
    remaining_s: list[float]  # by device, 0 where it is idle
    factors: Vector  # by device: how many times as long it takes as its type
    devices: DeviceTable
    lead_s: float = 0.0

    def free(self, device: int) -> bool:
        """Whether the device may be sent a query now."""
        return self.remaining_s[device] <= self.lead_s

    def free_devices(self) -> list[int]:
        """Free devices, base types first."""
        return [j for j in self.devices.preference if self.remaining_s[j] <= self.lead_s]


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """Options of the rules: the weights of the matching, the size from which ``threshold`` sends
    to base devices only."""

    weights: MatchingWeights
    threshold: int = 0


Pairs = list[tuple[int, int]]
Rule = Callable[[Round, DispatchOptions], Pairs]


def match(round_: Round, options: DispatchOptions) -> Pairs:
    """Kairos: the matching over all devices, busy ones too, of which only free ones are sent to."""
    columns, factors = round_.devices.columns, round_.factors
    count = min(len(round_.sizes), CONSIDERED * len(columns))
    remaining = np.array(round_.remaining_s)
    finish: Matrix = np.array(round_.latency_s[:count])[:, columns] * factors + remaining
    worst = finish
    if round_.worst_s is not round_.latency_s:
        worst = np.array(round_.worst_s[:count])[:, columns] * factors + remaining
    cost = costs_of(
        options.weights, finish, worst, np.array(round_.slack_s[:count]),
        np.array(round_.wait_s[:count]), round_.devices.coefficients,
    )  # fmt: skip
    return [(i, j) for i, j in matched(cost) if round_.remaining_s[j] <= round_.lead_s]


def first_come(round_: Round, options: DispatchOptions) -> Pairs:
    """Ribbon: the oldest queries to the free devices, base devices first."""
    return list(zip(range(len(round_.sizes)), round_.free_devices(), strict=False))


def by_threshold(round_: Round, options: DispatchOptions) -> Pairs:
    """DeepRecSys: large queries wait for base devices, small ones for the others; in both the
    oldest first, to the fastest free device. Where there are no devices of one side, the other
    side takes all."""
    base = round_.devices.base
    both = any(base) and not all(base)
    free = round_.free_devices()
    large = [j for j in free if base[j] or not both]
    small = [j for j in free if not base[j] or not both]
    if not both:
        small = large
    pairs: Pairs = []
    for i, size in enumerate(round_.sizes):
        side = large if size > options.threshold else small
        if side:
            pairs.append((i, side.pop(0)))
        if not large and not small:
            break
    return pairs


def earliest_finish(round_: Round, options: DispatchOptions) -> Pairs:
    """Clockwork: each new query to the queue of the device that finishes it first; of each queue
    the head, when the device is free. ``round_.held`` keeps the choices."""
    kinds, factors = round_.devices.kinds, round_.factors
    until = list(round_.remaining_s)
    heads: dict[int, int] = {}
    for i, row in enumerate(round_.latency_s):
        j = round_.held[i]
        if j < 0:
            j = min(range(len(until)), key=lambda j: until[j] + row[kinds[j]] * factors[j])
            round_.held[i] = j
        until[j] += row[kinds[j]] * factors[j]
        heads.setdefault(j, i)
    return [(i, j) for j, i in heads.items() if round_.free(j)]


RULES: dict[str, Rule] = {
    "kairos": match,
    "kairos-paper": match,
    "fcfs": first_come,
    "threshold": by_threshold,
    "earliest": earliest_finish,
}
