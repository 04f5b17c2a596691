"""The demand for which devices are rented: the recent peak, or a line that the counts follow."""

from collections.abc import Callable

import numpy as np
import pytest

from control.estimation.arrival_forecast import DECIDED_S, ArrivalForecast, line_through
from control.estimation.arrival_peak import ArrivalPeak

Rate = Callable[[float], float]


def seen(rate: Rate, seconds: int, boot_s: float = 10.0) -> tuple[float, float]:
    """Return the forecast and the peak after some seconds of exact counts, 20 a second."""
    forecast, peak = ArrivalForecast(boot_s), ArrivalPeak(boot_s)
    found = (0.0, 0.0)
    arrived = 0.0
    for number in range(20 * seconds + 1):
        at_s = number / 20
        for each in (forecast, peak):
            each.see(arrived, at_s)
        if number % 20 == 0:
            found = (forecast.qps(at_s) or 0.0, peak.qps(at_s) or 0.0)
        arrived += rate(at_s + 1 / 40) / 20
    return found


def test_constant_demand_is_the_peak() -> None:
    forecast, peak = seen(lambda at_s: 50.0, 100)
    assert forecast == peak == pytest.approx(50.0)


@pytest.mark.parametrize("boot_s", [0.0, 10.0, 40.0, 600.0])
def test_demand_that_rises_is_read_ahead_by_the_boot_time_within_the_length_of_the_line(
    boot_s: float,
) -> None:
    forecast, peak = seen(lambda at_s: 20.0 + at_s, 100, boot_s)
    assert peak == pytest.approx(115.0)  # of the last ten seconds
    assert forecast == pytest.approx(120.0 + min(boot_s + DECIDED_S, 60.0))


def test_demand_that_falls_is_not_remembered_but_keeps_a_margin() -> None:
    forecast, peak = seen(lambda at_s: 200.0 - at_s, 100)
    assert peak == pytest.approx(120.0)
    assert 100.0 < forecast < 106.0


def test_the_peak_before_a_fall_of_less_than_a_minute_is_remembered() -> None:
    forecast, peak = seen(lambda at_s: 200.0 - 3 * max(at_s - 60.0, 0.0), 95)
    assert forecast == peak


@pytest.mark.parametrize("fallen_s", [10, 50, 60])
def test_no_forecast_is_below_demand_that_falls(fallen_s: int) -> None:
    forecast, _ = seen(lambda at_s: 200.0 - 3 * max(at_s - 60.0, 0.0), 60 + fallen_s)
    assert forecast > 200.0 - 3 * fallen_s


def test_a_step_is_no_slope() -> None:
    for after_s in range(1, 12):
        forecast, peak = seen(lambda at_s: 20.0 if at_s <= 60 else 80.0, 60 + after_s)
        assert forecast == peak


def test_the_line_of_noisy_counts_is_near_the_demand() -> None:
    rng = np.random.default_rng(4)
    rates = np.linspace(20.0, 100.0, 300)
    counts = np.concatenate([[0], np.cumsum(rng.poisson(rates))])
    off = []
    for now in range(60, 301):
        line = line_through([(float(at), float(counts[at])) for at in range(now - 60, now + 1)])
        if line is not None:
            off.append(line.qps + line.slope * 10.0 - (rates[now - 1] + 10.0 * 80 / 299))
    assert len(off) > 200
    assert abs(float(np.mean(off))) < 1.0
    assert float(np.std(off)) < 6.0


def test_a_topic_that_is_created_anew_starts_the_line_anew() -> None:
    forecast = ArrivalForecast(10.0)
    for at_s in range(70):
        forecast.see(5.0 * at_s, float(at_s))
    forecast.see(0.0, 70.0)
    forecast.see(50.0, 71.0)
    forecast.see(100.0, 73.0)
    assert forecast.qps(73.0) == pytest.approx(100.0 / 3)
