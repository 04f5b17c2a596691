"""control/problem/forecast.py and assembly.py: the expected performance of leases."""

from dataclasses import replace

import pytest
from msgspec import structs

from control.checks.plan_check import LatencyBound, PlanConditions, check_plan
from control.policies import policy_named
from control.rollout.placement import Member
from control.rollout.plan_builder import ExpectedTraffic, assemble, same
from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease, Plan, Route, Settings
from tests.control_world import a_lease, a_pipeline, a_profile, an_entry

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
    assert a_plan() == structs.replace(
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


def test_a_path_that_was_measured_counts_instead_of_the_product() -> None:
    measured = replace(
        a_profile(), paths=(PathAccuracy(("locate/net", "read/forest"), 0.77, queries=1000),)
    )
    plan = a_plan(profile=measured)
    assert plan.expected_accuracy == pytest.approx((0.77 * 1000 + 0.9 * 0.95 * 200) / 1200)
    mixed = structs.replace(BASE, settings=structs.replace(BASE.settings, policy="loki"))
    by_tables = a_plan(profile=measured, base=mixed)
    assert [route.source for route in by_tables.routes] == ["", "", ""]
    assert by_tables.expected_accuracy == pytest.approx(0.9 * 0.95)  # all to vit


def test_the_tightest_task_bounds_the_capacity() -> None:
    assert a_plan((LEASES[0], LEASES[2]), a_profile()).capacity_qps == pytest.approx(200 / 5)


def test_a_worker_that_still_loads_gets_no_traffic_while_another_serves() -> None:
    crew = (*CREW[:2], replace(CREW[2], serves=""))
    plan = a_plan(profile=a_profile(), crew=crew)
    assert plan == structs.replace(a_plan(LEASES[:2], a_profile()), leases=LEASES)
    nobody = (replace(CREW[0], serves=""), replace(CREW[1], serves="locate"), crew[2])
    assert a_plan(profile=a_profile(), crew=nobody) == a_plan(profile=a_profile())


def test_unmeasured_variant_promises_no_capacity() -> None:
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


def test_reason_of_the_planner_takes_precedence() -> None:
    base = structs.replace(BASE, feasible=False, binding="too few")
    assert a_plan(LEASES[:1], base=base).binding == "too few"


def test_plans_are_the_same_but_for_when_and_why() -> None:
    later = structs.replace(BASE, epoch=9, issued_s=9.0, reason="later", demand_qps=9.0)
    assert same(BASE, later)
    assert not same(BASE, structs.replace(later, capacity_qps=1.0))


# ---------------------------------------------------------------------- policies that scale

SCALED = structs.replace(BASE, settings=Settings(policy="loki-paper", slo_s=0.3))


def scaled(demand_qps: float, **multiplicity: float) -> Plan:
    """Return the plan of ``LEASES`` for a demand, with the paper's order of filling workers."""
    observed = {("locate/net", child): mean for child, mean in multiplicity.items()}
    return assemble(
        SCALED, LEASES, a_pipeline(), a_profile(), CREW, ExpectedTraffic(demand_qps, observed)
    )


def test_a_policy_that_scales_fills_the_most_accurate_first_and_tells_what_is_left() -> None:
    # vit does 200 items/s, forest 1000; each batch of 4 takes 20 and 4 ms.
    assert scaled(60.0).routes == (
        Route("locate", 0, 1.0, "", 40.0, 0.04),
        Route("read", 1, pytest.approx(2 / 3), "", 0.0, 0.02),
        Route("read", 0, pytest.approx(1 / 3), "", pytest.approx(900.0), 0.004),
    )
    assert scaled(60.0).expected_accuracy == pytest.approx(0.9 * (2 / 3 * 0.95 + 1 / 3 * 0.8))
    assert scaled(20.0).expected_accuracy == pytest.approx(0.9 * 0.95)


def test_fan_out_as_observed_moves_shares_and_capacity() -> None:
    assert scaled(60.0, read=10.0).routes[1].share == pytest.approx(1 / 3)
    assert scaled(60.0, read=20.0).capacity_qps == pytest.approx(1200 / 20)
    assert scaled(60.0).capacity_qps == pytest.approx(100.0)


def test_without_a_profile_of_all_of_it_traffic_is_shared_by_throughput() -> None:
    partly = ProfileTable("postcode", a_profile().entries[1:])
    plan = assemble(SCALED, LEASES, a_pipeline(), partly, CREW, ExpectedTraffic(60.0))
    assert [route.share for route in plan.routes] == [1.0, 0.5, 0.5]
    no_fan_out = ProfileTable(
        "postcode", tuple(replace(entry, children={}) for entry in a_profile().entries)
    )
    plan = assemble(SCALED, LEASES, a_pipeline(), no_fan_out, CREW, ExpectedTraffic(60.0))
    assert [route.share for route in plan.routes] == [
        1.0, pytest.approx(1000 / 1200), pytest.approx(200 / 1200),
    ]  # fmt: skip


def test_accuracy_follows_the_paths_if_senders_differ_in_routes() -> None:
    leases = (*LEASES, a_lease("d", "locate", "weak", [1], 1))
    profile = a_profile().merge(
        ProfileTable("postcode", (an_entry("locate", "weak", 100.0, 0.5, fan_out=5.0),))
    )
    pipeline = a_pipeline(locate={"net": 1, "weak": 1})
    crew = (*CREW, Member(name="d", device="cpu", serves="locate"))
    plan = assemble(SCALED, leases, pipeline, profile, crew, ExpectedTraffic(125.0))
    # 100 queries/s by net, 500 items of which vit takes 200; 25 by weak, all of it to forest.
    by_net = 0.9 * (0.4 * 0.95 + 0.6 * 0.8)
    assert plan.expected_accuracy == pytest.approx(0.8 * by_net + 0.2 * 0.5 * 0.8)
    assert {route.source for route in plan.routes} == {"", "locate/net", "locate/weak"}


def test_nearly_equal_plans_have_the_same_text() -> None:
    plan = scaled(60.0)
    assert same(plan, scaled(60.5))
    assert not same(plan, scaled(70.0))
    assert not same(plan, structs.replace(plan, capacity_qps=None))
    assert not same(plan, structs.replace(plan, routes=plan.routes[1:]))


def split(shares: dict[str, float], profile: ProfileTable | None = None) -> Plan:
    """Return a plan under a policy that fixes the shares of variants."""
    policy = Policy(name="canary", options={"traffic": shares})
    pipeline = replace(a_pipeline(), policies=(policy,))
    base = structs.replace(BASE, settings=structs.replace(BASE.settings, policy="canary"))
    return a_plan(profile=profile, base=base, pipeline=pipeline)


def shares_of(plan: Plan, task: str) -> list[float]:
    return [route.share for route in plan.routes if route.task == task]


def test_a_variant_gets_the_share_of_the_traffic_that_the_policy_fixes() -> None:
    assert shares_of(split({"read/vit": 0.05}), "read") == pytest.approx([0.95, 0.05])
    assert shares_of(split({"read/vit": 0.05}, a_profile()), "read") == pytest.approx([0.95, 0.05])
    assert shares_of(split({"read/vit": 0.2, "read/forest": 0.2}), "read") == [0.5, 0.5]
    assert shares_of(split({"read/net": 0.2}), "read") == [0.5, 0.5]


def test_the_variant_that_is_full_first_limits_the_capacity_of_a_fixed_share() -> None:
    """vit does 200 items/s and forest 1000; a query makes 5 items of read."""
    found = split({"read/vit": 0.5}, a_profile()).capacity_qps
    assert found == pytest.approx(200 / 0.5 / 5)


@pytest.mark.parametrize("slow", ["d", "e", "f"])
def test_one_slow_worker_does_not_make_its_variant_break_the_budget(slow: str) -> None:
    # Behind net, vit is too late and forest is not; one of three workers of forest is slow.
    leases = (
        a_lease("a", "locate", "net", [0], 0), a_lease("b", "locate", "weak", [1], 1),
        a_lease("c", "read", "vit", [0], 0),
        *(a_lease(name, "read", "forest", [at], at) for at, name in enumerate("def", 1)),
    )  # fmt: skip
    pipeline = a_pipeline(locate={"net": 1, "weak": 1})
    profile = ProfileTable(
        "postcode",
        (
            an_entry("locate", "net", 45.0, 0.9, fan_out=2.0),
            an_entry("locate", "weak", 270.0, 0.7, fan_out=2.0),
            an_entry("read", "forest", 90.0, 0.8),
            an_entry("read", "vit", 54.0, 0.95),
        ),
    )
    crew = [Member(name=each.worker, device="cpu", serves=each.task) for each in leases]
    paced = [replace(each, pace=1.5) if each.name == slow else each for each in crew]
    policy = policy_named(pipeline, "loki")
    assert policy is not None
    conditions = PlanConditions(
        pipeline=pipeline, policy=policy, profile=profile,
        latency=frozenset((LatencyBound.ROUTED,)), devices={each.name: "cpu" for each in crew},
    )  # fmt: skip
    base = structs.replace(BASE, settings=Settings(policy="loki", slo_s=0.3))
    plan = assemble(base, leases, pipeline, profile, paced, ExpectedTraffic(200.0))
    assert check_plan(plan, conditions) == ()
