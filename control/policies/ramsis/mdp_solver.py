"""Value and policy iteration for the decision process, and the value of its best choices.

Two objectives, with w = 1 or w = queries served, and the price of a late query:

    per-decision   the mean over decisions of   accuracy if on time, else -price
    per-query      the mean over queries of     the same

The paper and its code maximise per decision: from V = 0

    V'(s) = max_c  r(s, c) + sum_s' P(s' | s, c) V(s')

until the span of V' - V is small, at most 100 sweeps. Per query is a ratio of two means, maximised
by Dinkelbach's rule: g is the ratio of the current choices, and the next choices maximise the mean
of w (r - g), until that finds nothing above 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from control.policies.ramsis.mdp import DecisionProcess
from control.policies.ramsis.transitions import Floats, Ints

T = TypeVar("T", np.float64, np.bool_)

SPAN = 1e-6  # of values, in units of accuracy
SWEEPS = 100  # as in the authors' code
RATIOS = 30
COARSE = 0.1
STEPS = 5000
RESTART = 40
TRIES = 10
SETTLED = 1e-13
TIE = 1e-10  # the faster of two choices within this difference is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueValue:
    """The long-run value of a queue, weighted by queries served.

    ``accuracy`` is over queries in states that meet the earliest deadline; ``violation`` is the
    share of queries in the others. If no state meets it, accuracy is that of all queries.
    """

    accuracy: float
    violation: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Solution:
    """The choice c in every state [n - 1, j], the values behind it, and its worth."""

    choice: Ints
    values: Floats
    worth: QueueValue
    mass: Floats  # [n - 1, j]: share of decisions
    sweeps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective: the mean ``per`` "decision" or "query", with a ``price`` of a late query."""

    per: str = "query"
    price: float = 0.0

    def reward(self, process: DecisionProcess) -> Floats:
        """Return r(s, c), [n - 1, c, j]."""
        return np.where(process.on_time, process.accuracy[:, None], -self.price)

    def mean(self, accuracy: float, violation: float) -> float:
        """Return the objective's value for a queue of that accuracy and violation."""
        return accuracy * (1 - violation) - self.price * violation

    def weight(self, process: DecisionProcess) -> Floats:
        """Return w(s, c), [n - 1, c, 1]."""
        served = process.served[:, :, None]
        return served if self.per == "query" else np.ones_like(served)


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """The state of value iteration: values, the choices they give, and their last span."""

    values: Floats
    choice: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.intp))
    span: float = np.inf
    sweeps: int = 0


def value_iteration(
    process: DecisionProcess, objective: Objective, start: Floats | None
) -> Solution:
    """Return the best choices by value iteration; ``start`` may be a similar process's values."""
    reward, weight = objective.reward(process), objective.weight(process)
    swept = Swept(np.zeros(reward.shape[::2]) if start is None else start)
    if objective.per == "decision":
        swept = _sweep(process, reward, swept, SPAN)
        return _valued(process, swept.choice, swept.values, None, swept.sweeps)
    choice = _first_best(_masked(process, reward))
    mass = stationary(process, choice)
    ratio = _ratio(weight, reward, choice, mass)
    for at in range(RATIOS):
        # The first ratios are far off, so their values need not be exact.
        span = max(SPAN, COARSE ** (at + 1))
        swept = _sweep(process, weight * (reward - ratio), swept, span)
        moved = stationary(process, swept.choice, mass)
        gained = _ratio(weight, reward, swept.choice, moved) - ratio
        if gained > 0:
            choice, mass, ratio = swept.choice, moved, ratio + gained
        if gained <= SETTLED and swept.span < SPAN:
            break
    return _valued(process, choice, swept.values, mass, swept.sweeps)


def policy_iteration(
    process: DecisionProcess, objective: Objective, start: Floats | None
) -> Solution:
    """Return the best choices by policy iteration: evaluate and improve until none changes."""
    reward, weight = objective.reward(process), objective.weight(process)
    values = np.zeros(reward.shape[::2]) if start is None else start
    choice = _first_best(_masked(process, weight * reward + process.expect(values)))
    sweeps = 1
    for _ in range(SWEEPS):
        values, ratio, more = _evaluated(process, weight, reward, choice, values)
        scored = _masked(process, weight * (reward - ratio) + process.expect(values))
        sweeps += more + 1
        kept = _taken(scored, choice) >= scored.max(axis=1) - SPAN / 100
        if kept.all():
            break
        choice = np.where(kept, choice, _first_best(scored))
    return _valued(process, choice, values, None, sweeps)


SOLVERS: Mapping[str, Callable[[DecisionProcess, Objective, Floats | None], Solution]] = {
    "value-iteration": value_iteration,
    "policy-iteration": policy_iteration,
}


def falls_short(
    process: DecisionProcess, objective: Objective, ratio: float, sweeps: int = 30
) -> bool:
    """Return whether certainly no choices reach a mean of ``ratio`` per query.

    It is certain if some values V have V' - V < 0 everywhere, where V' is the best of w (r - ratio)
    + P V: this bounds the mean gain of all choices.
    """
    reward = replace(objective, per="query").weight(process) * (objective.reward(process) - ratio)
    masked, values = _masked(process, reward), np.zeros(reward.shape[::2])
    for _ in range(sweeps):
        best: Floats = (masked + process.expect(values)).max(axis=1)
        if (best - values).max() < -SPAN:
            return True
        values = best - best[0, -1]
    return False


def stationary(process: DecisionProcess, choice: Ints, start: Floats | None = None) -> Floats:
    """Return the share p of decisions in each state [n - 1, j]: p = p P, summing to 1.

    From (I - P^T + u 1^T) p = u, with u the state of the first query, by GMRES; then by powers,
    which remove the remaining rounding error.
    """
    chain = process.under(choice)
    first = np.zeros(choice.shape)
    first[0, -1] = 1.0

    def apply(flat: Floats) -> Floats:
        mass: Floats = flat.reshape(choice.shape)
        left: Floats = mass - chain.push(mass) + first * mass.sum()
        return left.ravel()

    mass: Floats = _solved(apply, first, first if start is None else start, SETTLED)
    mass = np.maximum(mass, 0.0)
    for _ in range(STEPS):
        # Differences leave noise of about 1e-17 below 0.
        after: Floats = np.maximum(chain.push(mass), 0.0)
        after /= after.sum()
        moved = np.abs(after - mass).sum()
        mass = after
        if moved < 10 * SETTLED:
            break
    return mass


def queue_value(process: DecisionProcess, choice: Ints, mass: Floats) -> QueueValue:
    """Return expected accuracy and violation of the choices, from the mass of the states."""
    queries = mass * _taken(
        np.broadcast_to(process.served[:, :, None], process.on_time.shape), choice
    )
    queries = queries / queries.sum()
    on_time = _taken(process.on_time, choice)
    met = float(queries[on_time].sum())
    counted = on_time if met > 0 else np.ones_like(on_time)
    accuracy = float((queries * process.accuracy[choice])[counted].sum() / queries[counted].sum())
    late = float(queries[np.logical_not(on_time)].sum())
    return QueueValue(accuracy=min(accuracy, 1.0), violation=min(late, 1.0))  # sums round


def _sweep(process: DecisionProcess, reward: Floats, before: Swept, enough: float) -> Swept:
    """Continue value iteration until the span is below ``enough``, at most 100 sweeps."""
    masked, values, sweeps, span = _masked(process, reward), before.values, 0, np.inf
    scored = masked
    while span >= enough and sweeps < SWEEPS:
        scored = masked + process.expect(values)
        best: Floats = scored.max(axis=1)
        span = float(np.ptp(best - values))
        values = best - best[0, -1]
        sweeps += 1
    return Swept(values, _first_best(scored), span, before.sweeps + sweeps)


def _evaluated(
    process: DecisionProcess, weight: Floats, reward: Floats, choice: Ints, values: Floats
) -> tuple[Floats, float, int]:
    """Return values h and ratio g of fixed choices, (I - P) h = w (r - g), and the sweeps used.

    From (I - P + w u^T) h = w r, with u the state of the first query, by GMRES; then g = u^T h.
    """
    own = _taken(np.broadcast_to(weight, reward.shape), choice)
    chain, sweeps = process.under(choice), 0

    def apply(flat: Floats) -> Floats:
        nonlocal sweeps
        sweeps += 1
        held: Floats = flat.reshape(choice.shape)
        left: Floats = held - chain.expect(held) + own * held[0, -1]
        return left.ravel()

    found: Floats = _solved(apply, own * _taken(reward, choice), values, 1e-10)
    return found, float(found[0, -1]), sweeps


def _solved(apply: Callable[[Floats], Floats], right: Floats, start: Floats, rtol: float) -> Floats:
    operator = scipy.sparse.linalg.LinearOperator(
        (right.size, right.size), matvec=apply, dtype=np.float64
    )
    found, _ = scipy.sparse.linalg.gmres(
        operator, right.ravel(), x0=start.ravel(), rtol=rtol, atol=0, restart=RESTART, maxiter=TRIES
    )
    solution: Floats = np.asarray(found, dtype=np.float64).reshape(right.shape)
    return solution


def _masked(process: DecisionProcess, scored: Floats) -> Floats:
    return np.where(process.allowed, scored, -np.inf)


def _first_best(scored: Floats) -> Ints:
    best: Ints = np.argmax(scored >= scored.max(axis=1, keepdims=True) - TIE, axis=1)
    return best


def _taken(table: NDArray[T], choice: Ints) -> NDArray[T]:
    return np.take_along_axis(table, choice[:, None, :], axis=1)[:, 0]


def _ratio(weight: Floats, reward: Floats, choice: Ints, mass: Floats) -> float:
    weights = mass * _taken(np.broadcast_to(weight, reward.shape), choice)
    return float((weights * _taken(reward, choice)).sum() / weights.sum())


def _valued(
    process: DecisionProcess, choice: Ints, values: Floats, mass: Floats | None, sweeps: int
) -> Solution:
    mass = stationary(process, choice, mass)
    return Solution(
        choice=choice,
        values=values,
        worth=queue_value(process, choice, mass),
        mass=mass,
        sweeps=sweeps,
    )
