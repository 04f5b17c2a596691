"""ACLs: the least rights of each role, derived from its topics.

Write and Read imply Describe, as in Kafka. Idempotent producers need only Write (since Kafka 3.0).
All pipelines of a broker share the control topics, so rights on them reach every pipeline:
pipelines that must not touch each other's plans need separate brokers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from schemas.effects import (
    ACCURACY,
    COMMAND_RESULTS,
    COMMANDS,
    COMPLETIONS,
    DEAD_LETTERS,
    LABELS,
    LEASES,
    OUTPUTS,
    PLANS,
    PROFILE_REQUESTS,
    PROFILE_RESULTS,
    QUERIES,
    REPORTS,
    RESULTS,
    SESSIONS,
    SHADOWS,
    waiting_topic,
    work_topic,
)
from schemas.pipeline import Pipeline
from streams.topics import Stamps, input_stamps, own_topics, physical, topics

READ, WRITE, DESCRIBE, CREATE, DELETE = "Read", "Write", "Describe", "Create", "Delete"
DESCRIBE_CONFIGS = "DescribeConfigs"  # without it a role runs, but logs that it cannot check
TOPIC, GROUP, TRANSACTION = "topic", "group", "transactional-id"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One operation on a topic, group or transactional id; ``prefixed``: on all whose names begin
    with ``name``."""

    operation: str
    resource: str
    name: str
    prefixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uses:
    """The operations of a role, with logical topic names and group names within a pipeline."""

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()  # topics of which only the offsets are read
    checks: tuple[str, ...] = ()  # topics of which the settings are read
    makes: bool = False  # creates every topic
    deletes: bool = False  # deletes the pipeline's own topics and groups
    commits: tuple[str, ...] = ()  # groups whose offsets it reads and commits
    watches: tuple[str, ...] = ()  # groups whose offsets it only reads
    joins: tuple[str, ...] = ()  # prefixes of the groups that it may choose
    transacts: tuple[str, ...] = ()  # prefixes of its transactional ids


def _ingress(pipeline: Pipeline) -> _Uses:
    own = (work_topic(pipeline.root.name), OUTPUTS, DEAD_LETTERS)
    stamped = (QUERIES,) if input_stamps(pipeline) is Stamps.BROKER else ()
    return _Uses(
        writes=(*own, REPORTS),
        reads=(QUERIES, PLANS, COMPLETIONS, REPORTS),
        checks=(*own, *stamped),
        commits=("ingress",),
        watches=("egress",),
    )


def _dispatcher(pipeline: Pipeline) -> _Uses:
    tasks = [task.name for task in pipeline.dispatched]
    if not tasks:
        return _Uses()
    own = (*map(work_topic, tasks), OUTPUTS, DEAD_LETTERS)
    return _Uses(
        writes=(*own, REPORTS),
        reads=(*map(waiting_topic, tasks), PLANS, COMPLETIONS, REPORTS),
        checks=own,
        commits=("dispatchers",),
    )


def _worker(pipeline: Pipeline) -> _Uses:
    tasks = pipeline.tasks
    children = (work_topic(t.name) for t in tasks if t.name != pipeline.root.name)
    shadows = (SHADOWS,) if pipeline.labels else ()
    waiting = (waiting_topic(task.name) for task in pipeline.dispatched)
    own = (*children, *waiting, OUTPUTS, DEAD_LETTERS, *shadows)
    return _Uses(
        writes=(*own, COMPLETIONS, REPORTS),
        reads=(*(work_topic(t.name) for t in tasks), PLANS, REPORTS),
        checks=own,
        commits=("workers",),
    )


def _egress(_: Pipeline) -> _Uses:
    # Egress reads its results back, so that a restart sends no second answer.
    own = (RESULTS, DEAD_LETTERS)
    return _Uses(
        writes=(*own, LEASES, REPORTS),
        reads=(OUTPUTS, RESULTS, LEASES, PLANS, REPORTS),
        checks=own,
        commits=("egress",),
        transacts=("egress.",),  # streams/kafka/leases/write_barrier.py
    )


def _control(pipeline: Pipeline) -> _Uses:
    sessions = (SESSIONS,) if pipeline.sessions else ()
    asks, profiles = ((PROFILE_REQUESTS,), (PROFILE_RESULTS,)) if sessions else ((), ())
    return _Uses(
        writes=(PLANS, COMMAND_RESULTS, *sessions, *asks),
        reads=(REPORTS, COMMANDS, PLANS, COMMAND_RESULTS, *sessions, *profiles),
        sizes=(QUERIES,), commits=("control",), watches=("ingress",),
    )  # fmt: skip


def _producer(pipeline: Pipeline) -> _Uses:
    return _Uses(writes=(QUERIES, *((LABELS,) if pipeline.labels else ())))


def _consumer(_: Pipeline) -> _Uses:
    return _Uses(reads=(RESULTS,), joins=("consumer",))


def _gateway(_: Pipeline) -> _Uses:
    return _Uses(writes=(QUERIES,), reads=(RESULTS, PLANS))


def _dashboard(pipeline: Pipeline) -> _Uses:
    return _Uses(
        reads=(
            *(PLANS, REPORTS, COMMAND_RESULTS, RESULTS),
            *((SESSIONS,) if pipeline.sessions else ()),
            *((ACCURACY,) if pipeline.labels else ()),
        ),
        sizes=tuple(work_topic(task.name) for task in pipeline.tasks),
        watches=("workers",),
    )


def _profiler(pipeline: Pipeline) -> _Uses:
    if not pipeline.sessions:
        return _Uses()
    # It reads its results back, so that a restart runs nothing twice, and the inputs of sessions.
    inputs = (QUERIES, LABELS) if pipeline.labels else ()
    return _Uses(
        writes=(PROFILE_RESULTS,), reads=(PROFILE_REQUESTS, PROFILE_RESULTS, *inputs),
        commits=("profilers",),
    )  # fmt: skip


def _scorer(pipeline: Pipeline) -> _Uses:
    if pipeline.labels is None:
        return _Uses()
    # It reads back what it counted, so that a restart counts nothing twice.
    return _Uses(
        writes=(ACCURACY, REPORTS, DEAD_LETTERS),
        reads=(RESULTS, LABELS, SHADOWS, ACCURACY, PLANS, REPORTS),
        commits=("scorer",),
    )


def _operator(pipeline: Pipeline) -> _Uses:
    searches = pipeline.sessions
    return _Uses(
        writes=(COMMANDS, QUERIES, *((PROFILE_REQUESTS,) if searches else ())),
        reads=(
            # Queries: `headrace simulate` replays their time stamps as arrivals.
            *(PLANS, REPORTS, COMMAND_RESULTS, QUERIES, RESULTS, DEAD_LETTERS),
            *((PROFILE_RESULTS, SESSIONS) if searches else ()),
            *((ACCURACY, LABELS) if pipeline.labels else ()),
        ),
        makes=True,
        watches=("ingress", "workers", "egress", "control"),
    )


def _purger(_: Pipeline) -> _Uses:
    # It checks that no role is running and deletes the pipeline's records from shared topics.
    return _Uses(
        writes=(PLANS, COMMAND_RESULTS), reads=(PLANS, COMMAND_RESULTS, REPORTS), deletes=True
    )


ROLES: dict[str, Callable[[Pipeline], _Uses]] = {
    "ingress": _ingress,
    "dispatcher": _dispatcher,
    "worker": _worker,
    "egress": _egress,
    "control": _control,
    "gateway": _gateway,
    "dashboard": _dashboard,
    "profiler": _profiler,
    "scorer": _scorer,
    "producer": _producer,
    "consumer": _consumer,
    "operator": _operator,
    "purger": _purger,
}


def rights(pipeline: Pipeline, role: str) -> tuple[Right, ...]:
    """Return the least rights of a role, one of ``ROLES``; its main operations come first."""
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
        *(Right(DESCRIBE_CONFIGS, TOPIC, physical(name, t)) for t in uses.checks),
        *(Right(op, TOPIC, topic) for topic in made for op in (CREATE, DESCRIBE)),
        *(Right(op, TOPIC, topic) for topic in deleted for op in (DELETE, DESCRIBE)),
        *(Right(DELETE, GROUP, group) for group in disbanded),
        *(Right(READ, GROUP, f"{name}.{g}") for g in uses.commits),
        *(Right(DESCRIBE, GROUP, f"{name}.{g}") for g in uses.watches),
        *(Right(READ, GROUP, f"{name}.{g}", prefixed=True) for g in uses.joins),
        *(Right(WRITE, TRANSACTION, f"{name}.{t}", prefixed=True) for t in uses.transacts),
    )


def own_groups(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the groups whose offsets the pipeline's roles commit."""
    every = [group for uses in ROLES.values() for group in uses(pipeline).commits]
    return tuple(f"{pipeline.name}.{group}" for group in dict.fromkeys(every))
