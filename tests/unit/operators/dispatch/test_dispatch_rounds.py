"""What a decision sends: all that there is at its moment, to devices that are in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.policies import POLICIES
from operators.dispatch.dispatch_profile import dispatch_profile
from operators.dispatch.dispatcher import Dispatcher
from tests.unit.operators.dispatch.test_dispatcher import (
    a_dispatching_plan,
    a_sized_pipeline,
    completion,
    dispatching,
    sent,
    work,
)

RULES = ["kairos", "kairos-paper", "fcfs", "threshold", "earliest"]
# No two sizes and types take equally long, and no query can be late, which costs the same on every
# device: so no choice is a tie.
SLO_S = 100.0
PER_ITEM_S = {"gpu": 1.0001e-3, "slow": 4.0003e-3}


def _seconds(type_: str, size: int, quantile: str) -> float:
    return PER_ITEM_S[type_] * size + 1e-7 * size**2


@pytest.mark.parametrize("policy", RULES)
@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=12, unique=True),
    gaps=st.lists(st.floats(0.0, 0.03), min_size=12, max_size=12),
    devices=st.lists(st.sampled_from(["gpu", "slow"]), min_size=1, max_size=5),
    lead_s=st.sampled_from([0.0, 0.01]),
)
def test_a_second_decision_at_the_same_moment_sends_nothing(
    policy: str, sizes: list[int], gaps: list[float], devices: list[str], lead_s: float
) -> None:
    asked = POLICIES[policy].policy(policy, {"lead": lead_s})
    pipeline = a_sized_pipeline(policies=(asked,), policy=policy, slo_s=SLO_S)
    dispatcher = Dispatcher(pipeline, dispatch_profile(("gpu", "slow"), _seconds, 100))
    plan = a_dispatching_plan(*devices, policy=policy)
    dispatcher.change(replace(plan, settings=replace(plan.settings, slo_s=SLO_S)), 0.0)
    running: list[tuple[float, int, int]] = []  # end, query, slot
    now = 0.0
    for number, size in enumerate(sizes):
        now += gaps[number]
        for ended in sorted(each for each in running if each[0] <= now):
            running.remove(ended)
            _, query, slot = ended
            run_s = _seconds(devices[slot], sizes[query], "mean")
            done = completion(
                work(query, sizes[query]), slot, run_s, f"{devices[slot]}-{slot}", devices[slot]
            )
            dispatcher.completed(done, now)
        dispatcher.add(replace(work(number, size, created_s=now), deadline_s=now + SLO_S))
        for query, slot in sent(dispatcher, now):
            begun_s = max([now, *[end_s for end_s, _, at in running if at == slot]])
            running.append((begun_s + _seconds(devices[slot], sizes[query], "mean"), query, slot))
        assert sent(dispatcher, now) == []


def test_a_query_sent_ahead_is_in_time_with_one_hop_after_it() -> None:
    dispatcher = dispatching("slow", "gpu", seconds=_seconds, round_trip_s=0.02)
    dispatcher.add(work(0, 30))  # too large for the slow device
    assert sent(dispatcher, 0.0) == [(0, 1)]  # it arrives at 0.01 and ends at 0.04
    # The hop to the device passes while it is busy: 0.04 + 0.04 + 0.01 is before 0.093.
    dispatcher.add(work(1, 40, created_s=-0.007))
    assert sent(dispatcher, 0.025) == [(1, 1)]


def test_a_query_that_would_be_late_by_a_hop_waits_for_another_device() -> None:
    dispatcher = dispatching("gpu", "slow", seconds=_seconds, round_trip_s=0.02)
    dispatcher.add(work(0, 30, created_s=-0.02))  # too large for the slow device
    # The slow device would end it at 0.01 + 0.088, in time but for the hop of the answer.
    dispatcher.add(work(1, 22))
    assert sent(dispatcher, 0.0) == [(0, 0)]  # until 0.04
    assert sent(dispatcher, 0.03) == [(1, 0)]
