"""Solve tables for workers that share one central queue, by a pooled model.

This is a what-if study: nodes have no central queue, as a slot has one reader. A free worker sees
the n waiting queries and the slack of the first, and runs a batch of b with a model m. The model
pools the K workers into one that is K times as fast, so that a batch delays the next decision by
margin l(m, b) / K, while queries arrive at rate q. The first of n queries has waited about n / q.
The objective is to maximise the mean over queries of

    accuracy if n / q + l(m, b) <= SLO, else -price

by policy iteration over n = 1..N. N is the full queue, where all queries are late. The pooled model
ignores that workers stay busy with slow batches: if more than ``patience`` queries wait, only
batches that sustain the load are allowed. A trial selects patience and margin.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from control.policies.ramsis.mdp import fixed_levels
from control.policies.ramsis.tables import Ask, Table

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

FULL = 128  # N
PRICE = 1.0  # of a late query
CARRIES = 1.02  # throughput over load of the batches for a long queue
STEPS = 40
PATIENCE, MARGINS = (8, 16, 32), (1.0, 1.02, 1.05)
NEVER = -1e18


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Batches:
    """All batches a within the SLO; ``allowed`` and ``in_time`` are [n - 1, a]."""

    model: Ints
    size: Ints
    seconds: Floats
    accuracy: Floats
    allowed: Bools
    in_time: Bools
    arrived: Floats  # [a, k]: probability of k arrivals before the next decision

    @property
    def rate(self) -> Floats:
        """Queries per second of one worker."""
        return np.asarray(self.size / self.seconds, dtype=np.float64)


def tables(ask: Ask) -> Iterator[Table]:
    """Yield candidate tables for a load, the most cautious first."""
    for patience in PATIENCE:
        for margin in reversed(MARGINS):
            yield central_table(ask, patience, margin)


def central_table(ask: Ask, patience: int, margin: float) -> Table:
    """Return the table of the pooled model."""
    batches = _batches(ask, patience, margin)
    behind = _behind(batches)
    levels = np.array(fixed_levels(ask.slo_s))
    ahead = np.where(batches.allowed, behind + batches.size * batches.accuracy, NEVER)
    in_time = batches.seconds <= levels[:, None]  # [j, a]
    scored = np.where(in_time, ahead[:, None], NEVER)
    # If no batch is in time or the queue is full: the batch with the most throughput.
    most = np.where(batches.allowed, batches.rate, 0.0).argmax(axis=1)
    hopeless = scored.max(axis=2) == NEVER
    hopeless[-1] = True
    choice = np.where(hopeless, most[:, None], scored.argmax(axis=2))
    return Table(
        qps=ask.qps,
        models=tuple(model.name for model in ask.models),
        levels_s=tuple(levels.tolist()),
        model=tuple(map(tuple, batches.model[choice].tolist())),
        batch=tuple(map(tuple, batches.size[choice].tolist())),
    )


def best(candidates: Iterator[Table], trial: Callable[[Table], tuple[float, float]]) -> Table:
    """Return the candidate with the most correct queries in time.

    ``trial`` returns accuracy and violation. Candidates with a violation of 0.1 % or more are
    considered only if all have one.
    """

    def worth(table: Table) -> tuple[bool, float]:
        accuracy, violation = trial(table)
        return violation < 0.001, accuracy * (1 - violation)

    return max(candidates, key=worth)


def _batches(ask: Ask, patience: int, margin: float) -> Batches:
    found = [
        (number, size, seconds, model.accuracy)
        for number, model in enumerate(ask.models)
        for size, seconds in enumerate(model.latency_s, start=1)
        if seconds <= ask.slo_s
    ]
    columns = [np.array(column) for column in zip(*found, strict=True)]
    model, size, seconds, accuracy = columns
    queue = np.arange(1, FULL + 1)[:, None]
    rate = size / seconds * ask.workers
    carries = rate >= min(CARRIES * ask.qps, rate.max())
    fits = (size <= queue) & ((queue <= patience) | carries)
    in_time = fits & (seconds + queue / ask.qps <= ask.slo_s)
    in_time[-1] = False
    mean = margin * ask.qps * seconds[:, None] / ask.workers
    count = np.arange(FULL + 1)
    return Batches(
        model=model, size=size, seconds=seconds, accuracy=accuracy, allowed=fits, in_time=in_time,
        arrived=np.exp(count * np.log(mean) - gammaln(count + 1) - mean),
    )  # fmt: skip


def _behind(batches: Batches) -> Floats:
    """Return the relative value after each batch, [n - 1, a], by policy iteration."""
    reward = np.where(batches.in_time, batches.accuracy, -PRICE)
    offered, state = _offered(batches), np.arange(FULL)
    choice = np.where(offered, batches.rate, 0.0).argmax(axis=1)
    best, behind = -np.inf, np.zeros(reward.shape)
    for _ in range(STEPS):
        gain, values = _valued(batches, choice, reward[state, choice])
        follows = _expected(batches, values) - gain * batches.size
        if gain > best:  # policies with disjoint states may make the iteration cycle
            best, behind = gain, follows
        scored = np.where(offered, batches.size * reward + follows, NEVER)
        kept = scored[state, choice] >= scored.max(axis=1) - 1e-9
        if kept.all():
            break
        choice = np.where(kept, choice, scored.argmax(axis=1))
    return behind


def _offered(batches: Batches) -> Bools:
    """Return the batches in time; if none is, the batch with the most throughput."""
    most = np.where(batches.allowed, batches.rate, 0.0).argmax(axis=1)
    late = np.arange(len(batches.size)) == most[:, None]
    return np.where(batches.in_time.any(axis=1, keepdims=True), batches.in_time, late)


def _valued(batches: Batches, choice: Ints, reward: Floats) -> tuple[float, Floats]:
    """Return the gain per query, and the values of n = 1..N, with the value of n = 1 set to 0."""
    size = batches.size[choice]
    left = np.arange(1, FULL + 1) - size
    after = np.minimum(left[:, None] + np.arange(FULL + 1), FULL)
    moves = np.zeros((FULL, FULL + 1))
    np.add.at(moves, (np.arange(FULL)[:, None], after), batches.arrived[choice])
    moves[:, FULL] += 1 - moves.sum(axis=1)
    moves[:, 1] += moves[:, 0]  # an empty queue waits for the next query
    system = np.eye(FULL) - moves[:, 1:]
    system[:, 0] = size
    solution = np.linalg.solve(system, size * reward)
    return float(solution[0]), np.append(0.0, solution[1:])


def _expected(batches: Batches, values: Floats) -> Floats:
    """Return the expected values after each batch, [n - 1, a]; 0 if the queue is shorter."""
    padded = np.concatenate([values[:1], values, np.full(FULL, values[-1])])
    windows = np.lib.stride_tricks.sliding_window_view(padded, FULL + 1)[: FULL + 1]
    beyond = 1 - batches.arrived.sum(axis=1)
    by_left = windows @ batches.arrived.T + beyond * values[-1]  # [left, a]
    left = np.arange(1, FULL + 1)[:, None] - batches.size
    found = by_left[np.maximum(left, 0), np.arange(len(batches.size))]
    return np.where(left >= 0, found, 0.0)
