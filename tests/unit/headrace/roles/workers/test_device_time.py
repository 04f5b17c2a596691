"""headrace/roles/workers/device_time.py: parts of a device share its CPU time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.roles.workers.device_time import SAVED_S, DeviceTime


def played(parts: int, rate: float, batch_s: list[float], seconds: float) -> list[float]:
    """Return the CPU seconds that each part uses, on as many cores as parts, if part k always has
    batches of ``batch_s[k]`` (0: it idles)."""
    time, now = DeviceTime(parts, rate, 0.0), 0.0
    used = [0.0] * parts
    ends: dict[int, float] = {}
    while now < seconds:
        for part in range(parts):
            if batch_s[part] and part not in ends and time.wait_s(part, now) == 0.0:
                time.begin(part, now)
                ends[part] = now + batch_s[part]
        waits = [now + time.wait_s(k, now) for k in range(parts) if batch_s[k] and k not in ends]
        now = min([*ends.values(), *waits])
        for part in [part for part, end in ends.items() if end <= now]:
            del ends[part]
            time.end(part, batch_s[part], now)
            used[part] += batch_s[part]
    return used


@given(st.floats(0.1, 1.0), st.lists(st.floats(0.02, 0.5), min_size=1, max_size=4))
def test_a_device_is_never_used_beyond_its_rate(rate: float, batch_s: list[float]) -> None:
    used = played(len(batch_s), rate, batch_s, 10.0)
    assert sum(used) <= rate * (10.0 + SAVED_S) + 2 * sum(batch_s) + 1e-6


def test_parts_that_are_all_busy_get_equal_shares_whatever_their_batches_take() -> None:
    used = played(2, 1.0, [0.01, 0.2], 20.0)
    assert used == pytest.approx([10.0, 10.0], rel=0.03)


def test_unused_time_of_idle_parts_goes_to_the_others() -> None:
    assert played(4, 1.0, [0.01, 0.0, 0.0, 0.0], 10.0)[0] == pytest.approx(10.0, rel=0.01)
    assert played(4, 1.0, [0.01, 0.01, 0.0, 0.0], 10.0) == pytest.approx([5, 5, 0, 0], rel=0.01)


def test_a_share_of_a_core_is_that_share() -> None:
    assert played(1, 0.25, [0.02], 40.0)[0] == pytest.approx(10.0, rel=0.01)


def test_a_part_with_the_device_to_itself_has_saved_a_tenth_of_a_second_while_it_idled() -> None:
    time = DeviceTime(1, 0.5, 0.0)
    assert time.wait_s(0, 1000.0) == 0.0
    time.begin(0, 1000.0)
    time.end(0, 1.0, 1001.0)
    assert time.wait_s(0, 1001.0) == pytest.approx(1.0 - SAVED_S)


def test_short_batches_now_and_then_do_not_wait() -> None:
    time, now = DeviceTime(1, 0.125, 0.0), 0.0
    for _ in range(100):
        assert time.wait_s(0, now) == 0.0
        time.begin(0, now)
        time.end(0, 0.012, now + 0.012)
        now += 0.1  # of which an eighth is 12.5 ms


def test_parts_beside_each_other_save_nothing() -> None:
    time = DeviceTime(2, 1.0, 0.0)
    time.begin(0, 1000.0)
    time.end(0, 1.0, 1001.0)
    assert time.wait_s(0, 1001.0) == 0.0  # while alone it had the whole device
    time.end(0, 1.0, 1001.0)
    assert time.wait_s(0, 1001.0) == pytest.approx(1.0)


def test_a_clock_that_steps_back_gives_nothing() -> None:
    time = DeviceTime(1, 0.5, 100.0)
    time.begin(0, 100.0)
    time.end(0, 1.0, 100.0)
    first_s = 2.0 - SAVED_S
    assert time.wait_s(0, 50.0) == pytest.approx(first_s)
    assert time.wait_s(0, 101.0) == pytest.approx(first_s - 1.0)
