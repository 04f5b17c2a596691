"""A node that missed the plan in force gets it once more."""

from dataclasses import replace

from msgspec.structs import replace as changed

from control.controller.plan_reach import RECEIVED_S, PlanReach
from schemas.records import Plan, Report
from tests.control_world import World, a_pipeline, a_profile, an_ingress_report


def a_plan_in_force(epoch: int = 7, issued_s: float = 0.0) -> Plan:
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    return changed(world.plan, epoch=epoch, issued_s=issued_s)


def missed(reach: PlanReach, plan: Plan, report: Report, upto_s: float, from_s: float = 0.0) -> int:
    """Return how often a node with five reports a second counts as having missed the plan."""
    ticks = range(round(from_s * 5), round(upto_s * 5))
    return sum(reach.missed(report, plan, tick / 5) for tick in ticks)


def test_a_node_that_stays_without_the_plan_has_missed_it_once() -> None:
    reach, plan, report = PlanReach(), a_plan_in_force(), an_ingress_report(0.0, epoch=0)
    assert missed(reach, plan, report, RECEIVED_S) == 0
    assert missed(reach, plan, report, 2 * RECEIVED_S, RECEIVED_S) == 1
    later = changed(plan, epoch=8)  # this plan does not reach the node either
    assert missed(reach, later, report, 20 * RECEIVED_S, 2 * RECEIVED_S) == 0


def test_restarted_process_may_miss_the_plan_again() -> None:
    reach, plan, report = PlanReach(), a_plan_in_force(), an_ingress_report(0.0, epoch=0)
    assert missed(reach, plan, report, 2 * RECEIVED_S) == 1
    again = changed(report, incarnation=report.incarnation + 1)
    assert missed(reach, plan, again, 4 * RECEIVED_S, 2 * RECEIVED_S) == 1


def test_plans_that_follow_each_other_are_not_missed() -> None:
    reach = PlanReach()
    for second in range(60):
        plan = a_plan_in_force(epoch=second + 1, issued_s=float(second))
        report = an_ingress_report(float(second), epoch=second)  # always one plan behind
        assert missed(reach, plan, report, second + 1.0, float(second)) == 0


def test_role_that_follows_no_plans_misses_none() -> None:
    profiler = changed(an_ingress_report(0.0), role="profiler")
    assert missed(PlanReach(), a_plan_in_force(), profiler, 10 * RECEIVED_S) == 0


def test_a_worker_that_starts_without_a_plan_on_the_topic_gets_one() -> None:
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    world.run(1.0)
    before = world.plan
    world.workers["w0"] = replace(world.workers["w0"], plan=None, incarnation=world.now)
    world.run(2 * RECEIVED_S)
    assert world.plan.epoch == before.epoch + 1
    assert world.plan.leases == before.leases
    assert f"plan {before.epoch} has not reached w0" in world.plan.reason
    world.run(10 * RECEIVED_S)
    assert world.plan.epoch == before.epoch + 1
