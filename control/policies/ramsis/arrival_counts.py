"""Numbers of arrivals in an interval: counting processes with independent increments.

Poisson, m = qps t:

    P(k in t) = m^k e^-m / k!

Burstier: the negative binomial process, in which the count of every interval has a variance of
``dispersion`` d times its mean (a Poisson process whose clock runs as a gamma process):

    P(k in t) = Γ(k + r) / (k! Γ(r)) (1 - 1/d)^k (1/d)^r        r = m / (d - 1)

In this process queries come in bursts of logarithmic size, at the times of a Poisson process:

    P(size = k) = (1 - 1/d)^k / (k ln d)

Gamma-distributed gaps with a coefficient of variation c have counts of dispersion c² over long
intervals; over short ones they differ, because such gaps have memory and increments here do not.
``benchmarks/selection.py`` measures the effect by simulation.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules take a third of a second to load, on first use
from numpy.typing import NDArray

from control.problem.problem import SelectionError

Floats = NDArray[np.float64]

TINY = 1e-300  # mean count of an empty interval, whose logarithm is needed


@dataclass(frozen=True, slots=True)
class ArrivalCounts:
    """A rate in queries/s, and the variance of a count over its mean: 1 is Poisson."""

    qps: float
    dispersion: float = 1.0

    def __post_init__(self) -> None:
        """Raise ``SelectionError`` for an invalid rate or dispersion."""
        if not 0 <= self.qps < math.inf:
            raise SelectionError(
                f"the load is {self.qps:g} queries/s; it must be 0 or above and finite"
            )
        if not 1 <= self.dispersion < math.inf:
            raise SelectionError(
                f"the dispersion of the arrivals is {self.dispersion:g}; only 1 (Poisson) and "
                "above (burstier) can be planned for, so give 1 for more regular arrivals"
            )


def count_table(arrivals: ArrivalCounts, seconds: Floats, below: int) -> Floats:
    """Return P(k arrivals in an interval) for k in 0..below-1; shape [intervals, below]."""
    mean = np.maximum(arrivals.qps * np.maximum(seconds, 0.0), TINY)[:, None]
    counts = np.arange(below, dtype=np.float64)
    if arrivals.dispersion == 1:
        table = counts * np.log(mean) - scipy.special.gammaln(counts + 1) - mean
    else:
        # Γ(k + r) / Γ(r) (1 - 1/d)^k factor by factor: slightly above 1 the difference of the
        # logarithms of two huge numbers would have no correct digits.
        beyond = arrivals.dispersion - 1
        table = np.zeros((len(mean), below))
        factors = np.log((mean + counts[:-1] * beyond) / arrivals.dispersion)
        np.cumsum(factors, axis=1, out=table[:, 1:])
        table -= scipy.special.gammaln(counts + 1) + mean * (math.log1p(beyond) / beyond)
    return np.exp(table, out=table)


def more_than(arrivals: ArrivalCounts, counts: Floats, seconds: Floats) -> Floats:
    """Return P(more than ``counts`` arrivals in an interval), exact in the tail; broadcasts."""
    mean = np.maximum(arrivals.qps * np.maximum(seconds, 0.0), TINY)
    if arrivals.dispersion == 1:
        return np.asarray(scipy.special.pdtrc(counts, mean), dtype=np.float64)
    shape = np.maximum(mean / (arrivals.dispersion - 1), TINY)
    return np.asarray(
        scipy.special.betainc(counts + 1, shape, 1 - 1 / arrivals.dispersion), dtype=np.float64
    )


def burst_sizes(arrivals: ArrivalCounts, below: int) -> Floats:
    """Return P(k queries come at once, given that any do) for k in 0..below-1."""
    sizes = np.zeros(below)
    if arrivals.dispersion == 1:
        sizes[1:2] = 1.0
        return sizes
    counts = np.arange(1.0, below)
    sizes[1:] = np.exp(counts * math.log1p(-1 / arrivals.dispersion) - np.log(counts))
    return sizes / math.log(arrivals.dispersion)
