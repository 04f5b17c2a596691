"""control/estimation/estimates.py: usable capacity, and when rising demand needs a new plan."""

import pytest
from msgspec.structs import replace

from control.estimation.estimates import Estimates, LastSolve
from control.estimation.seen_capacity import KEPT
from control.problem.problem import Problem
from schemas.effects import Counted
from schemas.enumerations import PlanCause
from schemas.pipeline import Policy
from schemas.records import Plan, Report, Settings
from tests.control_world import a_pipeline, a_profile

PACED = Policy(name="loki", kind="loki", paced=True)
UNPACED = Policy(name="loki", kind="loki", paced=False)
SETTINGS = Settings(policy="loki", slo_s=1.0)
RATE_QPS = 500.0


def a_report(role: str, at_s: float, counts: dict[str, float]) -> Report:
    return Report(
        node=role, role=role, pipeline="postcode", epoch=1, incarnation=1.0, sent_s=at_s,
        state="ready", device="cpu" if role == "worker" else "", task="locate", variant="net",
        counts=counts,
    )  # fmt: skip


def ran(estimates: Estimates, seconds: range, factor: float) -> None:
    """Run ten batches a second that take ``factor`` times as long as profiled."""
    each_s = factor * a_profile().latency_s("locate", "net", "cpu", 1, "mean")
    for at in seconds:
        done = {"batches": 10.0 * at, "finished": 10.0 * at}
        done["busy_s"] = 10 * (at - seconds.start) * each_s
        counts = {f"{name}/locate/net": count for name, count in done.items()}
        estimates.observe(a_report("worker", float(at), counts))


def slowed(policy: Policy, factor: float) -> Estimates:
    estimates = Estimates(a_pipeline(), a_profile())
    ran(estimates, range(1, 11), factor)
    estimates.keep_pace(policy)
    return estimates


def overloaded(estimates: Estimates, policy: Policy, capacity_qps: float) -> float:
    """Let a plan of that capacity miss a fifth of the queries for two seconds; return the part of
    its capacity that is then admitted."""
    plan = Plan(pipeline="postcode", epoch=1, issued_s=0.0, reason="", settings=SETTINGS)
    admitted_qps = capacity_qps * estimates.capacity_share(policy)
    estimates.serves(replace(plan, capacity_qps=admitted_qps), policy)
    for at in range(4):
        ended = {"answered": 80.0 * at, "late": 20.0 * at}
        estimates.observe(a_report("egress", 20.0 + at, ended))
    return estimates.capacity_share(policy)


def test_the_slowdown_of_devices_counts_once() -> None:
    """It counts in the plan if the policy uses it, else in the admitted part of the plan."""
    assert slowed(PACED, 2.0).capacity_share(PACED) == 1.0
    assert slowed(UNPACED, 2.0).capacity_share(UNPACED) == pytest.approx(0.5)


@pytest.mark.parametrize(("policy", "before"), [(PACED, 1.0), (UNPACED, 0.5)])
def test_an_overload_admits_less_than_was_admitted(policy: Policy, before: float) -> None:
    share = overloaded(slowed(policy, 2.0), policy, 1000.0)
    assert share == pytest.approx(KEPT * before)


@pytest.mark.parametrize("capacity_qps", [None, 0.0])
def test_a_plan_without_a_capacity_changes_nothing(capacity_qps: float | None) -> None:
    estimates = slowed(PACED, 2.0)
    before = overloaded(estimates, PACED, 1000.0)
    plan = Plan(pipeline="postcode", epoch=2, issued_s=0.0, reason="", settings=SETTINGS)
    estimates.serves(replace(plan, capacity_qps=capacity_qps), PACED)
    assert estimates.capacity_share(PACED) == before


def test_a_plan_for_devices_that_are_fast_again_admits_no_more_where_queries_were_late() -> None:
    estimates = slowed(PACED, 2.0)
    before_qps = 500.0 * overloaded(estimates, PACED, 500.0)
    ran(estimates, range(30, 130), 1.0)
    estimates.keep_pace(PACED)
    assert 1000.0 * estimates.capacity_share(PACED) == pytest.approx(before_qps)


def asked(planned_qps: float, *, exhausted: bool = False) -> PlanCause | None:
    """Return the reason for another plan under a load of ``RATE_QPS``."""
    estimates = Estimates(a_pipeline(), a_profile())
    for at in range(200):
        at_s = 0.1 * at
        estimates.count(Counted(arrived=round(RATE_QPS * at_s), waiting=0, at_s=at_s))
    problem = Problem(
        pipeline=a_pipeline(), policy=PACED, slo_s=1.0, demand_qps=planned_qps, devices=("cpu",),
        profile=estimates.keep_pace(PACED),
    )  # fmt: skip
    reason = estimates.unlike(LastSolve(problem, exhausted=exhausted), SETTINGS, 20.0)
    return None if reason is None else reason.cause


def test_a_demand_that_rises_is_planned_for_unless_the_plan_serves_all_it_can() -> None:
    assert asked(100.0) == PlanCause.DEMAND_JUMPED
    assert asked(100.0, exhausted=True) is None
    assert asked(2000.0, exhausted=True) == PlanCause.DEMAND_FELL
