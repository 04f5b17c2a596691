"""control/policies/static.py: replicas from the file or in proportion to load."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.checks.allocation_check import check_allocation
from control.checks.violations import Constraint, Violation
from control.policies.replica_bounds import bounded
from control.policies.static import allocate, divide
from control.problem.problem import Allocation, PlanError, Problem, Replicas
from schemas.pipeline import Pipeline, Policy
from tests.allocation_world import a_problem as of_entries
from tests.allocation_world import an_entry
from tests.control_world import a_pipeline, a_profile

SAID_NOTHING = {
    "locate": {"net": None},
    "read": {"forest": None, "vit": None},
}


def a_problem(
    workers: int, pipeline: Pipeline | None = None, policy: Policy | None = None, **more: object
) -> Problem:
    return Problem(
        pipeline=pipeline or a_pipeline(),
        policy=policy or Policy(name="static"),
        slo_s=0.3,
        demand_qps=10.0,
        devices=("cpu",) * workers,
        **more,  # type: ignore[arg-type]
    )


def counts(allocation: Allocation) -> dict[str, int]:
    return {each.key: each.count for each in allocation.replicas}


def test_replicas_and_batch_are_the_variants_own() -> None:
    assert allocate(a_problem(5)) == Allocation(
        (
            Replicas(task="locate", variant="net", batch=4, count=1),
            Replicas(task="read", variant="forest", batch=4, count=2),
        )
    )


def test_a_policy_overrides_replicas_and_batch() -> None:
    policy = Policy(name="p", replicas={"locate/net": 1, "read/vit": 3}, batch={"read/vit": 2})
    assert allocate(a_problem(4, policy=policy)).replicas == (
        Replicas(task="locate", variant="net", batch=4, count=1),
        Replicas(task="read", variant="vit", batch=2, count=3),
    )


def test_unspecified_replicas_are_shared_by_load_among_the_most_accurate() -> None:
    # A query is 1 item at 100/s for locate and 5 at 200/s for read/vit: loads 10 ms and 25 ms.
    problem = a_problem(7, a_pipeline(**SAID_NOTHING), profile=a_profile())
    assert counts(allocate(problem)) == {"locate/net": 2, "read/vit": 5}


def test_without_a_profile_the_first_variants_share_equally() -> None:
    problem = a_problem(6, a_pipeline(**SAID_NOTHING))
    assert counts(allocate(problem)) == {"locate/net": 3, "read/forest": 3}


def test_an_unmeasured_variant_is_no_candidate_and_an_unmeasured_load_is_like_any_other() -> None:
    profile = a_profile()
    problem = a_problem(
        6,
        a_pipeline(**SAID_NOTHING),
        profile=replace(profile, entries=profile.entries[:2]),
    )
    # Loads are 10 ms for locate and 5 ms for read/forest.
    assert counts(allocate(problem)) == {"locate/net": 4, "read/forest": 2}
    without_fan_out = replace(problem, profile=replace(profile, entries=profile.entries[1:]))
    assert counts(allocate(without_fan_out)) == {"locate/net": 3, "read/vit": 3}


def test_a_named_tasks_fan_out_counts_for_the_others() -> None:
    policy = Policy(name="p", replicas={"locate/net": 2})
    problem = a_problem(6, a_pipeline(**SAID_NOTHING), policy, profile=a_profile())
    assert counts(allocate(problem)) == {"locate/net": 2, "read/vit": 4}


def test_task_without_replicas_takes_the_remaining_workers() -> None:
    policy = Policy(name="p", replicas={"read/forest": 2})
    problem = a_problem(5, a_pipeline(**SAID_NOTHING), policy)
    assert counts(allocate(problem)) == {"locate/net": 3, "read/forest": 2}


def test_with_too_few_workers_every_task_keeps_one() -> None:
    policy = Policy(name="wide", replicas={"locate/net": 2, "read/forest": 6, "read/vit": 2})
    allocation = allocate(a_problem(4, policy=policy))
    assert counts(allocation) == {"locate/net": 1, "read/forest": 2, "read/vit": 1}
    assert not allocation.feasible
    assert allocation.binding == (
        "policy 'wide' asks for 10 workers and 4 can be used; start 6 more or lower its replicas"
    )


def test_without_workers_nothing_runs() -> None:
    assert allocate(a_problem(0)).replicas == ()


def test_more_replicas_than_slots_are_refused() -> None:
    pipeline = a_pipeline(read={"forest": 3}, slots=2)
    with pytest.raises(PlanError, match="3 replicas of task 'read', which has 2 slots"):
        allocate(a_problem(9, pipeline))


def test_a_variant_that_a_worker_has_no_memory_for_is_refused_where_it_is_named() -> None:
    profile = a_profile()
    entries = tuple(
        replace(entry, memory_bytes=10**9 if entry.variant == "vit" else 10**6)
        for entry in profile.entries
    )
    tight = {"profile": replace(profile, entries=entries), "memory": {"cpu": 10**8}}
    named = Policy(name="static", replicas={"locate/net": 1, "read/vit": 1})
    with pytest.raises(PlanError, match="read/vit takes 1000 MB and a worker of cpu has 100 MB"):
        allocate(a_problem(3, policy=named, **tight))
    silent = a_problem(3, a_pipeline(**SAID_NOTHING), **tight)
    assert counts(allocate(silent)).keys() == {"locate/net", "read/forest"}


@pytest.mark.parametrize("devices", [("cpu", "gpu"), ("gpu", "cpu")])
def test_the_memory_of_a_variant_is_that_on_the_workers_own_device(devices: Sequence[str]) -> None:
    entries = [
        an_entry("read", "v", {1: 5.0}, device=device, memory=memory)
        for device, memory in (("cpu", 10**6), ("gpu", 10**9))
    ]
    problem = of_entries(
        entries, {"read": ()}, devices=devices, policy=Policy(name="static"),
        memory={"cpu": 10**8, "gpu": 10**10},
    )  # fmt: skip
    plan = allocate(problem)
    assert (plan.devices_used, check_allocation(plan, problem)) == (2, ())
    (broken,) = check_allocation(plan, replace(problem, memory={"cpu": 10**8, "gpu": 10**8}))
    assert broken == Violation(Constraint.MEMORY, ("read/v", "gpu"), 10**9, 10**8)


def test_replicas_of_an_unknown_variant_are_refused() -> None:
    policy = Policy(name="p", replicas={"read/vti": 1})
    with pytest.raises(PlanError, match="names 'read/vti', but the pipeline has only locate/net"):
        allocate(a_problem(3, policy=policy))


@given(
    weights=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6),
    total=st.integers(0, 40),
    cap=st.integers(1, 20),
)
def test_division_gives_everything_out_within_the_caps(
    weights: list[float], total: int, cap: int
) -> None:
    names = {str(i): weight for i, weight in enumerate(weights)}
    given_out = divide(total, names, dict.fromkeys(names, cap), {})
    assert sum(given_out.values()) == min(total, cap * len(names))
    assert max(given_out.values()) <= cap
    for one in names:
        for other in names:
            if names[one] > names[other]:
                assert given_out[one] >= given_out[other]


def test_more_replicas_than_the_file_permits_are_refused_by_the_name_of_the_bound() -> None:
    pipeline = a_pipeline(read={"forest": 3})
    tasks = tuple(replace(task, most=2) for task in pipeline.tasks)
    problem = bounded(a_problem(4, replace(pipeline, tasks=tasks)))
    with pytest.raises(PlanError, match=r"which may have 2 at most; raise its `replicas\.most`"):
        allocate(problem)


@given(workers=st.integers(0, 20), slots=st.integers(1, 8))
def test_no_allocation_exceeds_workers_or_slots(workers: int, slots: int) -> None:
    problem = a_problem(workers, a_pipeline(**SAID_NOTHING, slots=slots), profile=a_profile())
    found = counts(allocate(problem))
    assert sum(found.values()) <= workers
    assert all(count <= slots for count in found.values())
    assert len(found) == min(workers, 2)
    assert allocate(replace(problem, demand_qps=99.0)) == allocate(problem)
