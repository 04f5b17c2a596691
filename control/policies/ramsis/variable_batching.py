"""Variable batching: the decision process of a worker that may leave part of its queue.

The paper's section 4.3.2: from (n, j) a worker may serve any b <= n. With b = n the transitions are
those of ``transitions``. With b < n the query with the next deadline is already queued: it arrived
b K central arrivals after the first. Given the k arrivals in A = SLO - T_j, the number of those up
to time v is binomial, so

    v = T_j' - T_j + l(m, b)
    P(slack at the end >= T_j' | n, j, b) = P(Binomial(k, v / A) < b K)
    n' = n - b + the worker's arrivals in l(m, b), whose number follows from the offset q as before

With one worker this is exact. With more, k = (n - 1) K + q differs by offset; the mean of q
replaces all of them, and slack and arrivals are taken as independent given (n, j).
"""

from dataclasses import dataclass

import numpy as np
import scipy

from control.policies.ramsis.mdp import Bools, Chain, Setting
from control.policies.ramsis.transitions import Ahead, Floats, Ints, look_ahead, offsets
from control.problem.problem import SelectionError

NEGLIGIBLE = 1e-13
LARGEST = 150e6  # largest number of values for partly served queues, 1.2 GB
SMALLEST = 1e-18  # smallest probability of a transition that is kept
INSTANT = 1e-12  # seconds, in place of zero


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """The transitions of choice c for each queue that it leaves part of, n = b + 1 .. N + 1."""

    slack: Floats  # [n - b - 1, j, j']
    arrived: Floats  # [n - b - 1, j, i]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartOfQueue:
    """Variable batching: a choice is a model and a batch, both by number c."""

    model: Ints  # [c]
    batch: Ints  # [c]
    accuracy: Floats
    served: Floats
    on_time: Bools
    allowed: Bools
    ahead: Ahead  # [c]: of a queue served whole
    offset: Floats  # [n - 1, d, j]
    left: tuple[Left, ...]  # [c]

    @property
    def actions(self) -> int:
        """Number of pairs of model and batch."""
        return len(self.batch)

    def expect(self, values: Floats) -> Floats:
        """Return expected values, 0 where the batch is larger than the queue."""
        found = np.zeros(self.allowed.shape)
        whole = np.matmul(self.ahead.expect(values)[:, None], self.offset[self.batch - 1])[:, 0]
        found[self.batch - 1, np.arange(len(self.batch))] = whole
        most = max(left.arrived.shape[2] for left in self.left)
        beyond = np.full((most, values.shape[1]), values[-1, 0])  # a full queue has no slack
        after = np.vstack([values[:-1], beyond])
        for c, left in enumerate(self.left):
            count, _, arrivals = left.arrived.shape
            # [n - b - 1, i, j']: the values of n' = n - b + i
            rows = np.arange(count)[:, None] + np.arange(arrivals)
            each = np.matmul(left.slack, after[rows].transpose(0, 2, 1))
            found[self.batch[c] :, c] = (each * left.arrived).sum(axis=2)
        return found

    def push(self, mass: Floats, choice: Ints) -> Floats:
        """Return the mass of the next states."""
        return self.under(choice).push(mass)

    def under(self, choice: Ints) -> Chain:
        """Return the process with fixed choices; partly served queues are one sparse matrix."""
        remains, own = self._remains(choice), self.offset.transpose(0, 2, 1)  # [n - 1, j, d]
        queue = np.arange(len(choice))[:, None] + 1
        whole = self.batch[choice] == queue
        at = np.arange(len(self.batch))

        def expect(values: Floats) -> Floats:
            served = (self.ahead.expect(values)[choice] * own).sum(axis=2)
            left: Floats = (remains @ values.ravel()).reshape(values.shape)
            return np.where(whole, served, left)

        def push(mass: Floats) -> Floats:
            chosen = np.where(choice[self.batch - 1] == at[:, None], mass[self.batch - 1], 0.0)
            by_offset = np.matmul(chosen[:, None], own[self.batch - 1])[:, 0]
            left: Floats = (remains.T @ mass.ravel()).reshape(mass.shape)
            return self.ahead.push(by_offset) + left

        return Chain(expect, push)

    def _remains(self, choice: Ints) -> "scipy.sparse.csr_array":
        """Return the transitions of states that leave part of their queue; other rows are empty."""
        states, levels = choice.size, choice.shape[1]
        full = (len(choice) - 1) * levels
        found = []
        for c, left in enumerate(self.left):
            n, j = np.nonzero(choice[self.batch[c] :] == c)  # n counts from b + 1
            mass = left.arrived[n, j][:, :, None] * left.slack[n, j][:, None, :]
            row, i, level = np.nonzero(mass > SMALLEST)
            after = (n[row] + i) * levels + level
            from_ = (n[row] + self.batch[c]) * levels + j[row]
            found.append((mass[row, i, level], from_, np.minimum(after, full)))
        data, rows, columns = (np.concatenate(each) for each in zip(*found, strict=True))
        return scipy.sparse.csr_array((data, (rows, columns)), shape=(states, states))


def part_of_queue(setting: Setting) -> PartOfQueue:
    """Return the process of variable batching; raise ``SelectionError`` for bursty arrivals.

    The choices are all batches that meet the slack, and all of the fastest model's: clearing a long
    queue late in one large batch may be better than meeting part of it.
    """
    if setting.arrivals.dispersion != 1:
        raise SelectionError(
            "variable batching is planned for Poisson arrivals only; use whole-queue batching "
            "or a dispersion of 1"
        )
    latency, levels = setting.latencies_s(), np.array(setting.levels_s)
    fastest = np.argmin(latency, axis=1)
    offered = latency[:-1] <= setting.slo_s
    offered[np.arange(setting.longest), fastest[:-1]] = True
    batch, model = np.nonzero(offered)
    batch = batch + 1
    _affordable(len(batch), setting)
    busy = setting.busy_s()[batch - 1, model]
    queue = np.arange(1, setting.longest + 2)
    fits = batch <= queue[:, None]
    on_time = fits[:, :, None] & (latency[batch - 1, model][:, None] <= levels)
    on_time[-1] = False  # the full queue has no slack
    late = fits & (model == fastest[batch - 1])
    ahead = look_ahead(setting.arrivals, setting.workers, busy, levels, setting.longest)
    offset = offsets(setting.arrivals, setting.workers, levels, setting.longest)
    return PartOfQueue(
        model=model,
        batch=batch,
        accuracy=np.array([setting.models[m].accuracy for m in model]),
        served=np.repeat(batch[None].astype(np.float64), len(queue), axis=0),
        on_time=on_time,
        allowed=on_time | late[:, :, None],
        ahead=ahead,
        offset=offset,
        left=tuple(
            Left(
                _slack(setting, int(b), float(seconds), offset),
                _arrived(ahead, c, int(b), offset),
            )
            for c, (b, seconds) in enumerate(zip(batch, busy, strict=True))
        ),
    )


def _affordable(choices: int, setting: Setting) -> None:
    levels = len(setting.levels_s)
    if choices * setting.longest * levels**2 > LARGEST:
        raise SelectionError(
            f"variable batching of {choices} pairs of model and batch at {levels} levels of slack "
            "does not fit in memory; use fewer models or levels, or whole-queue batching"
        )


def _slack(setting: Setting, batch: int, busy: float, offset: Floats) -> Floats:
    """Return P(the level at the end is j' | n, j), [n - b - 1, j, j'], for n in b + 1..N + 1."""
    levels, share = np.array(setting.levels_s), setting.workers
    queued_s = np.maximum(levels[-1] - levels, INSTANT)
    queue = np.arange(batch + 1, setting.longest + 2)
    # The offset is share - d.
    missing = np.einsum("ndj,d->nj", offset[batch:], np.arange(1.0, share + 1))
    came = (queue[:, None] - 1) * share + share - missing  # [n, j]: k
    part = np.clip((levels[1:-1] - levels[:, None] + busy) / queued_s[:, None], 0.0, 1.0)
    reached = np.ones((len(queue), len(levels), len(levels) + 1))
    reached[:, :, 1:-2] = scipy.special.betainc(
        (came - batch * share + 1)[:, :, None], float(batch * share), 1 - part
    )
    reached[:, :, -2:] = 0.0
    return np.asarray(-np.diff(reached, axis=2), dtype=np.float64)


def _arrived(ahead: Ahead, c: int, batch: int, offset: Floats) -> Floats:
    """Return P(i queries come to the worker | n, j), [n - b - 1, j, i], for n in b + 1..N + 1."""
    # [i, d]; at N + 1 and more the queue is full, whatever was left of it.
    by_missing = np.vstack([ahead.waited[c, :1], ahead.whole[c], ahead.over[c]])
    enough = np.flatnonzero(by_missing.max(axis=1) > NEGLIGIBLE)[-1] + 1
    found: Floats = np.matmul(offset[batch:].transpose(0, 2, 1), by_missing[:enough].T)
    found[..., -1] += np.maximum(1 - found.sum(axis=2), 0.0)
    return found
