import math

import numpy as np
import pytest

from control.estimation.arrival_peak import (
    LONG_S,
    MEMORY_S,
    SHORT_S,
    SIGMAS,
    SILENT_S,
    ArrivalPeak,
)


def seen(peak: ArrivalPeak, rates: list[float], begin_s: float = 0.0) -> list[float | None]:
    """Return the peak after each second of an arrival process with these rates, seed 1."""
    rng = np.random.default_rng(1)
    arrived, found = 0.0, []
    for second, rate in enumerate(rates):
        for part in range(10):
            arrived += rng.poisson(rate / 10)
            peak.see(arrived, begin_s + second + (part + 1) / 10)
        found.append(peak.qps(begin_s + second + 1))
    return found


def test_a_jump_shows_within_seconds_and_is_remembered() -> None:
    found = seen(ArrivalPeak(), [20.0] * 30 + [100.0] * 5 + [20.0] * 60)
    before, after = found[29], found[33]
    assert before == pytest.approx(20.0, rel=0.35)
    assert after is not None
    assert after > 80.0
    assert found[33 + int(MEMORY_S) - 5] == max(x for x in found if x is not None)
    assert found[-1] == pytest.approx(20.0, rel=0.35)


def test_a_peak_is_remembered_for_as_long_as_a_device_takes_to_come_back() -> None:
    rates = [100.0] * 20 + [20.0] * 60
    short, long = seen(ArrivalPeak(boot_s=10.0), rates), seen(ArrivalPeak(boot_s=50.0), rates)
    after = 20 + int(MEMORY_S) + 15
    assert short[after] == pytest.approx(20.0, rel=0.35)
    assert long[after] == pytest.approx(100.0, rel=0.2)


def test_the_peak_of_a_steady_process_exceeds_its_rate_by_little() -> None:
    found = [x for x in seen(ArrivalPeak(), [20.0] * 300)[40:] if x is not None]
    assert np.mean(found) < 1.25 * 20.0
    assert min(found) > 0.9 * 20.0


def test_peak_is_unknown_without_recent_counts() -> None:
    peak = ArrivalPeak()
    assert peak.qps(0.0) is None
    seen(peak, [20.0] * 20)
    assert peak.qps(20.0 + SILENT_S + 1) is None


def test_first_counts_after_a_long_silence_show_no_rate_yet() -> None:
    """They showed a rate of 0."""
    peak = ArrivalPeak()
    seen(peak, [20.0] * 20)
    found = seen(peak, [20.0] * 10, begin_s=20.0 + 2 * MEMORY_S)
    assert found[0] is None
    assert all(x == pytest.approx(20.0, rel=0.5) for x in found if x is not None)


def test_recreated_topic_counts_from_zero() -> None:
    peak = ArrivalPeak()
    seen(peak, [20.0] * 40)
    found = seen(peak, [20.0] * 40, begin_s=40.0)
    assert all(x == pytest.approx(20.0, rel=0.5) for x in found if x is not None)


@pytest.mark.parametrize(("noises", "shows"), [(0.8, False), (2.5, True)])
def test_a_short_peak_shows_if_it_exceeds_the_noise(noises: float, shows: bool) -> None:
    noise_qps = SIGMAS * math.sqrt(20.0 / SHORT_S)
    peak, arrived, steps = ArrivalPeak(), 0.0, 10
    short_qps = 20.0 + noises * noise_qps
    for step in range(1, steps * int(LONG_S + SHORT_S) + 1):
        arrived += (20.0 if step <= steps * LONG_S else short_qps) / steps
        peak.see(arrived, step / steps)
    found = peak.qps(LONG_S + SHORT_S)
    assert found is not None
    assert (found > short_qps - noise_qps / 4) is shows
