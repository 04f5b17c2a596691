"""Memory growth of a role: leaks are detected, fluctuations are not."""

import numpy as np

from benchmarks.memory_growth import DAY_S, MOST_PERCENT_A_DAY, growth

SECONDS = np.arange(0.0, 3600.0, 5.0)
SIZE = 80e6


def test_leak_is_detected_in_fluctuating_readings() -> None:
    wander = np.random.default_rng(1).normal(0.0, 0.2e6, len(SECONDS))
    leak = 2 * MOST_PERCENT_A_DAY / 100 * SIZE / DAY_S
    found = growth("egress", [*zip(SECONDS, SIZE + leak * SECONDS + wander, strict=True)])
    assert found.low_percent_a_day > MOST_PERCENT_A_DAY
    assert found.low_percent_a_day <= found.percent_a_day <= found.high_percent_a_day


def test_memory_that_wanders_about_a_level_does_not_grow() -> None:
    wander = np.random.default_rng(2).normal(0.0, 0.2e6, len(SECONDS))
    found = growth("egress", [*zip(SECONDS, SIZE + wander, strict=True)])
    assert found.high_percent_a_day < MOST_PERCENT_A_DAY
    assert found.median_mb == 80.0


def test_one_step_is_no_growth() -> None:
    step = np.where(SECONDS < 300.0, 0.0, 2e6)
    assert growth("egress", [*zip(SECONDS, SIZE + step, strict=True)]).percent_a_day == 0.0
