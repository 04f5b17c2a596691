from dataclasses import replace

import numpy as np
import pytest

from control.policies import POLICIES
from control.policies.kairos.dispatch_rules import (
    DeviceTable,
    DispatchOptions,
    Pairs,
    Round,
    match,
)
from control.policies.kairos.matching import MatchingWeights
from control.problem.lazy_references import object_named

OPTIONS = DispatchOptions(MatchingWeights(slo_s=0.1, urgency=0.0), threshold=50)


def _devices(*kinds: int) -> DeviceTable:
    return DeviceTable(
        kinds=kinds,
        coefficients=np.array([(1.0, 0.25)[kind] for kind in kinds]),
        base=tuple(kind == 0 for kind in kinds),
    )


def _round(sizes: list[int], remaining: list[float], devices: DeviceTable, **over: object) -> Round:
    rows = [(size / 1000, size / 250) for size in sizes]  # the base is four times as fast
    usual: dict[str, object] = {
        "sizes": sizes, "wait_s": [0.0] * len(sizes), "slack_s": [0.1] * len(sizes),
        "latency_s": rows, "worst_s": rows, "held": [-1] * len(sizes), "remaining_s": remaining,
        "factors": np.ones(len(remaining)), "devices": devices,
    }  # fmt: skip
    return Round(**(usual | over))  # type: ignore[arg-type]


def _chosen(rule: str, round_: Round) -> Pairs:
    return sorted(object_named(POLICIES[rule].dispatch)(round_, OPTIONS))


def test_fig_5_the_matching_answers_one_query_more_in_time_than_first_come_first_served() -> None:
    # Two free devices; the small query came first, and only the base serves the large one.
    round_ = _round([10, 90], [0.0, 0.0], _devices(0, 1))
    assert _chosen("fcfs", round_) == [(0, 0), (1, 1)]  # 90 on the slow device: 0.36 s, late
    assert _chosen("kairos", round_) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(("rule", "expected"), [("fcfs", 3), ("kairos", 4)])
def test_of_four_queries_the_matching_answers_one_more_in_time(rule: str, expected: int) -> None:
    devices, waiting = _devices(0, 1), [10, 90, 8, 5]
    free_s, now, in_time = [0.0, 0.0], 0.0, 0
    while waiting:
        round_ = _round(
            waiting, [max(each - now, 0.0) for each in free_s], devices,
            wait_s=[now] * len(waiting), slack_s=[0.1 - now] * len(waiting),
        )  # fmt: skip
        pairs = _chosen(rule, round_)
        for i, j in pairs:
            free_s[j] = now + round_.latency_s[i][j]
            in_time += free_s[j] <= 0.1
        waiting = [size for i, size in enumerate(waiting) if i not in dict(pairs)]
        now = min(each for each in free_s if each > now)
    assert in_time == expected


@pytest.mark.parametrize(("urgency", "sent_at"), [(0.0, None), (1.0, 5)])
def test_a_large_query_starves_behind_small_ones_unless_waiting_counts(
    urgency: float, sent_at: int | None
) -> None:
    """Every 10 ms the only device is free and another small query has come."""
    options = DispatchOptions(MatchingWeights(slo_s=100.0, urgency=urgency), considered=2)
    sent: list[int] = []
    for turn in range(200):
        wait_s = [0.01 * turn, 0.0]
        round_ = _round([50, 10], [0.0], _devices(0), wait_s=wait_s, slack_s=[100.0, 100.0])
        sent += [turn for i, _ in match(round_, options) if i == 0]
    assert (sent[0] if sent else None) == sent_at


def test_the_matching_waits_for_a_busy_device_that_is_worth_it() -> None:
    round_ = _round([90], [0.005, 0.0], _devices(0, 1))
    assert _chosen("kairos", round_) == []


def test_the_time_until_a_device_is_free_counts_in_the_cost_and_at_the_deadline() -> None:
    assert _chosen("kairos", _round([10], [0.05, 0.0], _devices(0, 1))) == [(0, 1)]
    # 90 ms on either device: late on the first one, in time on the second.
    assert _chosen("kairos", _round([90], [0.02, 0.005], _devices(0, 0), lead_s=0.05)) == [(0, 1)]


def test_the_lead_sends_one_query_ahead_to_a_device_that_is_nearly_free() -> None:
    round_ = _round([90], [0.001, 0.0], _devices(0, 1), lead_s=0.002)
    assert _chosen("kairos", round_) == [(0, 0)]


def test_matching_considers_as_many_of_the_oldest_queries_as_devices() -> None:
    round_ = _round([90, 90, 1], [0.0], _devices(0))
    assert _chosen("kairos", round_) == [(0, 0)]
    both = replace(OPTIONS, considered=3)
    assert sorted(match(round_, both)) == [(2, 0)]  # the smallest costs least


def test_first_come_first_served_prefers_base_devices() -> None:
    assert _chosen("fcfs", _round([10, 10], [0.0, 0.0, 0.0], _devices(1, 0, 0))) == [(0, 1), (1, 2)]


def test_a_threshold_keeps_large_queries_on_base_devices_and_small_ones_off_them() -> None:
    round_ = _round([60, 10, 70, 20], [0.0, 0.0, 0.0], _devices(0, 1, 1))
    assert _chosen("threshold", round_) == [(0, 0), (1, 1), (3, 2)]


@pytest.mark.parametrize("kinds", [(0, 0), (1, 1)])
def test_threshold_has_no_effect_with_devices_of_one_kind(kinds: tuple[int, ...]) -> None:
    assert _chosen("threshold", _round([60, 10], [0.0, 0.0], _devices(*kinds))) == [(0, 0), (1, 1)]


def test_the_earliest_finish_is_chosen_once_and_kept() -> None:
    devices = _devices(0, 1)
    round_ = _round([20, 20, 4], [0.0, 0.0], devices)
    # 20 on the base in 0.02 s, the next behind it in 0.04 s (0.08 s on the other), 4 in 0.016 s.
    assert _chosen("earliest", round_) == [(0, 0), (2, 1)]
    assert round_.held == [0, 0, 1]
    later = _round([20], [0.03, 0.0], devices, held=[0])
    assert _chosen("earliest", later) == []


def test_a_device_slower_than_its_type_is_given_less() -> None:
    devices = _devices(0, 0)
    slow = _round([10], [0.0, 0.0], devices, factors=np.array([3.0, 1.0]))
    assert _chosen("kairos", slow) == _chosen("earliest", slow) == [(0, 1)]
