"""PlanGate: variants that a worker holds beside the leased one count during a swap."""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from control.checks.violations import Constraint, Violation
from control.controller.plan_gate import PlanGate
from control.policies import POLICIES
from control.policies.ramsis.table_jobs import TableJobs
from control.policies.solvers import solve
from control.problem.forecast import ExpectedTraffic
from control.problem.problem import Problem
from control.rollout.history import History
from control.rollout.next_plan import PlanningContext, Target, next_plan
from control.rollout.placement import Member
from schemas.records import Plan, Settings
from tests.allocation_world import a_problem, an_entry

MB = 10**6
WORKERS = ("w0", "w1")
# "odd" is slower and less accurate than "fast", so tables omit it.
MODELS = [
    an_entry("a", "fast", {1: 5.0, 2: 8.0}, accuracy=0.7, memory=60 * MB),
    an_entry("a", "good", {1: 12.0, 2: 20.0}, accuracy=0.9, memory=60 * MB),
    an_entry("a", "odd", {1: 30.0, 2: 50.0}, accuracy=0.6, memory=60 * MB),
]
SET = "a/fast and a/good"


def a_world(policy: str, room: int) -> tuple[Problem, PlanGate]:
    asked = a_problem(MODELS, {"a": ()}, devices=("cpu", "cpu"), slo_ms=100.0,
                      policy=POLICIES[policy].usual, memory={"cpu": room})  # fmt: skip
    jobs = TableJobs(asked.pipeline, asked.profile, asked.memory)
    return asked, PlanGate(asked.pipeline, asked.memory, jobs.sets)


def context(
    asked: Problem, loaded: Mapping[str, str], in_force: Plan | None = None
) -> PlanningContext:
    members = [Member(name=n, device="cpu", loaded=loaded.get(n, ""), serves="a") for n in WORKERS]
    return PlanningContext(
        pipeline=asked.pipeline, profile=asked.profile, history=History(asked.pipeline),
        members=members, in_force=in_force, expected=ExpectedTraffic(1.0),
    )  # fmt: skip


def plan_for(asked: Problem, where: PlanningContext) -> Plan:
    settings = Settings(policy=asked.policy.name, slo_s=asked.slo_s)
    plan, _ = next_plan(Target(solve(asked.policy.kind, asked), settings), where, (), 0.0)
    return plan


def test_a_set_is_loaded_only_where_what_serves_meanwhile_fits_beside_it() -> None:
    asked, gate = a_world("ramsis", 130 * MB)
    empty = context(asked, {})
    assert gate.plan(plan_for(asked, empty), empty) == ()
    swapping = context(asked, {"w0": "a/odd"})
    assert gate.plan(plan_for(asked, swapping), swapping) == (
        Violation(Constraint.SWAP_MEMORY, ("w0", SET, "a/odd"), 180 * MB, 130 * MB),
    )
    asked, gate = a_world("ramsis", 180 * MB)
    assert gate.plan(plan_for(asked, swapping), swapping) == ()


def test_a_set_stays_until_another_variant_is_loaded() -> None:
    asked, gate = a_world("ramsis", 130 * MB)
    tables = plan_for(asked, context(asked, {}))
    own = dict.fromkeys(WORKERS, tables.leases[0].key)
    where = context(asked, own, tables)
    fixed = replace(POLICIES["static"].usual, replicas={"a/odd": 2})
    other = plan_for(replace(asked, policy=fixed), where)
    assert {lease.key for lease in other.leases} == {"a/odd"}
    swap = (Constraint.SWAP_MEMORY, ("w0", "a/odd", "a/fast", "a/good"), 180 * MB, 130 * MB)
    assert gate.plan(other, where)[0] == Violation(*swap)
    # Under a plan without tables workers hold the set until its variant serves.
    small = structs.replace(
        other, leases=tuple(structs.replace(x, variant="fast") for x in other.leases)
    )
    going = context(asked, dict.fromkeys(WORKERS, "a/good"), small)
    assert gate.plan(other, going)[0] == Violation(*swap)
    gate.forget("w1")
    assert list(gate._beside) == ["w0"]
    gone = context(asked, dict.fromkeys(WORKERS, "a/fast"), small)
    assert gate.plan(other, gone) == ()


def test_tables_that_do_not_fit_are_refused_by_the_check_as_well() -> None:
    asked, gate = a_world("ramsis", 200 * MB)
    found = solve("ramsis", asked)
    assert gate.allocation(found, found, asked) == ()
    small = replace(asked, memory={"cpu": 100 * MB})
    memory = Violation(Constraint.MEMORY, (found.replicas[0].key, "cpu"), 120 * MB, 100 * MB)
    assert memory in gate.allocation(found, found, small)
