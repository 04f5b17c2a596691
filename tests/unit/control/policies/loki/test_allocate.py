"""Several kinds of devices, memory, bounds, observations and solver limits."""

from dataclasses import replace
from itertools import count

import pytest

from control.checks.allocation_check import check_allocation, items_per_s
from control.checks.violations import Constraint, Violation, violation_text
from control.policies import POLICIES
from control.policies.loki.allocate import allocate, allocate_within_slo
from control.policies.option_fields import with_options
from control.problem.candidates import choices, needed
from control.problem.problem import Nearest, PathShare, PlanError, Problem, Replicas
from tests.allocation_world import PAPER, a_problem, an_entry

CHAIN = {"find": ("read",), "read": ()}
ENTRIES = [
    an_entry("find", "small", {1: 5.0}, 0.8, {"read": 1.0}),
    an_entry("find", "large", {1: 20.0}, 1.0, {"read": 2.0}),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0),
]


def counts(problem: Problem) -> dict[str, int]:
    plan = allocate(problem)
    assert check_allocation(plan, problem) == ()
    return {each.key + (f" on {each.device}" if each.device else ""): each.count
            for each in plan.replicas}  # fmt: skip


def test_a_demand_is_taken_exactly() -> None:
    one = a_problem([an_entry("read", "v", {1: 10.0})], {"read": ()}, devices=("cpu",) * 3)
    assert [counts(replace(one, demand_qps=q)) for q in (0.0, 100.0, 100.001, 300.0)] == [
        {"read/v": 1}, {"read/v": 1}, {"read/v": 2}, {"read/v": 3},
    ]  # fmt: skip
    assert not allocate(replace(one, demand_qps=300.01)).feasible


def test_each_kind_of_device_has_its_own_latencies_batches_and_number() -> None:
    entries = [
        an_entry("find", "v", {1: 50.0}, 1.0, {"read": 1.0}, device="cpu"),
        an_entry("find", "v", {1: 10.0, 2: 12.0}, 1.0, {"read": 1.0}, device="cuda:0"),
        an_entry("read", "v", {1: 30.0}, 1.0, device="cpu"),
    ]
    problem = a_problem(
        entries, CHAIN, demand=60.0, slo_ms=120.0, devices=("cpu",) * 4 + ("cuda:0", "cuda:1")
    )
    # On CPUs find takes too long beside read, so the GPUs run all of it.
    assert counts(problem) == {"find/v on cuda": 1, "read/v on cpu": 2}
    assert allocate(problem).shares == (PathShare(("find/v", "read/v"), 1.0, ("cuda", "cpu")),)
    far = allocate(replace(problem, demand_qps=1000.0))
    assert (far.mode, far.nearest) == ("best-effort", far.nearest)
    assert far.nearest is not None
    assert far.nearest.devices == 6 + (30 - 4) + (6 - 2)


def test_a_device_of_another_make_is_a_kind_of_its_own() -> None:
    entries = [
        an_entry("read", "v", {1: 10.0}, device="cuda:0"),
        an_entry("read", "v", {1: 40.0}, device="cuda:1"),
    ]
    problem = a_problem(entries, {"read": ()}, demand=120.0, devices=("cuda:0", "cuda:1"))
    assert counts(problem) == {"read/v on cuda": 1, "read/v on cuda:1": 1}


def test_a_variant_that_takes_too_much_memory_is_not_planned() -> None:
    entries = [
        an_entry("read", "big", {1: 10.0}, 1.0, memory=2_000_000_000),
        an_entry("read", "slim", {1: 10.0}, 0.9, memory=500_000_000),
    ]
    problem = a_problem(entries, {"read": ()}, memory={"cpu": 1_000_000_000})
    assert counts(problem) == {"read/slim": 1}
    with pytest.raises(PlanError, match="smallest takes 500 MB: add a smaller variant or raise"):
        allocate(replace(problem, memory={"cpu": 100_000_000}))


def test_a_task_has_no_more_replicas_than_slots() -> None:
    problem = a_problem(
        [an_entry("read", "v", {1: 10.0})], {"read": ()}, demand=250.0,
        tasks={"read": {"slots": 2}},
    )  # fmt: skip
    plan = allocate(problem)
    assert (plan.mode, plan.devices_used, plan.served_share) == (
        "best-effort", 2, pytest.approx(0.8),
    )  # fmt: skip
    assert plan.nearest == Nearest(pytest.approx(200.0, rel=1e-5), None, None)


def test_branches_share_the_traffic_of_their_common_prefix() -> None:
    entries = [
        an_entry("find", "small", {1: 4.0}, 0.8, {"cars": 1.0, "faces": 1.0}),
        an_entry("find", "large", {1: 20.0}, 1.0, {"cars": 3.0, "faces": 1.0}),
        an_entry("cars", "v", {1: 5.0}, 1.0),
        an_entry("faces", "v", {1: 5.0}, 0.9),
    ]
    problem = a_problem(entries, {"find": ("cars", "faces"), "cars": (), "faces": ()}, demand=90.0)
    plan = allocate(problem)
    assert check_allocation(plan, problem) == ()
    by_detector = {
        leaf: {s.path[0]: s.share for s in plan.shares if s.path[1] == f"{leaf}/v"}
        for leaf in ("cars", "faces")
    }
    assert by_detector["cars"] == pytest.approx(by_detector["faces"])
    assert len(by_detector["cars"]) == 2


def test_bounds_of_shares_hold_in_accuracy_mode_only() -> None:
    entries = [
        an_entry("src", "v", {1: 0.001}, 1.0, {"a": 1.0, "b": 1.0}),
        an_entry("a", "v", {1: 10.0}, 1.0),
        an_entry("b", "v", {1: 10.0}, 0.7),
        an_entry("b", "w", {1: 40.0}, 0.9),
    ]
    problem = a_problem(
        entries, {"src": ("a", "b"), "a": (), "b": ()}, branches="untied", demand=200.0,
        tasks={"b": {"share": (0.3, 0.7)}},
    )  # fmt: skip
    assert counts(problem) == {"src/v": 1, "a/v": 2}
    busy = replace(problem, demand_qps=301.0)
    plan = allocate(busy)
    assert (plan.mode, plan.feasible) == ("best-effort", False)
    plan = allocate(replace(busy, demand_qps=290.0, devices=("cpu",) * 4))
    assert plan.mode == "hardware"
    assert check_allocation(plan, replace(busy, demand_qps=290.0)) == ()


def test_observed_multiplicities_and_measured_paths_take_the_place_of_the_profile() -> None:
    problem = a_problem(ENTRIES, CHAIN, demand=30.0)
    assert allocate(problem).accuracy == 1.0
    seen = replace(problem, multiplicity={("find/large", "read"): 5.0})
    assert items_per_s(allocate(seen), seen)["read/sure", ""] == pytest.approx(150.0)
    measured = replace(problem, path_accuracy={("find/large", "read/sure"): 0.93})
    assert allocate(measured).accuracy == pytest.approx(0.93)
    assert check_allocation(allocate(measured), measured) == ()


def test_the_weights_of_leaf_tasks_weigh_their_accuracies() -> None:
    entries = [
        an_entry("find", "v", {1: 4.0}, 1.0, {"cars": 1.0, "faces": 1.0}),
        an_entry("cars", "v", {1: 5.0}, 0.9),
        an_entry("faces", "v", {1: 5.0}, 0.5),
    ]
    problem = a_problem(
        entries, {"find": ("cars", "faces"), "cars": (), "faces": ()},
        tasks={"cars": {"weight": 3.0}},
    )  # fmt: skip
    assert allocate(problem).accuracy == pytest.approx(0.75 * 0.9 + 0.25 * 0.5)


def test_dominated_configurations_are_omitted() -> None:
    problem = a_problem(ENTRIES, CHAIN, slo_ms=110.0)
    batches = {u.key: [c.batch for c in u.configs] for u in needed(choices(problem)).all_units}
    # 55 ms: sure at 4 fits only with small, so 1 stays for large; fast at 4 fits with both.
    assert batches == {"find/small": [1], "find/large": [1], "read/fast": [4], "read/sure": [1, 4]}


def test_missing_devices_and_negative_demand_are_refused() -> None:
    nobody = allocate(a_problem(ENTRIES, CHAIN, devices=()))
    assert (nobody.feasible, nobody.replicas, nobody.binding) == (
        False, (), "devices: no usable worker; start one",
    )  # fmt: skip
    with pytest.raises(PlanError, match="demand is -1 queries/s; it must be 0 or more"):
        allocate(a_problem(ENTRIES, CHAIN, demand=-1.0))
    with pytest.raises(PlanError, match="no solver 'gurobi'; there are highs, cbc"):
        allocate(a_problem(ENTRIES, CHAIN, policy=with_options(PAPER, solver="gurobi")))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_solver_out_of_nodes_still_leads_to_a_plan(solver: str) -> None:
    problem = a_problem(
        ENTRIES, CHAIN, demand=130.0, devices=("cpu",) * 5,
        policy=with_options(PAPER, solver=solver, nodes=1),
    )  # fmt: skip
    plan = allocate(problem)
    assert check_allocation(plan, problem) == ()
    assert plan.replicas


# ---------------------------------------------------------------- the judge


PROBLEM = a_problem(ENTRIES, CHAIN, demand=30.0)
GOOD = allocate(PROBLEM)
FIND = Replicas(task="find", variant="large", batch=1, count=1)
READ = Replicas(task="read", variant="sure", batch=4, count=1)
FAST = Replicas(task="read", variant="fast", batch=1, count=1)
WRONG = [
    ({"replicas": (FIND, replace(READ, count=4))}, "uses 5 devices and there are 4"),
    ({"replicas": (FIND,)}, "read/sure gets traffic and has no replica"),
    ({"replicas": (FIND, replace(READ, batch=5))}, "read/sure was not profiled in batches of 5"),
    ({"replicas": (FIND, replace(READ, variant="ghost"))}, "read/ghost was not profiled"),
    ({"replicas": (FIND, replace(READ, count=0), FAST)}, "read/sure is listed with 0 replicas"),
    ({"replicas": (FIND, READ, READ)}, "read/sure is listed 2 times"),
    ({"replicas": (FIND, replace(READ, batch=1))}, None),
    ({"shares": (PathShare(("find/large", "read/sure"), 0.9),)}, "sum to 0.9 and 1 is served"),
    ({"shares": (PathShare(("read/sure",), 1.0),)}, "read/sure is no path from the root"),
    ({"served_share": 0.5}, "calls itself feasible and serves a share of 0.5"),
    ({"accuracy": 0.9}, "states an accuracy of 0.9 and its shares give 1"),
]


def test_a_good_plan_breaks_no_promise() -> None:
    assert check_allocation(GOOD, PROBLEM) == ()


@pytest.mark.parametrize(("change", "told"), WRONG, ids=lambda value: str(value)[:40])
def test_each_broken_promise_is_named(change: dict, told: str | None) -> None:
    broken = check_allocation(replace(GOOD, **change), PROBLEM)
    if told is None:
        assert broken == ()
    else:
        assert any(told in violation_text(violation) for violation in broken), broken


def test_the_judge_sees_load_latency_memory_slots_and_untied_branches() -> None:
    busy, few = replace(PROBLEM, demand_qps=80.0), (replace(FIND, count=2), READ)
    (broken,) = check_allocation(replace(GOOD, replicas=few), busy)
    able = pytest.approx(100.0)
    assert broken == Violation(Constraint.CAPACITY, ("read/sure",), 160.0, able)
    (broken,) = check_allocation(replace(GOOD, replicas=(FIND, READ)), replace(PROBLEM, slo_s=0.1))
    assert violation_text(broken).endswith("takes 60 ms of compute and may take 50 ms")
    big = a_problem([replace(e, memory_bytes=10**9) for e in ENTRIES], CHAIN, demand=30.0)
    broken = check_allocation(GOOD, replace(big, memory={"cpu": 10**6}))[0]
    assert violation_text(broken).endswith("takes 1000 MB and a worker of cpu has 1 MB")


def test_devices_alike_but_for_their_names_are_one_kind_and_the_plan_names_them() -> None:
    entries = [
        an_entry("read", "v", {1: 10.0}, device="cuda:0"),
        an_entry("read", "v", {1: 40.0}, device="cpu"),
    ]
    problem = a_problem(
        entries, {"read": ()}, demand=210.0, devices=("cpu", "cuda:0", "cuda:1", "cpu")
    )
    plan = allocate(problem)
    assert {(r.device, r.on, r.count) for r in plan.replicas} == {
        ("cuda", ("cuda:0", "cuda:1"), 2), ("cpu", ("cpu",), 1),
    }  # fmt: skip
    assert check_allocation(plan, problem) == ()


# ------------------------------------------------------------------ loki beyond the paper

TIGHT = {"slo_ms": 60.0, "devices": ("cpu",) * 20}  # 30 ms for batches: large and sure take 35


def test_loki_uses_the_fewest_devices_even_if_the_best_variants_miss_the_slo() -> None:
    paper = a_problem(ENTRIES, CHAIN, demand=20.0, **TIGHT)
    ours = replace(paper, policy=POLICIES["loki"].policy("ours", {"rate": "p50"}))
    published, plan = allocate(paper), allocate_within_slo(ours)
    assert (published.mode, plan.mode) == ("accuracy", "hardware")
    assert plan.accuracy == pytest.approx(published.accuracy)  # find/large with read/fast
    assert {each.key: each.count for each in plan.replicas} == {"find/large": 1, "read/fast": 1}
    assert check_allocation(plan, ours) == ()
    used = [
        allocate_within_slo(replace(ours, demand_qps=qps)).devices_used
        for qps in (20, 60, 120, 240)
    ]
    assert used == sorted(used)
    assert used[0] < used[-1] < 20


def test_loki_plans_as_the_paper_if_the_best_variants_meet_the_slo() -> None:
    paper = a_problem(ENTRIES, CHAIN, demand=20.0)
    assert replace(allocate_within_slo(paper), solved=None) == replace(
        allocate(paper), solved=None
    )  # fmt: skip


def with_least(problem: Problem, least: float) -> Problem:
    return replace(problem, policy=with_options(problem.policy, accuracy_least=least))


def test_load_is_shed_to_keep_accuracy_least() -> None:
    crowded = a_problem(ENTRIES, CHAIN, demand=200.0)
    free = allocate(crowded)
    assert free.accuracy is not None
    assert (free.mode, free.served_share) == ("accuracy", 1.0)
    least = free.accuracy + 0.05
    kept = allocate(with_least(crowded, least))
    assert check_allocation(kept, with_least(crowded, least)) == ()
    assert kept.accuracy is not None
    assert kept.accuracy >= least - 1e-6
    assert kept.served_share < 1.0
    assert not kept.feasible
    assert f"at an accuracy of {least:.6g} or more" in kept.binding
    assert "a lower accuracy_least" in kept.binding
    assert kept.nearest is not None
    assert kept.nearest.demand_qps is not None
    near = with_least(replace(crowded, demand_qps=kept.nearest.demand_qps), least)
    assert allocate(near).feasible


def test_unreachable_accuracy_least_is_refused_with_a_remedy() -> None:
    tight = with_least(a_problem(ENTRIES, CHAIN, demand=20.0, **TIGHT), 0.95)
    with pytest.raises(PlanError, match=r"accuracy_least is 0.95, but within 60 ms and 20 devices"):
        allocate(tight)


def test_too_few_devices_without_demand_are_counted_by_tasks_not_by_queries() -> None:
    """A drain that left three workers to four tasks said "3 devices cannot serve 0 queries/s"."""
    leaves = ("one", "two", "three")
    entries = [an_entry("split", "v", {1: 4.0}, 1.0, dict.fromkeys(leaves, 1.0))]
    entries += [an_entry(task, "v", {1: 4.0}) for task in leaves]
    problem = a_problem(
        entries, {"split": ("one", "two", "three"), "one": (), "two": (), "three": ()},
        demand=0.0, devices=("cpu",) * 3,
    )  # fmt: skip
    found = allocate(problem)
    assert (found.feasible, found.binding) == (
        False,
        "devices: 3 devices are too few: each of the 4 tasks needs one of its own; use 4 "
        "devices, or let tasks share them: cluster.tasks_per_device",
    )


def test_timed_out_solve_returns_the_incumbent_or_reports_that_none_exists() -> None:
    problem = a_problem(ENTRIES, CHAIN, demand=1e5, devices=("cpu",) * 10)
    ends: list[str] = []
    for stop_s in range(16):  # the clock advances at every reading
        wall = count(1.0)
        hurried = replace(problem, stop_s=float(stop_s), meter=lambda wall=wall: (0.0, next(wall)))
        try:
            plan = allocate(hurried)
        except PlanError as error:
            ends.append(str(error))
        else:
            assert check_allocation(plan, problem) == ()
            ends.append("hurried" if "no time was left to find" in plan.binding else "whole")
    assert list(dict.fromkeys(ends)) == [
        "policy 'loki-paper' found no plan within its time; raise its `solve_within`, or leave out "
        "variants", "hurried", "whole",
    ]  # fmt: skip
