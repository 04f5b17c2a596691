import numpy as np
import pytest

from control.policies.kairos.latency_learning import FIRST_GUESS_S, PRIOR, LatencyModel


def _seconds(type_: str, size: int) -> float:
    return {"gpu": 0.002 + 1e-5 * size, "cpu": 0.001 + 5e-5 * size}[type_]


def test_nothing_is_known_at_the_start() -> None:
    model = LatencyModel(("gpu", "cpu"))
    assert model.mean_s("gpu", 100) == FIRST_GUESS_S
    model.observe("gpu", 10, _seconds("gpu", 10))
    model.observe("gpu", 500, _seconds("gpu", 500))
    # A type without observations is assumed slower than the best observed type.
    assert model.mean_s("cpu", 100) == pytest.approx(PRIOR * _seconds("gpu", 100))


def test_two_sizes_make_a_line() -> None:
    model = LatencyModel(("gpu",))
    model.observe("gpu", 10, _seconds("gpu", 10))
    model.observe("gpu", 500, _seconds("gpu", 500))
    assert model.mean_s("gpu", 1000) == pytest.approx(_seconds("gpu", 1000), rel=1e-3)


def test_table_learns_latencies_that_no_line_fits() -> None:
    rng = np.random.default_rng(0)
    model = LatencyModel(("gpu",))
    for _ in range(4000):
        size = int(rng.integers(1, 1000))
        model.observe("gpu", size, 0.01 if size <= 500 else 0.05)  # a step
    assert model.mean_s("gpu", 200) == pytest.approx(0.01, rel=0.1)
    assert model.mean_s("gpu", 900) == pytest.approx(0.05, rel=0.1)


def test_after_500_queries_predictions_are_within_two_percent() -> None:
    rng = np.random.default_rng(1)
    model = LatencyModel(("gpu", "cpu"))
    for _ in range(500):
        for type_ in ("gpu", "cpu"):
            size = int(rng.integers(1, 1000))
            model.observe(type_, size, _seconds(type_, size) * rng.normal(1, 0.005))
    for type_ in ("gpu", "cpu"):
        for size in (50, 300, 1000):
            assert model.mean_s(type_, size) == pytest.approx(_seconds(type_, size), rel=0.02)


def test_profile_is_used_until_other_latencies_are_observed() -> None:
    model = LatencyModel(("gpu",), _seconds)
    assert model.mean_s("gpu", 100) == pytest.approx(_seconds("gpu", 100))
    for _ in range(200):
        model.observe("gpu", 100, 2 * _seconds("gpu", 100))
    assert model.mean_s("gpu", 100) == pytest.approx(2 * _seconds("gpu", 100), rel=0.05)
    # Sizes without observations follow their type.
    assert model.mean_s("gpu", 900) == pytest.approx(2 * _seconds("gpu", 900), rel=0.1)


def test_old_observations_fade() -> None:
    model = LatencyModel(("gpu",), _seconds)
    for _ in range(2000):
        model.observe("gpu", 100, _seconds("gpu", 100))
    for _ in range(2000):
        model.observe("gpu", 100, 3 * _seconds("gpu", 100))
    assert model.mean_s("gpu", 100) == pytest.approx(3 * _seconds("gpu", 100), rel=0.1)


def test_the_95th_percentile_follows_the_noise() -> None:
    rng = np.random.default_rng(2)
    model = LatencyModel(("gpu",), _seconds)
    for _ in range(500):
        slow = 2.0 if rng.random() < 0.1 else 1.0
        model.observe("gpu", 100, slow * _seconds("gpu", 100))
    assert model.p95_s("gpu", 100) / model.mean_s("gpu", 100) == pytest.approx(1.8, rel=0.1)


def test_a_device_that_slows_down_is_noticed_within_ten_queries() -> None:
    model = LatencyModel(("gpu",), _seconds)
    for _ in range(300):
        for device in ("gpu-0", "gpu-1"):
            model.observe("gpu", 100, _seconds("gpu", 100), device)
    for _ in range(10):
        model.observe("gpu", 100, 3 * _seconds("gpu", 100), "gpu-0")
    assert model.factor("gpu-0") > 2.5
    assert model.factor("gpu-1") == pytest.approx(1.0, rel=0.05)


def test_a_stall_is_no_latency() -> None:
    model = LatencyModel(("gpu",), _seconds)
    for _ in range(100):
        model.observe("gpu", 100, _seconds("gpu", 100))
    model.observe("gpu", 100, 1e6)
    assert model.mean_s("gpu", 100) < 2 * _seconds("gpu", 100)


def test_a_line_through_the_sizes_replaces_a_profile_that_knows_none() -> None:
    rng = np.random.default_rng(3)
    model = LatencyModel(("gpu",), lambda type_, size: 0.1)
    for _ in range(100):
        size = int(rng.integers(1, 500))
        model.observe("gpu", size, _seconds("gpu", size))
    assert model.mean_s("gpu", 1000) == pytest.approx(_seconds("gpu", 1000), rel=0.02)


def test_a_profile_that_no_line_fits_is_kept() -> None:
    def steps(type_: str, size: int) -> float:
        return 0.01 if size <= 500 else 0.05

    rng = np.random.default_rng(4)
    model = LatencyModel(("gpu",), steps)
    for _ in range(100):
        size = int(rng.integers(1, 1000))
        model.observe("gpu", size, steps("gpu", size) * rng.normal(1, 0.05))
    assert model.mean_s("gpu", 520) == pytest.approx(0.05, rel=0.1)
