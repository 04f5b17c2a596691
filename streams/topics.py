"""Topics: names, partitions, retention, compaction and sizes in one table.

Topics are created from ``TABLE``; docs/reference/topics.md shows it, and a test keeps the two
equal. Nodes use logical names ("queries", "work.read"); this module maps them to the broker's. All
pipelines share the control topics; the names of the others begin with the pipeline's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

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
from schemas.pipeline import Pipeline, Task

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MAX_RECORD_BYTES = 8 * 1024 * 1024
COMPACTED_SEGMENT_MS = 10 * MINUTE_MS
LEASE_MS = 2000  # the broker refuses an answer of an older lease

Place = tuple[str, int]  # a topic's name on the broker, and a slot

SHARED = (PLANS, REPORTS, COMMANDS, COMMAND_RESULTS)


class Stamps(Enum):
    """The source of the time stamps of a topic's records."""

    PRODUCER = "producer"
    BROKER = "broker"
    LEASE = "lease"  # the producer, with the time of its lease (streams/kafka/leases)


MOST_BYTES = "max.message.bytes"  # topic property
STAMPED_BY = "message.timestamp.type"  # topic property
TOO_OLD = "message.timestamp.before.max.ms"  # topic property, since Kafka 3.6
STAMP_SETTINGS: Mapping[Stamps, Mapping[str, str]] = {
    Stamps.PRODUCER: {},
    Stamps.BROKER: {STAMPED_BY: "LogAppendTime"},
    Stamps.LEASE: {STAMPED_BY: "CreateTime", TOO_OLD: str(LEASE_MS)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """The settings of a topic.

    ``partitions`` is a number, or the pipeline-file key that holds it; ``kept_ms`` None: forever.
    ``compacted``: the newest record of each key is kept. ``stamps``: who sets the records' times.
    """

    logical: str
    partitions: int | str
    kept_ms: int | None
    compacted: bool = False
    stamps: Stamps = Stamps.PRODUCER
    sessions: bool = False  # only if the pipeline's session plans are searched
    labels: bool = False  # only if the pipeline's answers are scored by labels

    def concerns(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline has the topic."""
        return (pipeline.sessions or not self.sessions) and (
            pipeline.labels is not None or not self.labels
        )

    @property
    def settings(self) -> dict[str, str]:
        """The broker's topic properties."""
        policies = ("compact",) * self.compacted + ("delete",) * (self.kept_ms is not None)
        kept = {} if self.kept_ms is None else {"retention.ms": str(self.kept_ms)}
        return {
            "cleanup.policy": ",".join(policies),
            **kept,
            "segment.ms": str(self._segment_ms),
            MOST_BYTES: str(MAX_RECORD_BYTES),
            **STAMP_SETTINGS[self.stamps],
        }

    @property
    def _segment_ms(self) -> int:
        # A segment is deleted or compacted as a whole, and only once it is closed.
        if self.compacted or self.kept_ms is None:
            return COMPACTED_SEGMENT_MS
        return max(MINUTE_MS, self.kept_ms // 4)


EVERY_TASK = work_topic("<task>")
DISPATCHED = waiting_topic("<task>")

# In order of creation. Work is retained for minutes only: after an outage, dead queries must not be
# replayed. Results and dead letters are retained longer, for people and other systems. No limit by
# size: it would delete unread records.
TABLE = (
    TopicRule(logical=PLANS, partitions=1, kept_ms=None, compacted=True),
    TopicRule(logical=REPORTS, partitions=1, kept_ms=2 * MINUTE_MS),
    TopicRule(logical=COMMANDS, partitions=1, kept_ms=DAY_MS),
    TopicRule(logical=COMMAND_RESULTS, partitions=1, kept_ms=DAY_MS, compacted=True),
    TopicRule(logical=QUERIES, partitions="input_partitions", kept_ms=HOUR_MS),
    TopicRule(logical=EVERY_TASK, partitions="slots", kept_ms=10 * MINUTE_MS),
    TopicRule(logical=DISPATCHED, partitions="dispatchers", kept_ms=10 * MINUTE_MS),
    TopicRule(logical=COMPLETIONS, partitions="completion_slots", kept_ms=10 * MINUTE_MS),
    TopicRule(
        logical=OUTPUTS, partitions="egress_partitions", kept_ms=HOUR_MS, stamps=Stamps.BROKER
    ),
    TopicRule(logical=LEASES, partitions=1, kept_ms=10 * MINUTE_MS, stamps=Stamps.BROKER),
    TopicRule(
        logical=RESULTS, partitions="results_partitions", kept_ms=HOUR_MS, stamps=Stamps.LEASE
    ),
    TopicRule(logical=DEAD_LETTERS, partitions=1, kept_ms=7 * DAY_MS),
    # In one partition, the first label of an id is first again when a restart reads it again.
    TopicRule(logical=LABELS, partitions=1, kept_ms=DAY_MS, labels=True),
    # These records are scored within seconds or not at all.
    TopicRule(logical=SHADOWS, partitions=1, kept_ms=10 * MINUTE_MS, labels=True),
    TopicRule(logical=ACCURACY, partitions=1, kept_ms=None, compacted=True, labels=True),
    TopicRule(logical=SESSIONS, partitions=1, kept_ms=None, compacted=True, sessions=True),
    TopicRule(logical=PROFILE_REQUESTS, partitions=8, kept_ms=HOUR_MS, sessions=True),
    TopicRule(
        logical=PROFILE_RESULTS, partitions=1, kept_ms=7 * DAY_MS, compacted=True, sessions=True
    ),
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create: its name on the broker, partitions and broker settings.

    ``key`` is what determines the partitions: an attribute of the pipeline or task; "": nothing.
    """

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    key: str = ""


# The keys of the pipeline file behind an attribute that determines partitions, if it is no key.
_KEYS = {
    "slots": "the task's `slots`",
    "dispatchers": "`cluster.dispatchers`",
    "completion_slots": "`cluster.ingress` or `cluster.dispatchers`",
}


def too_few(topic: Topic, there: int) -> tuple[str, str]:
    """Return the mistake and the remedy for a topic that has fewer partitions than it needs.

    Nothing adds partitions by itself: keys of other programs' records would change their partition.
    """
    has = f"{there} partition{'' if there == 1 else 's'}"
    mend = f"run `kafka-topics --alter --topic {topic.name} --partitions {topic.partitions}`"
    if topic.key:
        mend += f", or lower {_KEYS.get(topic.key, f'`{topic.key}`')} in the pipeline file"
    return f"topic {topic.name!r} has {has}, {topic.partitions} are needed", mend


def physical(pipeline: str, logical: str) -> str:
    """Return the broker's name of a logical topic."""
    return f"headrace.{logical}" if logical in SHARED else f"{pipeline}.{logical}"


def logical(pipeline: str, name: str) -> str:
    """Return the logical name of a broker's topic; the reverse of ``physical``."""
    return name.removeprefix(f"{pipeline}.").removeprefix("headrace.")


def own_topics(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the names of the topics that only this pipeline uses."""
    shared = {physical(pipeline.name, logical) for logical in SHARED}
    return tuple(topic.name for topic in topics(pipeline) if topic.name not in shared)


def topics(pipeline: Pipeline) -> tuple[Topic, ...]:
    """Return every topic that the pipeline needs, in order of creation."""
    return tuple(
        topic
        for rule in TABLE
        if rule.concerns(pipeline)
        for topic in _topics(_lasting(rule, pipeline), pipeline)
    )


def input_stamps(pipeline: Pipeline) -> Stamps:
    """Return the source of the input topic's time stamps, from which deadlines count."""
    return Stamps.BROKER if pipeline.deadline_clock == "broker" else Stamps.PRODUCER


def _lasting(rule: TopicRule, pipeline: Pipeline) -> TopicRule:
    """Return the rule with answers and labels retained for as long as they wait for each other."""
    if pipeline.labels is None or rule.kept_ms is None or rule.logical not in (RESULTS, LABELS):
        return rule
    return replace(rule, kept_ms=max(rule.kept_ms, int(pipeline.labels.within_s * 1e3)))


def _topics(rule: TopicRule, pipeline: Pipeline) -> Iterator[Topic]:
    if rule.logical == QUERIES:
        rule = replace(rule, stamps=input_stamps(pipeline))
    if rule.logical == EVERY_TASK:
        for task in pipeline.tasks:
            name = physical(pipeline.name, work_topic(task.name))
            yield _topic(name, rule, task)
        return
    if rule.logical == DISPATCHED:
        for task in pipeline.dispatched:
            name = physical(pipeline.name, waiting_topic(task.name))
            yield _topic(name, rule, pipeline)
        return
    name = physical(pipeline.name, rule.logical)
    yield _topic(name, rule, pipeline)


def _topic(name: str, rule: TopicRule, where: Pipeline | Task) -> Topic:
    named = rule.partitions
    if isinstance(named, int):
        return Topic(name, named, rule.settings)
    return Topic(name, int(getattr(where, named)), rule.settings, named)
