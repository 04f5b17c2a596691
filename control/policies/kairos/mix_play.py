"""Play a mix of devices: simulate the highest rate that it carries under a dispatch rule.

Queries of sampled sizes arrive at sampled times and wait until the policy's rule
(``dispatch_rules.py``) sends each to a free device, which is busy for the mean latency of the size.
A query is in time if the 95th percentile of its latency there, which dispatchers plan with, meets
the deadline. This allows for devices with variable latencies, on which some queries are late
although the mean is in time. Hops take no time, and latencies are not learned. A query that no
device can finish in time is dropped, as in the dispatcher and the workers.

The result is the highest rate that serves ``ATTAINMENT`` of all queries in time, found by bisection
between 0 and the fluid bound, an upper limit. Every rate is played with the same draws, so a result
depends only on its problem.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from control.policies import spec_of
from control.policies.kairos.dispatch_options import (
    LATE,
    MARGINAL,
    PRICES,
    SERVE,
    THRESHOLD,
)
from control.policies.kairos.dispatch_rules import (
    DeviceTable,
    DispatchOptions,
    Round,
    Rule,
    match,
)
from control.policies.kairos.matching import Vector
from control.policies.kairos.priced_devices import priced_devices
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.queueing import ATTAINMENT
from control.problem.lazy_references import object_named
from schemas.pipeline import Policy

HALVINGS = 7  # of the bound: to 0.8 % of it
LEAST_QUERIES = 5_000
SLOS = 10  # least length of a play: within one SLO any rate is answered in time
MOST_DEVICES = 100  # with more devices queues matter less and plays take longer
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class QueryDraws:
    """The draws of a play. For each query there are the gap before it, as a multiple of the mean
    gap, and a number from [0, 1) for its size."""

    gaps: tuple[float, ...]
    uniforms: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixProblem:
    """A mix to be played, with ``mix[i]`` devices of type i of the pool, and ``bound_qps``, its
    fluid bound."""

    pool: Pool
    policy: Policy
    mix: tuple[int, ...]
    bound_qps: float
    draws: QueryDraws

    @property
    def queries(self) -> int:
        """The number of queries of a play."""
        return max(LEAST_QUERIES, int(SLOS * self.pool.slo_s * self.bound_qps) + 1)


def playable(problem: MixProblem) -> bool:
    """Return whether a mix can be played: its policy dispatches queries one by one, it serves every
    size, it has at most ``MOST_DEVICES``, and the draws suffice."""
    return (
        bool(spec_of(problem.policy.kind).dispatch)
        and problem.bound_qps > 0
        and sum(problem.mix) <= MOST_DEVICES
        and problem.queries <= len(problem.draws.gaps)
    )


def mix_capacity(problem: MixProblem) -> float:
    """Return the highest rate that a playable mix carries, in queries/s; 0 if it carries none."""
    play = _Play(problem)
    low, high = 0.0, problem.bound_qps
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if play.keeps(middle) else (low, middle)
    return low


class _Play:
    """The devices of a mix, and the queries of the draws by number."""

    def __init__(self, problem: MixProblem) -> None:
        pool, queries = problem.pool, problem.queries
        spec, self._slo_s = spec_of(problem.policy.kind), pool.slo_s
        self._rule: Rule = object_named(spec.dispatch)
        self._serves_late = LATE.of(problem.policy) == SERVE
        self._withholds = spec.withholds and not self._serves_late
        self._devices = _device_table(problem)
        self._factors = np.ones(len(self._devices.kinds))
        self._options = _options(problem)
        self._at = list(accumulate(problem.draws.gaps[:queries]))
        ends = np.cumsum(pool.sizes.probabilities)[:-1]
        classes = np.searchsorted(ends, problem.draws.uniforms[:queries], side="right").tolist()
        rows = [tuple(row) for row in np.array(pool.latency_s).T.tolist()]
        worst = [tuple(row) for row in np.array(pool.worst_s or pool.latency_s).T.tolist()]
        self._latency_s = [rows[each] for each in classes]
        # Without a spread both are one list, so that ``match`` checks deadlines only once.
        spread = worst != rows
        self._worst_s = [worst[each] for each in classes] if spread else self._latency_s
        self._sizes = [pool.sizes.sizes[each] for each in classes]
        kinds = sorted(set(self._devices.kinds))
        self._least_s = [min(row[kind] for kind in kinds) for row in self._latency_s]
        self._allowed = int((1 - ATTAINMENT) * queries)

    def keeps(self, qps: float) -> bool:
        """Return whether enough queries are in time at a rate."""
        self._arrived_s = [at / qps for at in self._at]
        self._free_s = [0.0] * len(self._devices.kinds)
        self._held = [-1] * len(self._at)
        waiting: list[int] = []
        begun, missed, now = 0, 0, 0.0
        while missed <= self._allowed and (waiting or begun < len(self._at)):
            now = self._next_s(begun, now, bool(waiting))
            while begun < len(self._at) and self._arrived_s[begun] <= now:
                waiting.append(begun)
                begun += 1
            before = len(waiting)
            waiting = self._in_time(waiting, now)
            missed += before - len(waiting)
            if min(self._free_s) <= now:
                waiting, late = self._sent(waiting, now)
                missed += late
        return missed <= self._allowed

    def _next_s(self, begun: int, now: float, waits: bool) -> float:
        """Return when the next query comes or, if one waits, the next device is free."""
        comes_s = self._arrived_s[begun] if begun < len(self._at) else _FOREVER
        if not waits:
            return comes_s
        return min([comes_s, *[each for each in self._free_s if each > now]])

    def _in_time(self, waiting: list[int], now: float) -> list[int]:
        """Return the queries that a device can still finish in time."""
        if self._serves_late and now < _FOREVER:
            return waiting
        return [i for i in waiting if now + self._least_s[i] <= self._arrived_s[i] + self._slo_s]

    def _sent(self, waiting: list[int], now: float) -> tuple[list[int], int]:
        """Return the queries that still wait after a decision, and the number of those that were
        sent and are late. Decide again if a device drops its query, which takes no time."""
        late = 0
        while waiting:
            round_ = self._round(waiting, now)
            gone: set[int] = set()
            dropped = False
            for i, j in self._rule(round_, self._options):
                query = waiting[i]
                kind = self._devices.kinds[j]
                latest_s = now + self._worst_s[query][kind]
                misses = latest_s > self._arrived_s[query] + self._slo_s
                if misses and self._withholds:
                    continue
                gone.add(query)
                late += misses
                if misses and not self._serves_late:
                    dropped = True
                else:
                    self._free_s[j] = now + self._latency_s[query][kind]
            for i, query in enumerate(waiting[: len(round_.held)]):
                self._held[query] = round_.held[i]
            waiting = [each for each in waiting if each not in gone]
            if not dropped:
                break
        return waiting, late

    def _round(self, waiting: list[int], now: float) -> Round:
        if self._rule is match:
            waiting = waiting[: self._options.considered * len(self._free_s)]
        latency_s = [self._latency_s[i] for i in waiting]
        spread = self._worst_s is not self._latency_s
        return Round(
            sizes=[self._sizes[i] for i in waiting],
            wait_s=[now - self._arrived_s[i] for i in waiting],
            slack_s=[self._arrived_s[i] + self._slo_s - now for i in waiting],
            latency_s=latency_s,
            worst_s=[self._worst_s[i] for i in waiting] if spread else latency_s,
            held=[self._held[i] for i in waiting],
            remaining_s=[max(each - now, 0.0) for each in self._free_s],
            factors=self._factors,
            devices=self._devices,
        )


def _device_table(problem: MixProblem) -> DeviceTable:
    pool = problem.pool
    kinds = tuple(kind for kind, count in enumerate(problem.mix) for _ in range(count))
    base = _base(pool)
    speeds: Vector = pool.largest_s[base] / np.array(pool.largest_s)
    if PRICES.of(problem.policy) == MARGINAL:
        return priced_devices(pool.times, kinds, speeds, base)
    return DeviceTable.of(kinds, speeds, base)


def _base(pool: Pool) -> int:
    """Return the type that dispatchers use as the base: the named one, else the fastest at the
    largest size."""
    names = [each.name for each in pool.types]
    return names.index(pool.base) if pool.base in names else int(np.argmin(pool.largest_s))


def _options(problem: MixProblem) -> DispatchOptions:
    pool, policy, base = problem.pool, problem.policy, _base(problem.pool)
    fits = [
        pool.largest[each.name] for i, each in enumerate(pool.types) if problem.mix[i] and i != base
    ]
    threshold = THRESHOLD.of(policy) or min(fits, default=0)
    return DispatchOptions.of(policy, pool.slo_s, threshold)
