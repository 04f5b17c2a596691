"""Reference solution of model selection, with every transition written out.

This is the decision process of the RAMSIS paper's section 4, equation 2, row by row: where
``control`` uses factors, transforms and differences, the reference sums over the intervals B, C and
D and keeps the transitions in one dense array. Only for Poisson arrivals.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy
from numpy.typing import NDArray

from control.policies.ramsis.mdp import Setting

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense decision process: choices are the models, state (n, j) has the number
    (n - 1) * levels + j, and the full queue is last."""

    transitions: Floats  # [state, model, next state]
    accuracy: Floats  # [model]
    served: Floats  # [state]
    on_time: NDArray[np.bool_]  # [state, model]
    allowed: NDArray[np.bool_]  # [state, model]


def dense(setting: Setting) -> Dense:
    """Return the process with the transitions of all states."""
    latency, busy_s = setting.latencies_s(), setting.busy_s()
    levels = np.array(setting.levels_s)
    states = [(n, j) for n in range(1, setting.longest + 1) for j in range(len(levels))]
    states.append((setting.longest + 1, 0))
    shape = (len(states), len(setting.models))
    on_time, allowed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    transitions = np.zeros((*shape, len(states)))
    blocks: dict[float, Floats] = {}
    for s, (n, j) in enumerate(states):
        if n <= setting.longest:
            on_time[s] = latency[n - 1] <= levels[j]
        allowed[s] = on_time[s]
        if not on_time[s].any():
            allowed[s, np.argmin(latency[n - 1])] = True
        offset = _offset(setting, n, levels[-1] - levels[j])
        for m in np.flatnonzero(allowed[s]):
            busy = float(busy_s[n - 1, m])
            if busy not in blocks:
                blocks[busy] = _block(setting, busy)
            transitions[s, m] = offset @ blocks[busy]
    return Dense(
        transitions,
        np.array([model.accuracy for model in setting.models]),
        np.array([float(n) for n, _ in states]),
        on_time,
        allowed,
    )


def _offset(setting: Setting, n: int, queued_s: float) -> Floats:
    """P(q | n, j)."""
    counts = np.arange((n - 1) * setting.workers, n * setting.workers)
    found = scipy.stats.poisson.pmf(counts, setting.arrivals.qps * queued_s)
    if (found == 0).any():
        found = found + 5e-324
    return found / found.sum()


def _block(setting: Setting, busy: float) -> Floats:
    """P(next state | offset) after an action that takes ``busy`` seconds."""
    levels, workers, longest = np.array(setting.levels_s), setting.workers, setting.longest
    width = len(levels)
    block = np.zeros((workers, longest * width + 1))
    edges = np.maximum(busy - levels[-1] + levels, 0.0)
    edges[0] = 0.0
    for q, j in product(range(workers), range(width - 1)):
        if edges[j + 1] > edges[j]:
            missing = workers - q
            cells = _first_between(setting, missing, edges[j], edges[j + 1], busy)
            block[q, j : longest * width : width] = cells
    none = workers - np.arange(workers) - 1
    block[:, width - 1] = scipy.stats.poisson.cdf(none, setting.arrivals.qps * busy)
    block[:, -1] = np.maximum(1 - block.sum(axis=1), 0.0)
    return block


def _first_between(setting: Setting, missing: int, low: float, high: float, busy: float) -> Floats:
    """P(the worker's first query arrives in low..high, and n' queries by ``busy``), n' = 1..N.

    The worker's first query is the central arrival number ``missing``.
    """
    qps, workers, longest = setting.arrivals.qps, setting.workers, setting.longest
    last = missing + longest * workers
    # Arrivals beyond ten standard deviations are negligible.
    reach = min(last, int(qps * busy + 10 * (qps * busy) ** 0.5) + 40)
    before = scipy.stats.poisson.pmf(np.arange(min(missing, reach)), qps * low)
    inside = scipy.stats.poisson.pmf(np.arange(reach), qps * (high - low))
    reached = np.convolve(before, inside)[:reach]
    reached[:missing] = 0.0  # the first query arrives by ``high``
    after = scipy.stats.poisson.pmf(np.arange(reach), qps * max(busy - high, 0.0))
    total = np.zeros(last)
    total[:reach] = np.convolve(reached, after)[:reach]
    return total[missing:].reshape(longest, workers).sum(axis=1)


def iterate(problem: Dense, sweeps: int = 100) -> Ints:
    """Run the authors' value iteration: 100 sweeps from 0 over decisions; the first model wins
    ties."""
    reward = np.where(problem.on_time, problem.accuracy, 0.0)
    reward = np.where(problem.allowed, reward, -np.inf)
    values = np.zeros(len(problem.served))
    choice = np.zeros(len(values), dtype=np.intp)
    for _ in range(sweeps):
        scores = reward + problem.transitions @ values
        choice, values = scores.argmax(axis=1), scores.max(axis=1)
    return choice


def shares(problem: Dense, choice: Ints) -> Floats:
    """Return the share of decisions in each state: p = p P, from the first query's state."""
    chain = problem.transitions[np.arange(len(choice)), choice]
    size = len(choice)
    first = np.zeros(size)
    first[len(problem.on_time) // (int(problem.served[-1]) - 1) - 1] = 1.0
    found = np.linalg.solve(np.eye(size) - chain.T + np.outer(first, np.ones(size)), first)
    return np.asarray(found / found.sum(), dtype=np.float64)


def worth(problem: Dense, choice: Ints) -> tuple[float, float]:
    """Return the expected accuracy of queries on time, and the share of late queries."""
    queries = shares(problem, choice) * problem.served
    queries = queries / queries.sum()
    on_time = problem.on_time[np.arange(len(choice)), choice]
    late = float(queries[~on_time].sum())
    met = queries[on_time]
    return float((met * problem.accuracy[choice][on_time]).sum() / met.sum()), late
