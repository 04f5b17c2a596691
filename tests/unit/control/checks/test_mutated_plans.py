"""control/checks: whoever made a plan, a mutation that violates a constraint is caught, and plans
of every policy pass."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from control.checks.allocation_check import check_allocation, items_per_s, rate
from control.checks.plan_check import PlanConditions, check_plan
from control.checks.violations import Constraint, Violation, sentence
from control.policies import POLICIES
from control.policies.solvers import solve
from control.problem.problem import Allocation, PathShare, PlanError, Problem
from schemas.pipeline import Policy
from schemas.records import Plan, Route, Settings
from tests.allocation_world import problems
from tests.control_world import World, a_lease, a_pipeline, a_profile

PLANNERS = ("static", "loki", "loki-paper", "inferline", "proteus")
SHARING = ("loki", "loki-paper", "inferline")
MB = 10**6
MEMORY = 100 * MB  # that a worker may use, where it matters


def named(violations: tuple[Violation, ...]) -> set[Constraint]:
    return {each.constraint for each in violations}


# ---------------------------------------------------------------------- allocations


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(PLANNERS))
def test_what_planners_allocate_violates_nothing(problem: Problem, name: str) -> None:
    asked = replace(problem, policy=POLICIES[name].usual)
    try:
        plan = solve(asked.policy.kind, asked)
    except PlanError:
        return
    assert check_allocation(plan, asked) == ()


Mutation = Callable[[Allocation, Problem], tuple[Allocation, Problem]]


def one_replica_more_than_devices(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    more = len(problem.devices) - plan.devices_used + 1
    first = plan.replicas[0]
    counted = replace(first, count=first.count + more)
    return replace(plan, replicas=(counted, *plan.replicas[1:])), problem


def fewer_slots(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    root = replace(problem.pipeline.tasks[0], slots=0)
    pipeline = replace(problem.pipeline, tasks=(root, *problem.pipeline.tasks[1:]))
    return plan, replace(problem, pipeline=pipeline)


def less_memory(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return plan, replace(problem, memory=dict.fromkeys(problem.devices, -1))


def half_of_the_traffic(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    halved = tuple(replace(share, share=share.share / 2) for share in plan.shares)
    return replace(plan, shares=halved), problem


def a_share_below_zero(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    first = plan.shares[0]
    taken = (replace(first, share=-0.25), PathShare(first.path, first.share + 0.25, first.devices))
    return replace(plan, shares=(*taken, *plan.shares[1:])), problem


def a_replica_gone(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    used = {key for share in plan.shares if share.share > 0 for key in share.path}
    gone = next(each for each in plan.replicas if each.key in used)
    return replace(plan, replicas=tuple(r for r in plan.replicas if r is not gone)), problem


def half_of_the_slo(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    """Less than the slowest used path takes."""
    slowest_s = max(
        sum(
            problem.profile.latency_s(r.task, r.variant, problem.devices[0], r.batch, "p50")
            for key in share.path for r in plan.replicas if r.key == key
        ) for share in plan.shares if share.share > 1e-3
    ) if problem.profile else 0.0  # fmt: skip
    hops = 1 + max(len(share.path) for share in plan.shares)
    pipeline = problem.pipeline
    slo_s = slowest_s / pipeline.compute_share * 0.9 + 2 * pipeline.comm_s
    return plan, replace(problem, slo_s=min(slo_s, problem.slo_s * 0.99, slo_s * hops))


def more_demand(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    """More than the least loaded variant serves."""
    arriving = items_per_s(plan, problem)
    able = [(r.count * rate(problem, r), arriving[r.key, r.device]) for r in plan.replicas
            if arriving.get((r.key, r.device), 0.0) > 0]  # fmt: skip
    most = max(capacity / items for capacity, items in able)
    return plan, replace(problem, demand_qps=problem.demand_qps * most * 1.01)


def more_accuracy(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, accuracy=(plan.accuracy or 0.0) + 0.01), problem


def without_its_paths(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, shares=()), problem


MUTATIONS: dict[Mutation, Constraint] = {
    one_replica_more_than_devices: Constraint.DEVICES,
    fewer_slots: Constraint.TASK_SLOTS,
    less_memory: Constraint.MEMORY,
    half_of_the_traffic: Constraint.SUM_OF_SHARES,
    a_share_below_zero: Constraint.SHARE,
    a_replica_gone: Constraint.REPLICA_OF_PATH,
    half_of_the_slo: Constraint.LATENCY,
    more_demand: Constraint.CAPACITY,
    more_accuracy: Constraint.ACCURACY,
    without_its_paths: Constraint.SUM_OF_SHARES,
}


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(max_examples=12, deadline=None)
@given(problem=problems(), name=st.sampled_from(SHARING))
def test_a_mutated_allocation_is_caught(mutate: Mutation, problem: Problem, name: str) -> None:
    asked = replace(problem, policy=replace(POLICIES[name].usual, latency="p50"))
    try:
        plan = solve(asked.policy.kind, asked)
    except PlanError:
        assume(False)
        raise
    assume(plan.shares and plan.served_share > 1e-3)
    assume(mutate is not more_demand or asked.demand_qps > 0)
    mutated, conditions = mutate(plan, asked)
    violations = check_allocation(mutated, conditions)
    assert MUTATIONS[mutate] in named(violations), violations
    assert all(sentence(each) for each in violations)


def test_a_plan_of_a_person_promises_no_demand() -> None:
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    assert world.rejected == []
    problem = Problem(
        pipeline=world.pipeline, policy=Policy(name="static"), slo_s=0.001, demand_qps=1e6,
        devices=("cpu",) * 3, profile=a_profile(),
    )  # fmt: skip
    plan = solve("static", problem)
    assert check_allocation(plan, problem) == ()
    assert named(check_allocation(replace(plan, mode="accuracy"), problem)) == {Constraint.CAPACITY}


# ---------------------------------------------------------------------- plans

PIPELINE = a_pipeline(slots=4)
LEASES = (
    a_lease("a", "locate", "net", [0], 0, batch=1),
    a_lease("b", "read", "forest", [0], 0, batch=1),
    a_lease("c", "read", "vit", [1], 1, batch=1),
)
PLAN = Plan(
    pipeline="postcode", epoch=1, issued_s=1.0, reason="",
    settings=Settings(policy="static", slo_s=0.3), leases=LEASES, capacity_qps=100.0,
    routes=(Route("locate", 0, 1.0), Route("read", 0, 1.0), Route("read", 1, 0.0)),
)  # fmt: skip
SIZED = a_profile()
SIZED = replace(SIZED, entries=tuple(replace(e, memory_bytes=60 * MB) for e in SIZED.entries))
MET = PlanConditions(
    pipeline=PIPELINE, policy=POLICIES["loki"].usual, profile=SIZED, within_budget=True,
    memory={"cpu": MEMORY}, devices=dict.fromkeys("abc", "cpu"),
)  # fmt: skip


def test_a_plan_that_keeps_all_violates_nothing() -> None:
    assert check_plan(PLAN, MET) == ()


def test_old_and_new_variant_must_fit_together_while_a_worker_swaps() -> None:
    held = replace(MET, held={"c": structs.replace(LEASES[2], variant="forest")})
    (violation,) = check_plan(PLAN, replace(held, loaded={"c": "read/forest"}))
    assert violation == Violation(
        Constraint.SWAP_MEMORY, ("c", "read/vit", "read/forest"), 120 * MB, MEMORY
    )
    assert "holds read/forest until read/vit is loaded, together 120 MB" in sentence(violation)
    # What is being loaded under the lease in force counts, whatever serves meanwhile.
    assert named(check_plan(PLAN, held)) == {Constraint.SWAP_MEMORY}
    # A lease that loads nothing passes: a lost worker's slots are handed on whatever the size.
    assert check_plan(PLAN, replace(MET, held={"c": LEASES[2]}, memory={"cpu": 1})) != ()
    kept = {lease.worker: lease for lease in LEASES}
    assert check_plan(PLAN, replace(MET, held=kept, memory={"cpu": 1})) == ()


def test_a_used_path_must_keep_the_budget_where_another_does() -> None:
    # 10 ms + 5 ms of vit break a budget that 10 ms + 1 ms of forest keep.
    tight = structs.replace(PLAN, settings=Settings(policy="loki", slo_s=0.1))
    pipeline = replace(PIPELINE, compute_share=0.12, comm_s=0.0)
    met = replace(MET, pipeline=pipeline)
    assert check_plan(tight, met) == ()
    routes = (PLAN.routes[0], Route("read", 0, 0.5), Route("read", 1, 0.5))
    (violation,) = check_plan(structs.replace(tight, routes=routes), met)
    assert (violation.constraint, violation.subject) == (
        Constraint.LATENCY, ("locate/net", "read/vit"),
    )  # fmt: skip
    free = replace(met, within_budget=False)
    assert check_plan(structs.replace(tight, routes=routes), free) == ()


def test_ingress_admits_no_more_than_every_task_serves() -> None:
    # 5 items a query for read, which serves 1000 + 200 of them a second.
    loose = structs.replace(PLAN, capacity_qps=101.0)
    assert check_plan(loose, MET) == (
        Violation(Constraint.ADMITTED, ("locate",), 101.0, pytest.approx(100.0)),
    )
    more = replace(MET, multiplicity={("locate/net", "read"): 20.0})
    assert check_plan(PLAN, more) == (
        Violation(Constraint.ADMITTED, ("read",), 100.0, pytest.approx(60.0)),
    )
    assert check_plan(PLAN, replace(more, profile=None)) == ()


def test_every_constraint_has_a_sentence() -> None:
    for constraint in Constraint:
        violation = Violation(constraint, ("x", "y", "z"), 3.0, 2.0)
        if constraint is Constraint.SUM_OF_ROUTES:
            violation = replace(violation, subject=("x", "y"))
        assert sentence(violation)
