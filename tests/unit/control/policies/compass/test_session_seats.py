"""The workers of tiers that a policy for sessions plans with."""

from dataclasses import replace

import pytest

from control.policies.compass.session_options import allocate
from control.problem.problem import Problem
from tests.session_world import TASKS, a_session_pipeline


def the_problem(workers: int, slots: int, most: int | None = None) -> Problem:
    pipeline = a_session_pipeline()
    tasks = tuple(replace(task, slots=slots, most=most) for task in pipeline.tasks)
    devices = tuple(f"{task}@depot" for task in TASKS for _ in range(workers))
    return Problem(
        pipeline=replace(pipeline, tasks=tasks), policy=pipeline.policies[0], slo_s=1.0,
        demand_qps=1.0, devices=devices,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "binding"),
    [
        (8, ""),
        # The control app ended with an error, and again after each restart.
        (9, "task 'scan' has 8 slots, so that 1 of its 9 workers serve no session; raise "
            "tasks.scan.slots"),
    ],
)  # fmt: skip
def test_every_worker_of_a_tier_gets_a_slot_and_those_beyond_are_left_out(
    workers: int, binding: str
) -> None:
    found = allocate(the_problem(workers=workers, slots=8))
    assert [each.count for each in found.replicas] == [8, 8]
    assert (found.feasible, found.binding) == (not binding, binding)


def test_workers_beyond_the_replicas_of_the_file_are_left_out() -> None:
    found = allocate(the_problem(workers=9, slots=4, most=4))
    assert [each.count for each in found.replicas] == [4, 4]
    assert found.feasible
