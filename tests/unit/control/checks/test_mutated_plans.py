"""control/checks: a mutation that violates a constraint is refused with the constraint's name,
and plans of every policy pass."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from control.checks.allocation_check import check_allocation, device_rate, items_per_s
from control.checks.plan_check import LatencyBound, PlanConditions, check_plan
from control.checks.violations import Constraint, Violation, violation_text
from control.controller.plan_gate import PlanGate
from control.policies import POLICIES
from control.policies.option_fields import with_options
from control.policies.ramsis.table_jobs import TableJobs
from control.policies.solvers import solve
from control.problem.forecast import ExpectedTraffic
from control.problem.problem import Allocation, PathShare, PlanError, Problem, Replicas
from control.rollout.history import History
from control.rollout.next_plan import PlanningContext, Target, next_plan
from control.rollout.placement import Member
from schemas.pipeline import Policy
from schemas.records import Plan, Route, Settings
from tests.allocation_world import a_problem, an_entry, problems
from tests.control_world import World, a_lease, a_pipeline, a_profile
from tests.property_examples import at_most

SHARING = ("loki", "loki-paper", "inferline")
SESSIONS = ("compass", "compass-paper", "circinus")  # these policies plan sessions, not replicas
PLANNERS = tuple(name for name in POLICIES if name not in SESSIONS)
MB = 10**6
MEMORY = 100 * MB  # that a worker may use, where it matters


def named(violations: tuple[Violation, ...]) -> set[Constraint]:
    return {each.constraint for each in violations}


# ---------------------------------------------------------------------- allocations


def asked_of(problem: Problem, name: str, least: float = 0.0) -> Problem:
    """Return the problem under a policy of that kind, with accuracy_least if the kind has it."""
    usual = POLICIES[name].usual
    if "accuracy_least" in usual.options:
        usual = with_options(usual, accuracy_least=least)
    return replace(problem, policy=usual)


def planned(asked: Problem) -> Allocation:
    """Return the plan; skip problems without one."""
    try:
        return solve(asked.policy.kind, asked)  # type: ignore[no-any-return]
    except PlanError:
        assume(False)
        raise


@settings(max_examples=at_most(60), deadline=None)
@given(problems(), st.sampled_from(PLANNERS), st.sampled_from((0.0, 0.5, 0.8)))
def test_planned_allocations_violate_no_constraint(
    problem: Problem, name: str, least: float
) -> None:
    asked = asked_of(problem, name, least)
    assert check_allocation(planned(asked), asked) == ()


def test_a_plan_that_serves_nothing_guarantees_no_latency() -> None:
    entries = [
        an_entry(task, variant, {1: ms}, children={"b": 1.0} if task == "a" else {})
        for task in "ab"
        for variant, ms in (("fast", 3.0), ("good", 18.0))
    ]
    asked = asked_of(a_problem(entries, {"a": ["b"], "b": []}, slo_ms=60.0), "proteus")
    slow = tuple(Replicas(task=task, variant="good", batch=1, count=1) for task in "ab")
    plan = Allocation(slow, False, "too short", mode="best-effort")
    assert check_allocation(replace(plan, served_share=0.0), asked) == ()
    assert Constraint.LATENCY in named(check_allocation(replace(plan, served_share=0.5), asked))


@settings(max_examples=at_most(60), deadline=None)
@given(problems(), st.sampled_from(PLANNERS), st.sampled_from((0.0, 5.0, 60.0)))
def test_the_first_plan_of_every_policy_passes_the_gate(
    problem: Problem, name: str, traffic_qps: float
) -> None:
    pipeline = replace(problem.pipeline, policy=name)
    asked = asked_of(replace(problem, pipeline=pipeline), name)
    target = Target(planned(asked), Settings(policy=name, slo_s=asked.slo_s))
    members = [Member(name=f"w{n}", device=d) for n, d in enumerate(asked.devices)]
    context = PlanningContext(
        pipeline=pipeline, profile=asked.profile, history=History(pipeline), members=members,
        in_force=None, expected=ExpectedTraffic(traffic_qps),
    )  # fmt: skip
    plan, _ = next_plan(target, context, (), 0.0)
    assert (
        PlanGate(pipeline, {}, TableJobs(pipeline, asked.profile, {}).sets).plan(plan, context)
        == ()
    )


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
    """Set the SLO below the latency of the slowest used path."""
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
    """Demand more than the least loaded variant serves."""
    arriving = items_per_s(plan, problem)
    able = [(r.count * device_rate(problem, r), arriving[r.key, r.device]) for r in plan.replicas
            if arriving.get((r.key, r.device), 0.0) > 0]  # fmt: skip
    most = max(capacity / items for capacity, items in able)
    return plan, replace(problem, demand_qps=problem.demand_qps * most * 1.01)


def more_accuracy(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, accuracy=(plan.accuracy or 0.0) + 0.01), problem


def more_accuracy_wanted(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    above = (plan.accuracy or 0.0) + 0.01
    return plan, replace(problem, policy=with_options(problem.policy, accuracy_least=above))


def task(problem: Problem, **changes: Any) -> Problem:
    """Return the problem with changes to its root task."""
    root = replace(problem.pipeline.root, **changes)
    tasks = (root, *problem.pipeline.tasks[1:])
    return replace(problem, pipeline=replace(problem.pipeline, tasks=tasks))


def fewer_replicas_allowed(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return plan, task(problem, most=0)


def more_replicas_wanted(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    there = (*problem.devices, *problem.devices)
    most = len(there) - len(problem.pipeline.tasks) + 1
    assume(sum(r.count for r in plan.replicas if r.task == problem.pipeline.root.name) < most)
    more = task(replace(problem, devices=there), least=most)
    return replace(plan, feasible=True), more


def more_variants_held(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    """Return a problem in which each variant fits a worker but no two variants do."""
    assert problem.profile is not None
    sized = tuple(replace(entry, memory_bytes=60) for entry in problem.profile.entries)
    profile = replace(problem.profile, entries=sized)
    first = plan.replicas[0]
    held = (replace(first, beside=(first.variant,)), *plan.replicas[1:])
    room = dict.fromkeys(problem.devices, 100)
    return replace(plan, replicas=held), replace(problem, profile=profile, memory=room)


def without_a_replica(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, replicas=(replace(plan.replicas[0], count=0), *plan.replicas[1:])), problem


def listed_twice(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, replicas=(*plan.replicas, plan.replicas[0])), problem


def in_an_unmeasured_batch(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    first = replace(plan.replicas[0], batch=1000)
    return replace(plan, replicas=(first, *plan.replicas[1:])), problem


def along_half_a_path(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    first = plan.shares[0]
    halved = PathShare((*first.path, first.path[-1]), first.share)
    return replace(plan, shares=(halved, *plan.shares[1:])), problem


def with_a_share_too_small(plan: Allocation, problem: Problem) -> tuple[Allocation, Problem]:
    return replace(plan, feasible=True, served_share=0.5), problem


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
    more_accuracy_wanted: Constraint.ACCURACY_LEAST,
    fewer_replicas_allowed: Constraint.TASK_REPLICAS,
    more_replicas_wanted: Constraint.TASK_REPLICAS,
    more_variants_held: Constraint.MEMORY,
    without_a_replica: Constraint.REPLICAS,
    listed_twice: Constraint.LISTED_ONCE,
    in_an_unmeasured_batch: Constraint.PROFILED,
    along_half_a_path: Constraint.PATH,
    with_a_share_too_small: Constraint.SERVED_SHARE,
    without_its_paths: Constraint.SUM_OF_SHARES,
}


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(max_examples=12, deadline=None)
@given(problem=problems(), name=st.sampled_from(SHARING))
def test_a_mutated_allocation_is_caught(mutate: Mutation, problem: Problem, name: str) -> None:
    asked = replace(problem, policy=replace(POLICIES[name].usual, latency="p50"))
    plan = planned(asked)
    assume(plan.shares and plan.served_share > 1e-3)
    assume(mutate is not more_demand or asked.demand_qps > 0)
    mutated, conditions = mutate(plan, asked)
    violations = check_allocation(mutated, conditions)
    assert MUTATIONS[mutate] in named(violations), violations
    assert all(violation_text(each) for each in violations)


# Shapes that are rare in drawn problems: tied branches, branch bounds, no fan-out.
LEAVES = (an_entry("b", "v", {1: 5.0}), an_entry("c", "v", {1: 5.0}))
BRANCHED = [an_entry("a", "v", {1: 5.0}, children={"b": 1.0, "c": 1.0}), *LEAVES]
BELOW: Mapping[str, tuple[str, ...]] = {"a": ("b", "c"), "b": (), "c": ()}


def test_tied_branches_that_differ_are_caught() -> None:
    again = (an_entry("a", "w", {1: 5.0}, children={"b": 1.0, "c": 1.0}), *BRANCHED)
    problem = a_problem(again, BELOW, branches="tied", demand=1.0)
    plan = Allocation(
        tuple(Replicas(task=t, variant=v, batch=1, count=1) for t, v in
              (("a", "v"), ("a", "w"), ("b", "v"), ("c", "v"))),
        mode="accuracy", accuracy=1.0,
        shares=(PathShare(("a/v", "b/v"), 1.0), PathShare(("a/w", "c/v"), 1.0)),
    )  # fmt: skip
    assert Constraint.TIED_SHARES in named(check_allocation(plan, problem))


def test_a_branch_beyond_its_bounds_is_caught() -> None:
    bounds = {"b": {"share": (0.4, 0.6)}}
    problem = a_problem(BRANCHED, BELOW, branches="untied", tasks=bounds, demand=1.0)
    one_way = Allocation(
        tuple(Replicas(task=t, variant="v", batch=1, count=1) for t in "ab"),
        mode="accuracy", accuracy=1.0, shares=(PathShare(("a/v", "b/v"), 1.0),),
    )  # fmt: skip
    assert check_allocation(one_way, problem) == (
        Violation(Constraint.TASK_SHARE, ("b",), 1.0, 0.6),
    )


@pytest.mark.parametrize(
    ("observed", "arriving", "devices", "factor"),
    [
        ({}, {}, ("cpu",), 2.0),  # of the variant that makes the fewest
        ({}, {}, ("cpu", "gpu"), 1.5),  # on the device where it makes the fewest
        ({}, {"a/w": 1.0}, ("cpu",), 3.0),
        ({("a/w", "b"): 1.25}, {}, ("cpu",), 1.25),
        ({("a/v", "b"): 1.0, ("a/w", "b"): 4.0}, {"a/v": 1.0, "a/w": 3.0}, ("cpu",), 3.25),
        ({("a/v", "b"): 1.0}, {"a/v": 1.0, "a/w": 1.0}, ("cpu",), 2.0),
    ],
)
def test_a_plan_by_tasks_serves_the_items_that_the_tasks_before_make(
    observed: dict[tuple[str, str], float], arriving: dict[str, float], devices: tuple[str, ...],
    factor: float,
) -> None:  # fmt: skip
    entries = [
        an_entry("a", "v", {1: 5.0}, children={"b": 2.0}),
        an_entry("a", "v", {1: 5.0}, children={"b": 1.5}, device="gpu"),
        an_entry("a", "w", {1: 5.0}, children={"b": 3.0}),
        an_entry("b", "v", {1: 10.0}),
    ]
    problem = a_problem(
        entries, {"a": ("b",), "b": ()}, demand=100.0, devices=devices * 4,
        policy=POLICIES["proteus"].usual, multiplicity=observed, arriving=arriving,
    )  # fmt: skip
    one_each = tuple(Replicas(task=t, variant="v", batch=1, count=1) for t in "ab")
    plan = Allocation(one_each, mode="accuracy")
    able = pytest.approx(100.0)
    assert check_allocation(plan, problem) == (
        Violation(Constraint.CAPACITY, ("b",), pytest.approx(100 * factor), able),
    )


def test_a_fan_out_that_was_not_profiled_is_caught() -> None:
    problem = a_problem(BRANCHED, BELOW, demand=1.0)
    plan = planned(replace(problem, policy=POLICIES["loki"].usual))
    unknown = a_problem([an_entry("a", "v", {1: 5.0}), *LEAVES], BELOW, demand=1.0)
    assert named(check_allocation(plan, unknown)) == {Constraint.FAN_OUT}


def test_a_plan_by_tasks_keeps_the_budget_along_every_path() -> None:
    # 100 ms of SLO, half of it for compute: 25 ms a task. The slow variants together take 60.
    entries = [
        an_entry("a", "fast", {1: 5.0}, children={"b": 1.0}), an_entry("b", "fast", {1: 5.0}),
        an_entry("a", "slow", {1: 30.0}, children={"b": 1.0}), an_entry("b", "slow", {1: 30.0}),
    ]  # fmt: skip
    problem = a_problem(entries, {"a": ("b",), "b": ()}, slo_ms=100.0, demand=1.0,
                        policy=POLICIES["proteus"].usual)  # fmt: skip
    plan = planned(problem)
    assert check_allocation(plan, problem) == ()
    slow = replace(plan, replicas=tuple(replace(r, variant="slow") for r in plan.replicas))
    assert named(check_allocation(slow, problem)) == {Constraint.LATENCY}
    # A task without a faster variant runs its fastest one.
    no_other = a_problem(entries[2:], {"a": ("b",), "b": ()}, slo_ms=100.0, demand=1.0,
                         policy=POLICIES["proteus"].usual)  # fmt: skip
    assert check_allocation(slow, no_other) == ()


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
    pipeline=PIPELINE, policy=POLICIES["loki"].usual, profile=SIZED,
    latency=frozenset({LatencyBound.ROUTED}),
    memory={"cpu": MEMORY}, devices=dict.fromkeys("abc", "cpu"),
)  # fmt: skip


def test_plan_that_meets_every_constraint_has_no_violations() -> None:
    assert check_plan(PLAN, MET) == ()


def test_old_and_new_variant_must_fit_together_while_a_worker_swaps() -> None:
    held = replace(MET, held={"c": structs.replace(LEASES[2], variant="forest")})
    (violation,) = check_plan(PLAN, replace(held, loaded={"c": "read/forest"}))
    assert violation == Violation(
        Constraint.SWAP_MEMORY, ("c", "read/vit", "read/forest"), 120 * MB, MEMORY
    )
    assert "holds read/forest until read/vit is loaded, together 120 MB" in violation_text(
        violation
    )
    # The variant loading under the current lease counts, whatever the worker serves meanwhile.
    assert named(check_plan(PLAN, held)) == {Constraint.SWAP_MEMORY}
    # A lease without a load passes: slots of a lost worker are handed on whatever the size.
    assert check_plan(PLAN, replace(MET, held={"c": LEASES[2]}, memory={"cpu": 1})) != ()
    kept = {lease.worker: lease for lease in LEASES}
    assert check_plan(PLAN, replace(MET, held=kept, memory={"cpu": 1})) == ()


def test_a_used_path_must_keep_the_budget_where_another_does() -> None:
    # 10 ms + 5 ms of vit exceed a budget that 10 ms + 1 ms of forest keep.
    tight = structs.replace(PLAN, settings=Settings(policy="loki", slo_s=0.1))
    pipeline = replace(PIPELINE, compute_share=0.12, comm_s=0.0)
    met = replace(MET, pipeline=pipeline)
    assert check_plan(tight, met) == ()
    routes = (PLAN.routes[0], Route("read", 0, 0.5), Route("read", 1, 0.5))
    (violation,) = check_plan(structs.replace(tight, routes=routes), met)
    assert (violation.constraint, violation.subject) == (
        Constraint.LATENCY, ("locate/net", "read/vit"),
    )  # fmt: skip
    own = (*PLAN.routes[:2], Route("read", 1, 1.0, source="locate/net"))
    assert check_plan(structs.replace(tight, routes=own), met) == (violation,)
    none_keeps_it = replace(met, pipeline=replace(pipeline, compute_share=0.01))
    assert check_plan(structs.replace(tight, routes=routes), none_keeps_it) == ()
    free = replace(met, latency=frozenset())
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


def test_variant_set_of_a_table_worker_counts_during_a_swap() -> None:
    # forest and vit together take 120 MB of 100.
    both = {"read": ("read/forest", "read/vit")}
    (own, *_) = check_plan(PLAN, replace(MET, sets=both))
    assert own == Violation(
        Constraint.MEMORY, ("read/forest and read/vit", "cpu"), 120 * MB, MEMORY
    )
    # With memory for both, the other held variant stays until another one is loaded.
    room = replace(MET, memory={"cpu": 2 * MEMORY}, held={"b": LEASES[1], "c": LEASES[2]})
    assert check_plan(PLAN, replace(room, sets=both)) == ()
    moved = replace(room, held={**room.held, "a": structs.replace(LEASES[2], worker="a")})
    holding = {"a": ("read/forest", "read/vit")}
    smaller = replace(moved, memory={"cpu": 150 * MB}, beside=holding)
    (violation,) = check_plan(PLAN, smaller)
    assert violation == Violation(
        Constraint.SWAP_MEMORY, ("a", "locate/net", "read/forest", "read/vit"), 180 * MB, 150 * MB
    )
    assert check_plan(PLAN, replace(smaller, beside={})) == ()


def test_a_worker_is_given_no_variant_that_every_path_excludes() -> None:
    # 10 ms + 5 ms of vit exceed a budget of 12 ms; 10 ms + 1 ms of forest keep it.
    tight = structs.replace(PLAN, settings=Settings(policy="proteus", slo_s=0.1))
    pipeline = replace(PIPELINE, compute_share=0.12, comm_s=0.0)
    met = replace(MET, pipeline=pipeline, latency=frozenset({LatencyBound.ASSIGNED}))
    assert check_plan(tight, met) == (
        Violation(Constraint.LATENCY, ("read/vit",), pytest.approx(0.015), pytest.approx(0.012)),
    )
    hops = replace(met, pipeline=replace(pipeline, comm_s=0.01))  # three of them
    longer = structs.replace(tight, settings=Settings(policy="proteus", slo_s=0.13))
    assert check_plan(longer, hops) == check_plan(tight, met)
    assert check_plan(tight, replace(met, held={"c": LEASES[2]})) == ()  # it was assigned before
    # locate/net is the fastest variant of its task, so nothing else could run.
    assert check_plan(tight, replace(met, pipeline=replace(pipeline, compute_share=0.01),
                                     held={"c": LEASES[2]})) == ()  # fmt: skip


def test_table_worker_runs_no_variant_slower_than_the_slo() -> None:
    met = replace(MET, latency=frozenset({LatencyBound.BATCH}))
    assert check_plan(PLAN, met) == ()
    hops_s = 4 * PIPELINE.comm_s
    tight = structs.replace(PLAN, settings=Settings(policy="ramsis", slo_s=0.004 + hops_s))
    found = check_plan(tight, met)
    assert [(v.constraint, v.subject) for v in found] == [
        (Constraint.LATENCY, ("locate/net",)), (Constraint.LATENCY, ("read/vit",)),
    ]  # fmt: skip


# ---------------------------------------------------------------------- every constraint of plans

PlanMutation = Callable[[Plan], tuple[Plan, PlanConditions]]


def leased(of: str, /, **changes: Any) -> PlanMutation:
    """Return a mutation of one worker's lease."""

    def mutate(plan: Plan) -> tuple[Plan, PlanConditions]:
        leases = (structs.replace(x, **changes) if x.worker == of else x for x in plan.leases)
        return structs.replace(plan, leases=tuple(leases)), MET

    return mutate


def routed(at: int, **changes: Any) -> PlanMutation:
    """Return a mutation of one route."""

    def mutate(plan: Plan) -> tuple[Plan, PlanConditions]:
        routes = list(plan.routes)
        routes[at] = structs.replace(routes[at], **changes)
        return structs.replace(plan, routes=tuple(routes)), MET

    return mutate


def changed(**changes: Any) -> PlanMutation:
    """Return a mutation of the plan itself."""
    return lambda plan: (structs.replace(plan, **changes), MET)


def met(**changes: Any) -> PlanMutation:
    """Return a mutation of the conditions."""
    return lambda plan: (plan, replace(MET, **changes))


PLAN_MUTATIONS: Mapping[Constraint, PlanMutation] = {
    Constraint.ONE_LEASE: leased("c", worker="b"),
    Constraint.KNOWN_TASK: leased("c", task="sort"),
    Constraint.KNOWN_VARIANT: leased("c", variant="ocr"),
    Constraint.BATCH: leased("c", batch=0),
    Constraint.OPEN_SLOT_READ: leased("c", open_slot=2),
    Constraint.SLOT_RANGE: leased("c", slots=(1, 4)),
    Constraint.OPEN_ONCE: leased("c", open_slot=0),
    Constraint.READ_ONCE: leased("c", slots=(0, 1)),
    Constraint.TASK_SLOTS: met(pipeline=a_pipeline(slots=1)),
    Constraint.ROUTE_OPEN: routed(2, slot=3),
    Constraint.ROUTE_SHARE: routed(2, share=-0.5),
    Constraint.ROUTE_FIGURES: routed(2, spare_qps=-1.0),
    Constraint.SUM_OF_ROUTES: routed(1, share=0.5),
    Constraint.ROUTE_ONCE: changed(routes=(*PLAN.routes, PLAN.routes[2])),
    Constraint.TASK_SERVED: leased("a", open_slot=-1),
    Constraint.MEMORY: met(memory={"cpu": 1}),
    Constraint.SWAP_MEMORY: met(loaded={"c": "read/forest"}),
    Constraint.LATENCY: met(
        pipeline=replace(PIPELINE, compute_share=0.02), latency=frozenset({LatencyBound.ASSIGNED})
    ),
    Constraint.ADMITTED: changed(capacity_qps=101.0),
}


@pytest.mark.parametrize("constraint", PLAN_MUTATIONS, ids=lambda each: each.value)
def test_a_mutated_plan_is_caught(constraint: Constraint) -> None:
    assert check_plan(PLAN, MET) == ()
    plan, conditions = PLAN_MUTATIONS[constraint](PLAN)
    assert constraint in named(check_plan(plan, conditions))


def test_every_constraint_has_a_mutation() -> None:
    by_hand = {Constraint.TIED_SHARES, Constraint.TASK_SHARE, Constraint.FAN_OUT}
    # tests/unit/control/checks/test_session_check.py
    by_hand |= {each for each in Constraint if each.value.startswith("session-")}
    assert {*MUTATIONS.values(), *PLAN_MUTATIONS, *by_hand} == {*Constraint}


def test_every_constraint_has_a_sentence() -> None:
    for constraint in Constraint:
        violation = Violation(constraint, ("x", "y", "z"), 3.0, 2.0)
        if constraint is Constraint.SUM_OF_ROUTES:
            violation = replace(violation, subject=("x", "y"))
        assert violation_text(violation)
