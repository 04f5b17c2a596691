"""Bounds on the replicas of a task (`replicas: {least, most}`), under every policy.

``most`` is a limit on slots, which every planner keeps. Planners that support ``least`` plan with
it; for the others, unused devices are added to the tasks that have too few. If the devices that can
run a task are fewer than its ``least``, the plan serves as much as without it, and names the task.
"""

from dataclasses import replace

from control.problem.problem import Allocation, Problem, Replicas
from schemas.pipeline import Task


def bounded(problem: Problem) -> Problem:
    """Return the problem with ``most`` in the tasks' slots.

    If there are fewer devices than the sum of the tasks' ``least``, no task has a least number.
    """
    pipeline = problem.pipeline
    enough = sum(task.least for task in pipeline.tasks) <= len(problem.devices)
    tasks = tuple(_bounded(task, enough=enough) for task in pipeline.tasks)
    if tasks == pipeline.tasks:
        return problem
    return replace(problem, pipeline=replace(pipeline, tasks=tasks))


def _bounded(task: Task, *, enough: bool) -> Task:
    slots = task.slots if task.most is None else min(task.slots, task.most)
    return replace(task, slots=slots, least=task.least if enough else 1)


def without_least(problem: Problem) -> Problem:
    """Return the problem without least numbers of replicas."""
    tasks = tuple(replace(task, least=1) for task in problem.pipeline.tasks)
    if tasks == problem.pipeline.tasks:
        return problem
    return replace(problem, pipeline=replace(problem.pipeline, tasks=tasks))


def topped_up(plan: Allocation, problem: Problem) -> Allocation:
    """Return the plan with the least replicas of each task, as far as there are unused devices.

    If there are too few, the plan is infeasible and ``binding`` names the task.
    """
    for task in problem.pipeline.tasks:
        missing = task.least - _count(plan, task)
        most = max(_of(plan, task), key=lambda each: each.count, default=None)
        if missing <= 0 or task.least == 1:  # a branch without queries needs none
            continue
        added = 0 if most is None else min(missing, _left_over(plan, problem, most))
        if most is not None:
            more = replace(most, count=most.count + added)
            replicas = tuple(more if each is most else each for each in plan.replicas)
            plan = replace(plan, replicas=replicas)
        if added < missing:
            plan = replace(plan, feasible=False, binding=plan.binding or _too_few(plan, task))
    return plan


def short_of(problem: Problem) -> str:
    """Return why the devices do not suffice for the tasks' least replicas, or ""."""
    least, there = sum(task.least for task in problem.pipeline.tasks), len(problem.devices)
    if least <= max(there, len(problem.pipeline.tasks)):
        return ""
    return (
        f"devices: the tasks need at least {least} replicas and {there} workers can be used; start "
        "more workers or lower replicas.least"
    )


def _of(plan: Allocation, task: Task) -> list[Replicas]:
    return [each for each in plan.replicas if each.task == task.name]


def _count(plan: Allocation, task: Task) -> int:
    return sum(each.count for each in _of(plan, task))


def _left_over(plan: Allocation, problem: Problem, like: Replicas) -> int:
    """Return the number of devices without a variant on which ``like`` may run."""
    used = sum(each.count for each in plan.replicas if each.on == like.on)
    return max(0, sum(like.may_run_on(device) for device in problem.devices) - used)


def _too_few(plan: Allocation, task: Task) -> str:
    return (
        f"devices: task {task.name!r} has {_count(plan, task)} of at least {task.least} replicas; "
        "start more workers or lower replicas.least"
    )
