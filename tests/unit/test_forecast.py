"""control/forecast.py and assembly.py: what may be expected of some leases?"""

from dataclasses import replace

import pytest

from control.assembly import assemble, same
from control.placement import Member
from profiles.table import ProfileTable
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan, Route, Settings
from tests.control_world import a_lease, a_pipeline, a_profile

LEASES = (
    a_lease("a", "locate", "net", [0], 0),
    a_lease("b", "read", "forest", [0], 0),
    a_lease("c", "read", "vit", [1], 1),
)
BASE = Plan(
    pipeline="postcode",
    epoch=1,
    issued_s=1.0,
    reason="",
    settings=Settings(policy="static", slo_s=0.3),
)
CREW = (
    Member(name="a", device="cpu", serves="locate"),
    Member(name="b", device="cpu", serves="read"),
    Member(name="c", device="cpu", serves="read"),
)


def a_plan(
    leases: tuple[Lease, ...] = LEASES,
    profile: ProfileTable | None = None,
    base: Plan = BASE,
    pipeline: Pipeline | None = None,
    crew: tuple[Member, ...] = CREW,
) -> Plan:
    return assemble(base, leases, pipeline or a_pipeline(), profile, crew)


def test_without_a_profile_shares_are_equal_and_nothing_is_promised() -> None:
    assert a_plan() == replace(
        BASE,
        leases=LEASES,
        routes=(Route("locate", 0, 1.0), Route("read", 0, 0.5), Route("read", 1, 0.5)),
    )


def test_with_a_profile_shares_follow_throughput() -> None:
    plan = a_plan(profile=a_profile())
    # read does 1000 + 200 items/s; a query makes 5 of them, and locate does 100 queries/s.
    assert plan.routes[1:] == (Route("read", 0, 1000 / 1200), Route("read", 1, 200 / 1200))
    assert plan.capacity_qps == pytest.approx(100.0)
    assert plan.expected_accuracy == pytest.approx(0.9 * (0.8 * 1000 + 0.95 * 200) / 1200)


def test_the_tightest_task_bounds_the_capacity() -> None:
    assert a_plan((LEASES[0], LEASES[2]), a_profile()).capacity_qps == pytest.approx(200 / 5)


def test_a_worker_that_still_loads_gets_no_traffic_while_another_serves() -> None:
    crew = (*CREW[:2], replace(CREW[2], serves=""))
    plan = a_plan(profile=a_profile(), crew=crew)
    assert plan == replace(a_plan(LEASES[:2], a_profile()), leases=LEASES)
    nobody = (replace(CREW[0], serves=""), replace(CREW[1], serves="locate"), crew[2])
    assert a_plan(profile=a_profile(), crew=nobody) == a_plan(profile=a_profile())


def test_what_was_not_measured_promises_nothing() -> None:
    partial = replace(a_profile(), entries=a_profile().entries[:2])
    plan = a_plan(profile=partial)
    assert (plan.capacity_qps, plan.expected_accuracy) == (None, None)
    assert plan.routes == a_plan().routes
    no_fan_out = replace(a_profile(), entries=a_profile().entries[1:])
    assert a_plan(profile=no_fan_out).capacity_qps is None


def test_an_unmeasured_device_promises_no_capacity() -> None:
    crew = (*CREW[:2], replace(CREW[2], device="cuda:0"))
    plan = a_plan(profile=a_profile(), crew=crew)
    assert plan.capacity_qps is None


def test_without_admission_there_is_no_limit() -> None:
    assert a_plan(profile=a_profile(), pipeline=a_pipeline(admission=False)).capacity_qps is None


def test_a_task_without_an_open_slot_makes_a_plan_infeasible() -> None:
    plan = a_plan(LEASES[:1], a_profile())
    assert (plan.feasible, plan.capacity_qps, plan.expected_accuracy) == (False, 0.0, None)
    assert plan.binding == "no worker serves task 'read'; start one"
    draining = (a_lease("a", "locate", "net", [0], 0), a_lease("b", "locate", "net", [1]))
    assert a_plan(draining).binding == "no worker serves task 'read' while b still drains"


def test_a_planners_reason_comes_first() -> None:
    base = replace(BASE, feasible=False, binding="too few")
    assert a_plan(LEASES[:1], base=base).binding == "too few"


def test_plans_are_the_same_but_for_when_and_why() -> None:
    later = replace(BASE, epoch=9, issued_s=9.0, reason="later", demand_qps=9.0)
    assert same(BASE, later)
    assert not same(BASE, replace(later, capacity_qps=1.0))
