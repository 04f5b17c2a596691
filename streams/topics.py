"""Which topics exist: names, partitions, retention, compaction and sizes in one table.

``TABLE`` is what topics are made from; docs/reference/topics.md shows it, and a test holds the two
together.
Nodes name topics logically ("queries", "work.read"); this module knows their names on the
broker. The control topics serve every pipeline; the others carry the pipeline's name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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
from schemas.pipeline import Pipeline, Task

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MAX_RECORD_BYTES = 8 * 1024 * 1024
COMPACTED_SEGMENT_MS = 10 * MINUTE_MS

SHARED = (PLANS, REPORTS, COMMANDS, COMMAND_RESULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """How a topic is made. ``partitions`` is a number, or the key of the pipeline file that has
    it; ``kept_ms`` None: forever. With ``compacted`` the newest record of each key is kept."""

    logical: str
    partitions: int | str
    kept_ms: int | None
    compacted: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """As the broker takes them."""
        policies = ("compact",) * self.compacted + ("delete",) * (self.kept_ms is not None)
        kept = {} if self.kept_ms is None else {"retention.ms": str(self.kept_ms)}
        return {
            "cleanup.policy": ",".join(policies),
            **kept,
            "segment.ms": str(self._segment_ms),
            "max.message.bytes": str(MAX_RECORD_BYTES),
        }

    @property
    def _segment_ms(self) -> int:
        # A segment is deleted or compacted whole, and not while it is written to.
        if self.compacted or self.kept_ms is None:
            return COMPACTED_SEGMENT_MS
        return max(MINUTE_MS, self.kept_ms // 4)


EVERY_TASK = work_topic("<task>")

# In the order in which topics are made. Work is kept for minutes only: an outage must not replay
# dead queries. Results and dead letters are read by people and other systems, so they stay longer.
# No limit by size: it would delete what nobody has read yet.
TABLE = (
    TopicRule(logical=PLANS, partitions=1, kept_ms=None, compacted=True),
    TopicRule(logical=REPORTS, partitions=1, kept_ms=2 * MINUTE_MS),
    TopicRule(logical=COMMANDS, partitions=1, kept_ms=DAY_MS),
    TopicRule(logical=COMMAND_RESULTS, partitions=1, kept_ms=DAY_MS, compacted=True),
    TopicRule(logical=QUERIES, partitions=4, kept_ms=HOUR_MS),
    TopicRule(logical=EVERY_TASK, partitions="slots", kept_ms=10 * MINUTE_MS),
    TopicRule(logical=COMPLETIONS, partitions="ingress", kept_ms=10 * MINUTE_MS),
    TopicRule(logical=OUTPUTS, partitions="egress_partitions", kept_ms=HOUR_MS),
    TopicRule(logical=RESULTS, partitions=4, kept_ms=HOUR_MS),
    TopicRule(logical=DEAD_LETTERS, partitions=1, kept_ms=7 * DAY_MS),
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is made: its name on the broker, partitions and broker settings."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


def physical(pipeline: str, logical: str) -> str:
    """The broker's name of a topic."""
    return f"headrace.{logical}" if logical in SHARED else f"{pipeline}.{logical}"


def logical(pipeline: str, name: str) -> str:
    """The name within Headrace of a topic of the broker."""
    return name.removeprefix(f"{pipeline}.").removeprefix("headrace.")


def own_topics(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of the topics that no other pipeline uses."""
    shared = {physical(pipeline.name, logical) for logical in SHARED}
    return tuple(topic.name for topic in topics(pipeline) if topic.name not in shared)


def topics(pipeline: Pipeline) -> tuple[Topic, ...]:
    """Every topic the pipeline needs, in the order they are made."""
    return tuple(topic for rule in TABLE for topic in _topics(rule, pipeline))


def _topics(rule: TopicRule, pipeline: Pipeline) -> Iterator[Topic]:
    if rule.logical == EVERY_TASK:
        for task in pipeline.tasks:
            name = physical(pipeline.name, work_topic(task.name))
            yield Topic(name, _partitions(rule, task), rule.settings)
        return
    name = physical(pipeline.name, rule.logical)
    yield Topic(name, _partitions(rule, pipeline), rule.settings)


def _partitions(rule: TopicRule, where: Pipeline | Task) -> int:
    named = rule.partitions
    return named if isinstance(named, int) else int(getattr(where, named))
