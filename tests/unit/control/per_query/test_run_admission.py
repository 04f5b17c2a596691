"""control/per_query/run_admission.py: a run is refused if its worker has no time for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.per_query.run_admission import RunAdmission, admits_by_turn, wait_s
from schemas.pipeline import ClassShare
from schemas.records import Route
from tests.builders import a_lease, a_pipeline, a_plan

# Two workers that each serve 4 queries in 100 ms.
PLAN = replace(
    a_plan([a_lease("a", slots=(0,)), a_lease("b", slots=(1,))]),
    capacity_qps=80.0,
)
BUDGET_S = 0.2


def an_admission(budget_s: float = BUDGET_S) -> RunAdmission:
    admission = RunAdmission()
    admission.change(PLAN, "read", budget_s)
    return admission


def test_allowed_wait_is_the_time_left_by_a_batch_and_its_gathering() -> None:
    assert wait_s(0.2, 4, 0.1, 80.0) == pytest.approx(0.2 - 0.1 - 3 / 80)
    assert wait_s(0.1, 4, 0.1, 80.0) == 0.0


def test_a_run_begins_where_its_worker_is_planned_to_be_in_time() -> None:
    admission = an_admission()
    assert admission.admits(0, 0.0)
    for _ in range(4):
        admission.sent(0, 0.0)
    # Busy until 0.1, and the run may wait 62.5 ms.
    assert not admission.admits(0, 0.03)
    assert admission.admits(0, 0.04)
    assert admission.admits(1, 0.0)


def test_an_idle_worker_takes_a_whole_run_at_once_and_idle_time_is_lost() -> None:
    admission = an_admission()
    for _ in range(4):
        admission.sent(0, 5.0)
    assert not admission.admits(0, 5.0)
    assert admission.admits(0, 5.04)


def test_a_new_plan_keeps_what_was_sent_and_one_without_capacity_admits_everything() -> None:
    admission = an_admission()
    for _ in range(8):
        admission.sent(0, 0.0)
    admission.change(replace(PLAN, capacity_qps=160.0), "read", BUDGET_S)
    assert not admission.admits(0, 0.01)
    for plan in (replace(PLAN, capacity_qps=None), None):
        admission.change(plan, "read", BUDGET_S)
        assert admission.admits(0, 0.01)


def test_only_the_tasks_own_slots_count() -> None:
    other = a_lease("c", task="sort", batch=16, slots=(0,))
    both = replace(PLAN, leases=(*PLAN.leases, other), routes=(*PLAN.routes, Route("sort", 0, 1.0)))
    admission = RunAdmission()
    admission.change(both, "read", BUDGET_S)
    for _ in range(4):
        admission.sent(0, 0.0)
    assert [admission.admits(0, now) for now in (0.03, 0.04)] == [False, True]
    closed = replace(PLAN, routes=(Route("read", 0, 0.0), Route("read", 1, 1.0)))
    admission.change(closed, "read", BUDGET_S)  # slot 0 gets nothing, so nothing is planned for it
    assert admission.admits(0, 0.0)


@given(st.lists(st.floats(0.0, 0.02), min_size=200, max_size=400))
def test_no_more_is_admitted_than_the_workers_serve_in_time(gaps: list[float]) -> None:
    admission, now, admitted = an_admission(), 0.0, 0
    for gap in gaps:
        now += gap
        if admission.admits(0, now):
            admission.sent(0, now)
            admitted += 1
    assert admitted <= 40 * (now + wait_s(BUDGET_S, 4, 0.1, 80.0)) + 1


def test_where_classes_share_the_capacity_their_buckets_alone_admit() -> None:
    assert admits_by_turn(a_pipeline())
    assert not admits_by_turn(a_pipeline(admission=False))
    gold = {"gold": ClassShare(weight=2.0)}
    assert not admits_by_turn(a_pipeline(slo_classes={"gold": 0.1}, class_shares=gold))
