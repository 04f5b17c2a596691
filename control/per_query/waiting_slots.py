"""The dispatcher of an inner task that gets an item, and the partition for its completion.

Several dispatchers of a task share its items by the query's position on the input topic. All items
of one query thus wait at one dispatcher, which every sender can compute. The completions topic has
a partition for each ingress, then one for each dispatcher of each inner task.
"""

from schemas.pipeline import Pipeline
from schemas.records import Origin


def waiting_slot(origin: Origin, dispatchers: int) -> int:
    """Return the partition of a waiting topic, and so the dispatcher, of a query's items."""
    return (origin.partition + origin.offset) % dispatchers


def completion_slot(pipeline: Pipeline, task: str, origin: Origin) -> int:
    """Return the partition of the completions topic that the dispatcher of an item reads."""
    first = first_completion_slot(pipeline, task)
    if first is None:
        return origin.partition % pipeline.ingress
    return first + waiting_slot(origin, pipeline.dispatchers)


def first_completion_slot(pipeline: Pipeline, task: str) -> int | None:
    """Return the completions partition of a task's first dispatcher; None for tasks without one."""
    names = [each.name for each in pipeline.dispatched]
    if task not in names:
        return None
    return pipeline.ingress + names.index(task) * pipeline.dispatchers
