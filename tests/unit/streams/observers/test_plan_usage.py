"""Replicas and devices of the plans in force, averaged over time."""

from schemas.records import Plan
from streams.observers.plan_usage import PlanUsage
from tests.builders import a_lease, a_plan


def of(workers: int) -> Plan:
    return a_plan([a_lease(f"w{n}") for n in range(workers)])


def used(*plans: tuple[float, int]) -> PlanUsage:
    usage = PlanUsage()
    for at_s, workers in plans:
        usage.plan(of(workers), at_s)
    return usage


def test_plans_count_for_as_long_as_they_are_in_force() -> None:
    usage = used((0.0, 1), (5.0, 2), (15.0, 1), (20.0, 2), (30.0, 2))
    # Two for 5 s, then one for 5 s; time before and after is not counted.
    assert usage.replicas_mean(10.0, 20.0) == {"read/v": 1.5}
    assert usage.devices_mean(10.0, 20.0) == 1.5


def test_before_the_first_plan_nothing_is_used() -> None:
    assert used((5.0, 2)).devices_mean(0.0, 10.0) == 1.0
    assert used((5.0, 2)).replicas_mean(0.0, 5.0) == {}
    assert used().devices_mean(0.0, 10.0) is None


def test_empty_interval_reports_the_plan_in_force() -> None:
    assert used((0.0, 1), (5.0, 2)).devices_mean(10.0, 10.0) == 2.0
    assert used((0.0, 1)).replicas_mean(10.0, 10.0) == {}


def test_plans_before_the_one_in_force_can_be_forgotten() -> None:
    usage = used((0.0, 1), (5.0, 2))
    usage.forget()
    assert usage.devices_mean(0.0, 10.0) == 1.0
