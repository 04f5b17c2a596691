"""Tables for workers that share one central queue, by a pooled model.

A free worker sees the n waiting queries and the slack of the first, and runs a batch of b with a
model m. The model pools the K workers into one that is K times as fast, so that a batch delays the
next decision by margin l(m, b) / K, while queries arrive at rate q. The first of n queries has
waited about n / q. The objective is to maximise the mean over queries of

    accuracy if n / q + l(m, b) <= SLO, else -price

by policy iteration over n = 1..N. N is the full queue, where all queries are late. The pooled model
ignores that workers stay busy with slow batches: if more than ``patience`` queries wait, only
batches that sustain the load are allowed. Patience and margin are chosen by a trial of each table
with K workers (``central_trial.py``), which also yields the expected accuracy and violation.

The queue is that of a dispatcher (operators/dispatch/table_dispatcher.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from control.policies.ramsis.central_trial import LEAST_QPS, TrialQuality, Workers, trial_of
from control.policies.ramsis.mdp import Setting
from control.policies.ramsis.table_builder import TableProblem
from control.policies.ramsis.table_leases import central_lease
from control.policies.ramsis.tables import SelectionPlan, Table, setting_for
from control.problem.problem import SelectionError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

FULL = (128, 256)  # N is the load times the SLO, within these
PRICE = 1.0  # of a late query, beside the policy's
CARRIES = 1.02  # throughput over load of the batches for a long queue
STEPS = 40
PATIENCE, MARGINS = (8, 16, 32), (1.0, 1.02, 1.05)
HARDLY_LATE = 0.001  # violation below which accuracy decides
NEVER = -1e18


def make(problem: TableProblem) -> SelectionPlan:
    """Return the best of the candidate tables for a load, by a trial of each.

    Raises ``SelectionError`` where no query could be served in time, or for arrivals that the
    pooled model does not know.
    """
    ask = problem.ask
    if ask.dispersion != 1:
        raise SelectionError(
            f"a central queue is planned for Poisson arrivals, and dispersion is "
            f"{ask.dispersion:g}; use ramsis, or a dispersion of 1"
        )
    setting = setting_for(problem.options, ask)
    model, batch = central_lease(setting)
    workers = Workers(
        models=setting.models, slo_s=setting.slo_s, count=ask.workers,
        rescue=(setting.models.index(model), batch),
    )  # fmt: skip
    price = PRICE + problem.options.objective.price
    most = HARDLY_LATE if problem.violation is None else problem.violation
    tried = [(table, trial_of(table, workers)) for table in candidates(setting, ask.qps, price)]
    table, trial = best_table(tried, most)
    return SelectionPlan(
        table=table,
        feasible=ask.qps <= setting.capacity_qps(),
        expected_accuracy=trial.accuracy,
        expected_violation=trial.violation,
        price=problem.options.objective.price,
        states=full_queue(setting, ask.qps),
        actions=sum(len(each.latency_s) for each in setting.models),
        sweeps=len(tried),  # tables of which this is the best
        solver="policy-iteration",
        values=np.zeros(0),
    )


def best_table(
    tried: Sequence[tuple[Table, TrialQuality]], most: float
) -> tuple[Table, TrialQuality]:
    """Return the table with the most right answers in time among those with a violation of at most
    ``most``; if there are none, the one with the most of all."""
    return max(tried, key=lambda each: (each[1].violation <= most, each[1].right))


def candidates(setting: Setting, qps: float, price: float = PRICE) -> Iterator[Table]:
    """Yield the candidate tables for a load, the most cautious first."""
    for patience in PATIENCE:
        for margin in reversed(MARGINS):
            yield central_table(setting, qps, patience, margin, price)


def full_queue(setting: Setting, qps: float) -> int:
    """Return N: queries that arrive within the SLO, within ``FULL`` and above any batch."""
    least, most = FULL
    return max(setting.longest + 1, min(max(ceil(qps * setting.slo_s), least), most))


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


def central_table(
    setting: Setting, qps: float, patience: int, margin: float, price: float = PRICE
) -> Table:
    """Return the table of the pooled model."""
    batches = _batches(setting, max(qps, LEAST_QPS), patience, margin)
    behind = _behind(batches, price)
    levels = np.array(setting.levels_s)
    ahead = np.where(batches.allowed, behind + batches.size * batches.accuracy, NEVER)
    in_time = batches.seconds <= levels[:, None]  # [j, a]
    scored = np.where(in_time, ahead[:, None], NEVER)
    # If no batch is in time or the queue is full: the batch with the most throughput.
    most = np.where(batches.allowed, batches.rate, 0.0).argmax(axis=1)
    hopeless = scored.max(axis=2) == NEVER
    hopeless[-1] = True
    choice = np.where(hopeless, most[:, None], scored.argmax(axis=2))
    return Table(
        qps=qps,
        models=tuple(model.name for model in setting.models),
        levels_s=setting.levels_s,
        model=tuple(map(tuple, batches.model[choice].tolist())),
        batch=tuple(map(tuple, batches.size[choice].tolist())),
    )


def _batches(setting: Setting, qps: float, patience: int, margin: float) -> Batches:
    found = [
        (number, size, seconds, model.accuracy)
        for number, model in enumerate(setting.models)
        for size, seconds in enumerate(model.latency_s, start=1)
        if seconds <= setting.slo_s
    ]
    columns = [np.array(column) for column in zip(*found, strict=True)]
    model, size, seconds, accuracy = columns
    full = full_queue(setting, qps)
    queue = np.arange(1, full + 1)[:, None]
    rate = size / seconds * setting.workers
    carries = rate >= min(CARRIES * qps, rate.max())
    fits = (size <= queue) & ((queue <= patience) | carries)
    in_time = fits & (seconds + queue / qps <= setting.slo_s)
    in_time[-1] = False
    mean = margin * qps * seconds[:, None] / setting.workers
    count = np.arange(full + 1)
    return Batches(
        model=model, size=size, seconds=seconds, accuracy=accuracy, allowed=fits, in_time=in_time,
        arrived=np.exp(count * np.log(mean) - gammaln(count + 1) - mean),
    )  # fmt: skip


def _behind(batches: Batches, price: float) -> Floats:
    """Return the relative value after each batch, [n - 1, a], by policy iteration."""
    reward = np.where(batches.in_time, batches.accuracy, -price)
    offered, state = _offered(batches), np.arange(len(batches.allowed))
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
    full, size = len(choice), batches.size[choice]
    left = np.arange(1, full + 1) - size
    after = np.minimum(left[:, None] + np.arange(full + 1), full)
    moves = np.zeros((full, full + 1))
    np.add.at(moves, (np.arange(full)[:, None], after), batches.arrived[choice])
    moves[:, full] += 1 - moves.sum(axis=1)
    moves[:, 1] += moves[:, 0]  # an empty queue waits for the next query
    system = np.eye(full) - moves[:, 1:]
    system[:, 0] = size
    solution = np.linalg.solve(system, size * reward)
    return float(solution[0]), np.append(0.0, solution[1:])


def _expected(batches: Batches, values: Floats) -> Floats:
    """Return the expected values after each batch, [n - 1, a]; 0 if the queue is shorter."""
    full = len(values)
    padded = np.concatenate([values[:1], values, np.full(full, values[-1])])
    windows = np.lib.stride_tricks.sliding_window_view(padded, full + 1)[: full + 1]
    beyond = 1 - batches.arrived.sum(axis=1)
    by_left = windows @ batches.arrived.T + beyond * values[-1]  # [left, a]
    left = np.arange(1, full + 1)[:, None] - batches.size
    found = by_left[np.maximum(left, 0), np.arange(len(batches.size))]
    return np.where(left >= 0, found, 0.0)
