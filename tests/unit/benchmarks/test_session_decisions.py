"""Rounds of the benchmark of session decisions: one leaves, another one takes its place."""

from benchmarks.session_decisions import Decisions


def test_a_waiting_session_takes_the_place_of_one_that_closes() -> None:
    decisions = Decisions(8)
    assert decisions.serving == 8
    for number in range(1, 4):
        controller_s, schedule_s = decisions.round(10.0 * number)
        assert min(controller_s, schedule_s) > 0  # contending sessions were scheduled
        assert decisions.serving == 8
    assert all(plan.admits for plan in decisions.plans)
    assert len({plan.session for plan in decisions.plans}) == 8
