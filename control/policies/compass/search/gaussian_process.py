"""Gaussian process over categorical points, with observations appended in O(n N).

    k(x, x') = variance * exp(-sum_g theta_g * |{i of group g: x_i != x'_i}|)

which is a squared exponential on one-hot codes. The mean is constant; the noise is known per
observation (the variance of a mean over its samples). ``L`` is the Cholesky factor of
``K(X, X) + diag(noise)`` and ``V = L^-1 K(X, all)``: a new observation appends one row to each.
Hyper-parameters are refitted on a grid by maximum likelihood with a log-normal prior on theta.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REFIT_AT = (3, 5, 8, 12, 18, 26, 36, 48, 60, 80, 110, 150, 200)
THETAS = tuple(0.03 * 100 ** (step / 8) for step in range(9))
SCALES = (0.5, 1.0, 2.0)  # of the observations' variance
PRIOR_THETA, PRIOR_SPREAD = 0.3, 1.5  # log-normal
JITTER = 1e-9


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel's hyper-parameters: ``theta[g]`` per group of columns, and the variance."""

    theta: tuple[float, ...]
    variance: float


class GaussianProcess:
    """Posterior ``mean`` and ``sd`` over all points, conditioned on the observations.

    ``codes`` has one row per point and one column per category; ``groups[i]`` is the index of
    column i's theta. Without observations the posterior is ``prior_mean`` and the kernel's
    deviation.
    """

    def __init__(
        self, codes: Ints, groups: Sequence[int], kernel: Kernel, prior_mean: float, fit: bool
    ) -> None:
        self._codes = codes.astype(np.int16)
        self._groups = np.array(groups, dtype=np.int64)
        self._kernel = kernel
        self._fit = fit
        self._prior = prior_mean
        self._points: list[int] = []
        self._values: list[float] = []
        self._noise: list[float] = []
        self._reset()

    def tell(self, point: int, value: float, noise: float) -> None:
        """Add an observation of a point, with the variance of its error."""
        self._points.append(point)
        self._values.append(value)
        self._noise.append(noise)
        if self._fit and len(self._points) in REFIT_AT:
            self._kernel = self._fitted()
            self._rebuild()
        else:
            self._append(len(self._points) - 1)
        self._predict()

    def refit(self) -> None:
        """Fit the hyper-parameters to all observations now."""
        if self._points:
            self._kernel = self._fitted()
            self._rebuild()
            self._predict()

    @property
    def kernel(self) -> Kernel:
        """The hyper-parameters in force."""
        return self._kernel

    def row(self, point: int) -> Floats:
        """Return the kernel between a point and all points."""
        differs = (self._codes != self._codes[point]).astype(np.float64)
        weights = np.array(self._kernel.theta)[self._groups]
        exponents: Floats = self._kernel.variance * np.exp(-(differs @ weights))
        return exponents

    def _reset(self) -> None:
        points = len(self._codes)
        self._factor = np.zeros((0, 0))
        self._projected = np.zeros((0, points))
        self.mean: Floats = np.full(points, self._prior)
        self.sd: Floats = np.full(points, np.sqrt(self._kernel.variance))

    def _rebuild(self) -> None:
        self._reset()
        for index in range(len(self._points)):
            self._append(index)

    def _append(self, index: int) -> None:
        point, count = self._points[index], index
        left = self._projected[:, point].copy()
        pivot = self._kernel.variance + self._noise[index] + JITTER - left @ left
        diagonal = sqrt(max(float(pivot), JITTER))
        factor = np.zeros((count + 1, count + 1))
        factor[:count, :count] = self._factor
        factor[count, :count] = left
        factor[count, count] = diagonal
        new = (self.row(point) - left @ self._projected) / diagonal
        self._factor = factor
        self._projected = np.vstack([self._projected, new])

    def _predict(self) -> None:
        values = np.array(self._values)
        center = self._center(values)
        whitened = _forward(self._factor, values - center)
        self.mean = center + whitened @ self._projected
        variance = self._kernel.variance - np.einsum("ij,ij->j", self._projected, self._projected)
        self.sd = np.sqrt(np.maximum(variance, JITTER))

    def _center(self, values: Floats) -> float:
        """Return the constant mean: observations averaged with the prior as one more."""
        return float((values.sum() + self._prior) / (len(values) + 1))

    def _fitted(self) -> Kernel:
        points = np.array(self._points)
        values = np.array(self._values)
        residual = values - self._center(values)
        codes = self._codes[points]
        groups = len(self._kernel.theta)
        apart = np.stack(
            [
                (codes[:, None, self._groups == g] != codes[None, :, self._groups == g]).sum(axis=2)
                for g in range(groups)
            ]
        ).astype(np.float64)
        spread = max(float(residual @ residual) / len(residual), 1e-6)
        noise = np.diag(np.array(self._noise) + JITTER)
        best, kernel = -np.inf, self._kernel
        for theta in product(THETAS, repeat=groups):
            correlation = np.exp(-np.tensordot(np.array(theta), apart, axes=1))
            for scale in SCALES:
                found = _likelihood(scale * spread * correlation + noise, residual)
                found += sum(_log_prior(each) for each in theta)
                if found > best:
                    best, kernel = found, Kernel(tuple(map(float, theta)), scale * spread)
        return kernel


def _log_prior(theta: float) -> float:
    return float(-0.5 * (np.log(theta / PRIOR_THETA) / PRIOR_SPREAD) ** 2)


def _likelihood(covariance: Floats, residual: Floats) -> float:
    try:
        factor: Floats = np.linalg.cholesky(covariance).astype(np.float64)
    except np.linalg.LinAlgError:
        return -np.inf
    whitened = _forward(factor, residual)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())


def _forward(factor: Floats, values: Floats) -> Floats:
    """Solve ``factor x = values`` for a lower triangular factor."""
    solved: Floats = solve_triangular(factor, values, lower=True, check_finite=False)
    return solved
