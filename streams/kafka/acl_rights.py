"""Who may do what? The least rights of each role on a broker with ACLs, from its topics.

Write and Read bring Describe with them, on Kafka as here. Idempotent producers need no more than
Write (since Kafka 3.0). The control topics serve every pipeline of a broker, so rights on them
reach all pipelines: those who must not touch each other's plans need brokers of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass

from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    COMPLETIONS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
    work_topic,
)
from schemas.pipeline import Pipeline
from streams.topics import own_topics, physical, topics

READ, WRITE, DESCRIBE, CREATE, DELETE = "Read", "Write", "Describe", "Create", "Delete"
TOPIC, GROUP = "topic", "group"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One operation on one topic or group; ``prefixed``: on all whose names begin so."""

    operation: str
    resource: str
    name: str
    prefixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uses:
    """What a role does, with the topics' logical names and the groups' names within a pipeline."""

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()  # topics of which it only asks how far they are
    makes: bool = False  # every topic
    deletes: bool = False  # the pipeline's own topics and groups
    commits: tuple[str, ...] = ()  # groups whose offsets it reads and commits
    watches: tuple[str, ...] = ()  # groups whose offsets it only reads
    joins: tuple[str, ...] = ()  # groups of its own choice, by how they begin


def _ingress(pipeline: Pipeline) -> _Uses:
    first = work_topic(pipeline.root.name)
    return _Uses(
        writes=(first, OUTPUTS, REPORTS, DEAD_LETTERS),
        reads=(QUERIES, PLANS, COMPLETIONS, REPORTS),
        commits=("ingress",),
        watches=("egress",),
    )


def _worker(pipeline: Pipeline) -> _Uses:
    tasks = pipeline.tasks
    children = (work_topic(t.name) for t in tasks if t.name != pipeline.root.name)
    return _Uses(
        writes=(*children, OUTPUTS, REPORTS, DEAD_LETTERS, COMPLETIONS),
        reads=(*(work_topic(t.name) for t in tasks), PLANS, REPORTS),
        commits=("workers",),
    )


def _egress(_: Pipeline) -> _Uses:
    # It reads its results back, so that a restart gives no second answer.
    return _Uses(
        writes=(RESULTS, REPORTS, DEAD_LETTERS), reads=(OUTPUTS, RESULTS, PLANS, REPORTS),
        commits=("egress",),
    )  # fmt: skip


def _control(_: Pipeline) -> _Uses:
    return _Uses(
        writes=(PLANS, COMMAND_RESULTS), reads=(REPORTS, COMMANDS, PLANS, COMMAND_RESULTS),
        sizes=(QUERIES,), commits=("control",), watches=("ingress",),
    )  # fmt: skip


def _producer(_: Pipeline) -> _Uses:
    return _Uses(writes=(QUERIES,))


def _consumer(_: Pipeline) -> _Uses:
    return _Uses(reads=(RESULTS,), joins=("consumer",))


def _operator(_: Pipeline) -> _Uses:
    return _Uses(
        writes=(COMMANDS, QUERIES),
        reads=(PLANS, REPORTS, COMMAND_RESULTS, RESULTS, DEAD_LETTERS),
        makes=True,
        watches=("ingress", "workers", "egress", "control"),
    )


def _purger(_: Pipeline) -> _Uses:
    # It sees that nobody is at work any more, and takes the pipeline's records off shared topics.
    return _Uses(
        writes=(PLANS, COMMAND_RESULTS), reads=(PLANS, COMMAND_RESULTS, REPORTS), deletes=True
    )


ROLES: dict[str, Callable[[Pipeline], _Uses]] = {
    "ingress": _ingress,
    "worker": _worker,
    "egress": _egress,
    "control": _control,
    "producer": _producer,
    "consumer": _consumer,
    "operator": _operator,
    "purger": _purger,
}


def rights(pipeline: Pipeline, role: str) -> tuple[Right, ...]:
    """The least rights of a role, one of ``ROLES``; what it mainly does comes first."""
    uses = ROLES[role](pipeline)
    name = pipeline.name
    every = [topic.name for topic in topics(pipeline)]
    made = every if uses.makes else []
    deleted = own_topics(pipeline) if uses.deletes else ()
    disbanded = own_groups(pipeline) if uses.deletes else ()
    return (
        *(Right(WRITE, TOPIC, physical(name, t)) for t in uses.writes),
        *(Right(READ, TOPIC, physical(name, t)) for t in uses.reads),
        *(Right(DESCRIBE, TOPIC, physical(name, t)) for t in uses.sizes),
        *(Right(op, TOPIC, topic) for topic in made for op in (CREATE, DESCRIBE)),
        *(Right(op, TOPIC, topic) for topic in deleted for op in (DELETE, DESCRIBE)),
        *(Right(DELETE, GROUP, group) for group in disbanded),
        *(Right(READ, GROUP, f"{name}.{g}") for g in uses.commits),
        *(Right(DESCRIBE, GROUP, f"{name}.{g}") for g in uses.watches),
        *(Right(READ, GROUP, f"{name}.{g}", prefixed=True) for g in uses.joins),
    )


def own_groups(pipeline: Pipeline) -> tuple[str, ...]:
    """The groups whose offsets the pipeline's roles commit."""
    every = [group for uses in ROLES.values() for group in uses(pipeline).commits]
    return tuple(f"{pipeline.name}.{group}" for group in dict.fromkeys(every))
