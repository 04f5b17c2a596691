"""Transitions, in factored form, for a worker that serves its whole queue at once.

The decision process of RAMSIS (section 4 of the paper). A worker gets every K-th query that arrives
at rate qps. When it is free it observes

    (n, j)   n queries queued, 1..N, and N + 1 for more, the full queue;
             j the highest level T_j that the slack of the earliest deadline reaches

and serves all n with a model m that takes l(m, n) <= T_j, or with the fastest if none does. An
empty queue is skipped: the worker waits, and its next state is (1, SLO). Where queries come in
bursts it is (n', SLO), by the size of the burst that ends the wait.

Factored form. Given the offset q, the central arrivals since the worker's last one, the next state
depends on the time l = l(m, n) only, and the offset depends on the state only:

    P(n', j' | n, j, m) = sum_q  I(q | n, j)  B_l(n', j' | q)
    I(q | n, j)  ~  P((n - 1) K + q arrivals in SLO - T_j)

The next query comes d = K - q arrivals later. With X arrivals before t and Y after it in l, "the
worker's first query comes after t, and it gets n' in all" is

    H_t(n', d) = sum_{x < d}  P(X = x)  g(n', d - x)
    g(n', e) = P((n' - 1) K + e <= Y <= n' K + e - 1)

and a slack in [T_j', T_j'+1) at the end means a first query in [t_j', t_j'+1), t_j = l - SLO + T_j,
so B is a difference of two H. There the time after t is SLO - T_j', whatever the action: g is the
same for all of them, and the sums over x are convolutions of length K, done by Fourier transform.
No row of P and no block B is ever built: a sweep needs only a sum over B, which moves the
difference from H to the values.
"""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from control.policies.ramsis.arrival_counts import (
    ArrivalCounts,
    burst_sizes,
    count_table,
    more_than,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# The authors' code adds it to every offset of a state where the probability of one underflows.
SMALLEST = 5e-324


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ahead:
    """B in factored form: the next state after action a, given that d = K - q arrivals are missing.

    Levels below are the inner ones, j = 1..J-1 of 0..J. ``first`` is the transform of P(X = x), 0
    where a level lies before the action's start.
    """

    first: NDArray[np.complex128]  # [f, a, j]
    rest: Floats  # [j, n', d]: g
    whole: Floats  # [a, n', d]: H at t = 0
    lowest: Ints  # [a]: the level of a first query that comes at once
    waited: Floats  # [a, n', d]: no query comes, and after the wait there are n'
    over: Floats  # [a, d]: more than N come
    padded: int  # length of the transforms

    def expect(self, values: Floats) -> Floats:
        """Return the expected value of the next state, [a, d], for values of [n', j']."""
        longest, width = self.rest.shape[1:]
        inner = values[:longest, :-1]
        steps = np.diff(inner, axis=1).T[:, None, :]
        turned = scipy.fft.rfft(np.matmul(steps, self.rest)[:, 0], self.padded)
        found = scipy.fft.irfft(np.matmul(self.first, turned.T[:, :, None])[..., 0].T, self.padded)
        expected = found[:, :width] + np.matmul(inner.T[self.lowest][:, None], self.whole)[:, 0]
        fresh = np.append(values[:longest, -1], values[longest, 0])[: self.waited.shape[1]]
        expected += np.matmul(fresh, self.waited) + self.over * values[longest, 0]
        return np.asarray(expected, dtype=np.float64)

    def push(self, mass: Floats) -> Floats:
        """Return the mass of the next states, [n', j'], for the mass [a, d] of actions."""
        longest, width = self.rest.shape[1:]
        turned = scipy.fft.rfft(mass, self.padded).T[:, None, :]
        found = scipy.fft.irfft(np.matmul(turned, self.first.conj())[:, 0].T, self.padded)[
            :, :width
        ]
        after = np.matmul(self.rest, found[..., None])[..., 0].T  # [n', j]
        pushed = np.zeros((longest + 1, len(self.rest) + 2))
        pushed[:longest, 1:-1] += after
        pushed[:longest, :-2] -= after
        np.add.at(pushed.T, self.lowest, self._whole(mass))
        fresh = np.einsum("and,ad->n", self.waited, mass)
        pushed[: len(fresh[:longest]), -1] = fresh[:longest]
        pushed[longest, 0] += np.vdot(self.over, mass) + fresh[longest:].sum()
        return pushed

    def _whole(self, mass: Floats) -> Floats:
        counted = np.matmul(self.whole, mass[..., None])[..., 0]  # [a, n']
        return np.pad(counted, ((0, 0), (0, 1)))


def look_ahead(
    arrivals: ArrivalCounts, share: int, busy_s: Floats, levels_s: Floats, longest: int
) -> Ahead:
    """Return B for actions of ``busy_s`` [a], where one of ``share`` queries is the worker's."""
    after_s = levels_s[-1] - levels_s[1:-1]  # [j] from a level's edge to the end of the action
    before_s = busy_s[:, None] - after_s
    lead = count_table(arrivals, before_s.ravel(), share).reshape(*before_s.shape, share)
    lead[before_s <= 0] = 0.0
    padded = scipy.fft.next_fast_len(2 * share - 1, real=True)
    whole = _windows(count_table(arrivals, busy_s, (longest + 1) * share), share)
    return Ahead(
        first=np.ascontiguousarray(scipy.fft.rfft(lead, padded).transpose(2, 0, 1)),
        rest=_windows(count_table(arrivals, after_s, (longest + 1) * share), share)[:, 1:],
        whole=np.ascontiguousarray(whole[:, 1:]),
        lowest=np.count_nonzero(before_s <= 0, axis=1),
        waited=_after_waiting(arrivals, share, busy_s, longest),
        over=more_than(arrivals, longest * share + np.arange(float(share)), busy_s[:, None]),
        padded=padded,
    )


def _after_waiting(arrivals: ArrivalCounts, share: int, busy_s: Floats, longest: int) -> Floats:
    """Return P(fewer than d come while busy, and the next arrivals make n' of them the worker's).

    Shape [a, n', d] with n' from 1, the last one for more than N; with Poisson arrivals n' is 1. In
    a walk in bursts from x = 0, u(x) is the chance to step on x; the step beyond d - 1 decides n'.
    """
    early = count_table(arrivals, busy_s, share)
    if arrivals.dispersion == 1:
        return np.cumsum(early, axis=1)[:, None]
    sizes = burst_sizes(arrivals, (longest + 1) * share)
    reached = np.zeros(share)
    reached[0] = 1.0
    for x in range(1, share):
        reached[x] = sizes[x:0:-1] @ reached[:x]
    counted = _windows(sizes[None], share)[0]
    beyond = 1.0 - np.cumsum(sizes)[-share:]  # more than N K + e - 1
    last = np.vstack([counted[1:], beyond])  # [n' - 1, e - 1]
    padded = scipy.fft.next_fast_len(3 * share - 2, real=True)  # of three convolved
    walked = scipy.fft.rfft(early, padded) * scipy.fft.rfft(reached, padded)
    turned = walked[:, None] * scipy.fft.rfft(last, padded)
    found: Floats = scipy.fft.irfft(turned, padded)[..., :share]
    return found


def _windows(table: Floats, share: int) -> Floats:
    """Return sums of ``share`` counts: [row, n, e] is P((n-1) K + e <= count <= n K + e - 1)."""
    below = np.cumsum(table, axis=1).reshape(len(table), table.shape[1] // share, share)
    below[:, 1:] -= below[:, :-1].copy()
    return below


def offsets(arrivals: ArrivalCounts, share: int, levels_s: Floats, longest: int) -> Floats:
    """Return I(K - d | n, j), shape [n - 1, d - 1, j], for n in 1..N+1.

    Where the probability of an offset underflows the smallest number is added to all of the
    state's, as the authors' code does: impossible states get uniform offsets.
    """
    queued_s = levels_s[-1] - levels_s
    table = count_table(arrivals, queued_s, (longest + 1) * share)
    table = table.reshape(len(levels_s), longest + 1, share)
    table[(table == 0).any(axis=2)] += SMALLEST
    table /= table.sum(axis=2, keepdims=True)
    return np.ascontiguousarray(table[:, :, ::-1].transpose(1, 2, 0))
