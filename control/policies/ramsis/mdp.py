"""The decision process of model selection: states, choices and rewards.

A state is (n, j): n queries queued, 1..N, and N + 1 for the full queue; the slack of the earliest
deadline has reached level T_j. Arrays are [n - 1, c, j] with a choice c, or [n - 1, j]. The full
queue has no slack, so only its level 0 is reachable; the rest of its row only completes the shape.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from control.policies.ramsis.arrival_counts import ArrivalCounts
from control.policies.ramsis.pareto_models import CandidateModel, extrapolated_s
from control.policies.ramsis.transitions import Ahead, Floats, Ints, look_ahead, offsets
from control.problem.problem import SelectionError

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The input of a table. Models are fastest first, their latencies never fall.

    ``levels_s`` are the levels of slack, from 0 up to the SLO.
    """

    models: tuple[CandidateModel, ...]
    slo_s: float
    workers: int
    arrivals: ArrivalCounts
    levels_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ``SelectionError``, with the remedy, where no query could be served in time."""
        if not self.models:
            raise SelectionError("there is no model to choose from; name one variant at least")
        if self.workers < 1:
            raise SelectionError(f"there are {self.workers} workers; it takes one at least")
        if not 0 < self.slo_s < math.inf:
            raise SelectionError(f"the SLO is {self.slo_s:g} s; it must be above 0")
        fastest = min(self.models, key=lambda model: model.latency_s[0])
        if fastest.latency_s[0] > self.slo_s:
            raise SelectionError(
                f"the fastest model, {fastest.name}, takes {fastest.latency_s[0] * 1e3:g} ms for "
                f"one query and the SLO is {self.slo_s * 1e3:g} ms; raise the SLO or add a "
                "faster model"
            )
        steps = np.diff(self.levels_s)
        if self.levels_s[0] != 0 or self.levels_s[-1] != self.slo_s or not (steps > 0).all():
            raise SelectionError("levels of slack must grow from 0 to the SLO")

    @property
    def longest(self) -> int:
        """N: the largest profiled batch of any model."""
        return max(len(model.latency_s) for model in self.models)

    @property
    def states(self) -> int:
        """The number of states, including the empty and the full queue's."""
        return (self.longest + 1) * len(self.levels_s) + 1

    def latencies_s(self) -> Floats:
        """Return latencies by [n - 1, m] for n in 1..N+1, infinite where a model was not profiled.

        For the full queue only the fastest model has a latency, by extrapolation.
        """
        return self._by_queue([model.latency_s for model in self.models])

    def busy_s(self) -> Floats:
        """Return how long a worker is busy, for every latency of ``latencies_s``."""
        return self._by_queue([model.busy_s for model in self.models])

    def _by_queue(self, batches_s: Sequence[Sequence[float]]) -> Floats:
        """Return seconds of a queue served whole, [n - 1, m], from those of models' batches."""
        table = np.full((self.longest + 1, len(self.models)), math.inf)
        for m, each_s in enumerate(batches_s):
            table[: len(each_s), m] = each_s
        table[self.longest, self.fastest] = extrapolated_s(batches_s[self.fastest])
        return table

    @property
    def fastest(self) -> int:
        """The model of the least latency for the longest batch."""
        most = [m for m, model in enumerate(self.models) if len(model.latency_s) == self.longest]
        return min(most, key=lambda m: self.models[m].latency_s[-1])

    def capacity_qps(self) -> float:
        """Return the load at which workers are always busy with the best batches within the SLO."""
        batch = np.arange(1, self.longest + 1)[:, None]
        in_time = self.latencies_s()[:-1] <= self.slo_s
        return float(self.workers * np.max(np.where(in_time, batch / self.busy_s()[:-1], 0.0)))


def fixed_levels(slo_s: float, count: int = 100) -> tuple[float, ...]:
    """Return T_j = j SLO / count: the paper's fixed length discretisation (section 4.2.2)."""
    if count < 1:
        raise SelectionError(f"slack cannot be told apart in {count} steps; give 1 or more")
    return (*(j * slo_s / count for j in range(count)), slo_s)


def model_levels(slo_s: float, models: tuple[CandidateModel, ...]) -> tuple[float, ...]:
    """Return every latency within the SLO: the paper's model-based levels (section 4.2.1)."""
    latencies = {s for model in models for s in model.latency_s if s < slo_s}
    return (0.0, *sorted(latencies), slo_s)


@dataclass(frozen=True, slots=True)
class Chain:
    """A process with a fixed choice in every state: both functions map [n - 1, j] to [n - 1, j].

    ``expect`` returns the expected value of the next state, ``push`` the mass of the next states.
    """

    expect: Callable[[Floats], Floats]
    push: Callable[[Floats], Floats]


class DecisionProcess(Protocol):
    """A decision process: choices and their transitions.

    ``expect`` returns the expected value of the next state for values of the states.
    """

    @property
    def model(self) -> Ints:
        """[c]: the model's number."""

    @property
    def actions(self) -> int:
        """The number of pairs of model and batch, the full queue's included."""

    @property
    def accuracy(self) -> Floats:
        """[c], 0..1."""

    @property
    def served(self) -> Floats:
        """[n - 1, c]: queries that are served."""

    @property
    def on_time(self) -> Bools:
        """[n - 1, c, j]: the earliest deadline is met."""

    @property
    def allowed(self) -> Bools:
        """[n - 1, c, j]: at least one choice in every state."""

    def expect(self, values: Floats) -> Floats:
        """Return [n - 1, c, j] for values [n - 1, j]."""

    def under(self, choice: Ints) -> Chain:
        """Return the process with the choices [n - 1, j]."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WholeQueue:
    """Maximal batching: the choices are the models, the batch is the queue.

    ``slot[n - 1, m]`` is the index, in ``ahead``, of "model m for a queue of n"; it equals the
    number of actions where there is no such action.
    """

    accuracy: Floats
    served: Floats
    on_time: Bools
    allowed: Bools
    slot: Ints
    ahead: Ahead
    offset: Floats  # [n - 1, d, j]

    @property
    def model(self) -> Ints:
        """The model of each choice: itself."""
        return np.arange(len(self.accuracy))

    @property
    def actions(self) -> int:
        """The number of pairs of model and batch that some queue may choose."""
        return len(self.ahead.lowest)

    def expect(self, values: Floats) -> Floats:
        """Return expected values, 0 where there is no such action."""
        found = np.pad(self.ahead.expect(values), ((0, 1), (0, 0)))
        expected: Floats = np.matmul(found[self.slot], self.offset)
        return expected

    def under(self, choice: Ints) -> Chain:
        """Return the process with a fixed choice in every state."""

        def expect(values: Floats) -> Floats:
            return np.take_along_axis(self.expect(values), choice[:, None, :], axis=1)[:, 0]

        return Chain(expect, partial(self.push, choice=choice))

    def push(self, mass: Floats, choice: Ints) -> Floats:
        """Return the mass of the next states."""
        chosen = choice[:, None, :] == np.arange(len(self.accuracy))[None, :, None]
        by_offset = np.matmul(chosen * mass[:, None, :], self.offset.transpose(0, 2, 1))
        there = self.slot < len(self.ahead.lowest)
        return self.ahead.push(by_offset[there])


def whole_queue(setting: Setting) -> WholeQueue:
    """Return the paper's process: round robin, and a free worker serves its whole queue."""
    latency = setting.latencies_s()
    levels = np.array(setting.levels_s)
    on_time = latency[:, :, None] <= levels
    # The fastest model serves a queue that none serves in time; in a tie, the most accurate one.
    accuracy = np.array([model.accuracy for model in setting.models])
    late = np.zeros_like(on_time)
    fastest = [int(np.lexsort((-accuracy, row))[0]) for row in latency]
    late[np.arange(len(latency)), fastest] = True
    on_time[-1] = False  # the full queue has no slack
    allowed = np.where(on_time.any(axis=1, keepdims=True), on_time, late)
    there = allowed.any(axis=2)
    slot = np.full(there.shape, np.count_nonzero(there))
    slot[there] = np.arange(np.count_nonzero(there))
    return WholeQueue(
        accuracy=accuracy,
        served=np.repeat(np.arange(1.0, len(latency) + 1)[:, None], len(accuracy), axis=1),
        on_time=on_time,
        allowed=allowed,
        slot=slot,
        ahead=look_ahead(
            setting.arrivals, setting.workers, setting.busy_s()[there], levels, setting.longest
        ),
        offset=offsets(setting.arrivals, setting.workers, levels, setting.longest),
    )
