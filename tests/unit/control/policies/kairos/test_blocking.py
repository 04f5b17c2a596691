"""The last free device of a type that some queries need."""

import numpy as np
import pytest

from control.policies.kairos.dispatch_rules import DispatchOptions, Round, match
from control.policies.kairos.matching import PENALTY, MatchingWeights
from control.policies.kairos.priced_devices import blocking_of, priced_devices
from control.policies.kairos.throughput_bounds import ServiceTimes

SLO_S = 1.0
# Small, medium and large queries on a fast and on a slow type: the fast one alone serves large
# ones, which may wait for 0.4 s, and is busy for 0.5 s with a medium one.
TIMES = ServiceTimes(np.array([[0.1, 0.5, 0.6], [0.2, 0.9, 1.2]]), np.array([0.8, 0.15, 0.05]), 1.0)
FAST, SLOW = 0, 1


def test_a_device_is_missed_by_the_queries_that_only_its_type_serves() -> None:
    (blocking,) = blocking_of(TIMES, (FAST, SLOW, SLOW), 2.0)
    assert blocking.devices == (0,)
    cost = blocking.add(np.zeros(3), SLO_S, np.array([0.3, 0.5, 0.6]))
    # 0.1 large queries a second, for 0.1 and 0.2 s.
    assert cost == pytest.approx([0.0, PENALTY * 0.01, PENALTY * 0.02])


def test_types_whose_queries_are_shorter_than_the_largest_may_wait_block_nobody() -> None:
    brief = ServiceTimes(np.array([[0.1, 0.2], [0.2, 1.2]]), np.array([0.9, 0.1]), 1.0)
    assert blocking_of(brief, (FAST, SLOW), 2.0) == ()
    assert blocking_of(TIMES, (FAST, FAST), 2.0) == ()  # no other type could take a query
    assert blocking_of(TIMES, (SLOW, SLOW), 2.0) == ()  # large queries are late anywhere


def _matched(kinds: tuple[int, ...], remaining_s: list[float]) -> list[tuple[int, int]]:
    table = priced_devices(TIMES, kinds, np.array([1.0, 0.5]), FAST)
    rows = [tuple(TIMES.latency_s[:, 1].tolist())]
    round_ = Round(
        sizes=[1], wait_s=[0.0], slack_s=[SLO_S], latency_s=rows, worst_s=rows, held=[-1],
        remaining_s=remaining_s, factors=np.ones(len(kinds)), devices=table,
    )  # fmt: skip
    return match(round_, DispatchOptions(MatchingWeights(SLO_S, guard=0.0)))


def test_the_last_fast_device_is_kept_free_of_long_queries() -> None:
    assert _matched((FAST, SLOW), [0.0, 0.05]) == []  # it waits for the slow one
    assert _matched((FAST, SLOW), [0.0, 0.3]) == [(0, 0)]  # which would be too late
    assert _matched((FAST, FAST, SLOW), [0.0, 0.0, 0.05]) == [(0, 0)]
