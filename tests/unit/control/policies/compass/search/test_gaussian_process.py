"""The Gaussian process equals scikit-learn's, and appending equals conditioning on all data."""

import numpy as np
import pytest

from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel

CODES = np.random.default_rng(0).integers(0, [4, 3, 5, 3], (200, 4))
OBSERVED = np.random.default_rng(1).choice(200, 25, replace=False)
VALUES = np.random.default_rng(2).normal(0.7, 0.1, 25)
NOISE = np.random.default_rng(3).uniform(1e-4, 1e-2, 25)


def told(fit: bool = False) -> GaussianProcess:
    process = GaussianProcess(CODES, [0, 0, 0, 0], Kernel((0.4,), 0.02), prior_mean=0.7, fit=fit)
    for point, value, noise in zip(OBSERVED, VALUES, NOISE, strict=True):
        process.tell(int(point), float(value), float(noise))
    return process


def test_posterior_equals_scikit_learn_at_fixed_hyper_parameters() -> None:
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels", reason="needs scikit-learn")
    from sklearn.gaussian_process import GaussianProcessRegressor

    one_hot = np.concatenate(
        [np.eye(5)[CODES[:, column]] for column in range(CODES.shape[1])], axis=1
    )
    # |one-hot difference|^2 is twice the number of differing columns: theta = 1 / length^2.
    kernel = kernels.ConstantKernel(0.02) * kernels.RBF(1 / np.sqrt(0.4))
    reference = GaussianProcessRegressor(kernel, alpha=NOISE + 1e-9, optimizer=None)
    center = (VALUES.sum() + 0.7) / 26
    reference.fit(one_hot[OBSERVED], VALUES - center)
    mean, sd = reference.predict(one_hot, return_std=True)
    ours = told()
    np.testing.assert_allclose(ours.mean, mean + center, atol=1e-5)
    np.testing.assert_allclose(ours.sd, sd, atol=1e-5)


def test_a_fit_follows_the_data_and_is_the_same_in_any_process() -> None:
    one, other = told(fit=True), told(fit=True)
    assert one.kernel == other.kernel
    np.testing.assert_array_equal(one.mean, other.mean)


def test_refitted_rows_equal_a_process_that_had_the_kernel_all_along() -> None:
    fitted = told()
    fitted.refit()
    fresh = GaussianProcess(CODES, [0, 0, 0, 0], fitted.kernel, prior_mean=0.7, fit=False)
    for point, value, noise in zip(OBSERVED, VALUES, NOISE, strict=True):
        fresh.tell(int(point), float(value), float(noise))
    np.testing.assert_allclose(fitted.mean, fresh.mean, atol=1e-9)
    np.testing.assert_allclose(fitted.sd, fresh.sd, atol=1e-9)


def test_an_observation_without_noise_is_met_and_repeating_it_changes_little() -> None:
    process = GaussianProcess(CODES, [0, 0, 0, 0], Kernel((0.4,), 0.02), 0.7, fit=False)
    process.tell(3, 0.9, 0.0)
    process.tell(3, 0.9, 0.0)
    assert process.mean[3] == pytest.approx(0.9, abs=1e-4)
    assert process.sd[3] < 1e-3
