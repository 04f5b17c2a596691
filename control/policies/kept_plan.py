"""The quick plan of policies without one: the running variants, on the usable workers.

It serves a command on workers or settings, not on the policy, until the policy's own solve ends.
Not from a paper.
"""

from dataclasses import replace

from control.problem.problem import Allocation, Problem, Replicas


def kept_plan(running: Allocation, problem: Problem) -> Allocation | None:
    """Return the allocation with as many replicas as there are devices; None if a task would fall
    below one replica or its least number.

    Replicas are removed one at a time from the variant with most replicas of each kind of device.
    """
    if not running.replicas:
        return None
    least = {task.name: max(1, task.least) for task in problem.pipeline.tasks}
    counts = [each.count for each in running.replicas]
    for kind in dict.fromkeys(each.on for each in running.replicas):
        own = [at for at, each in enumerate(running.replicas) if each.on == kind]
        there = sum(running.replicas[own[0]].may_run_on(name) for name in problem.devices)
        while sum(counts[at] for at in own) > there:
            able = [at for at in own if _spare(running.replicas, counts, least, at)]
            if not able:
                return None
            counts[max(able, key=lambda at: (counts[at], -at))] -= 1
    replicas = tuple(
        replace(each, count=count)
        for each, count in zip(running.replicas, counts, strict=True)
        if count > 0
    )
    return Allocation(replicas, slo_s=running.slo_s)


def _spare(
    replicas: tuple[Replicas, ...], counts: list[int], least: dict[str, int], at: int
) -> bool:
    """Return whether a task has a replica here and more than its least number."""
    task = replicas[at].task
    of_task = sum(n for each, n in zip(replicas, counts, strict=True) if each.task == task)
    return counts[at] > 0 and of_task > least.get(task, 1)
