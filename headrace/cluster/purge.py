"""``headrace down --purge``: delete everything that the broker holds of a pipeline.

That is its own topics, its consumer groups with their offsets, and its plans and command results
on the topics that pipelines share.
"""

import time
from dataclasses import dataclass

from confluent_kafka import KafkaError

from control.controller.command_queue import COMMAND_VALID_S
from headrace.client.topic_clients import Tail, decoded
from headrace.errors import Unsuccessful
from schemas.effects import COMMAND_RESULTS, COMMANDS, PLANS, REPORTS
from schemas.pipeline import Pipeline
from schemas.records import Command, Report
from streams.kafka.admin.acl_rights import own_groups
from streams.kafka.admin.topic_admin import partitions
from streams.kafka.kafka_client import asked, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import read_kept, read_to_end
from streams.topics import own_topics, physical

WAIT_S = 30.0
LISTEN_S = 1.0  # a node sends five reports in this time
EMPTY_WITHIN_S = 15.0  # longer than the control app's session timeout


@dataclass(frozen=True, slots=True)
class Purged:
    """The topics, groups and records deleted."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    records: int  # on the shared topics

    def as_json(self) -> dict[str, object]:
        """Return the deletions as JSON."""
        return {"topics": [*self.topics], "groups": [*self.groups], "records": self.records}

    def text(self, pipeline: str) -> str:
        """Return the deletions as a sentence."""
        if not (self.topics or self.groups or self.records):
            return f"nothing to purge: the broker has no data of {pipeline}"
        return (
            f"purged {pipeline}: {len(self.topics)} topics with their records, "
            f"{len(self.groups)} consumer groups, {self.records} plans and command results"
        )


def purge(kafka: KafkaConfig, pipeline: Pipeline) -> Purged:
    """Delete everything that the broker holds of a pipeline.

    Raises ``Unsuccessful`` while its nodes report, ``BrokerError`` if the broker refuses.
    """
    there = partitions(kafka)
    alive = _alive(kafka, pipeline) if physical(pipeline.name, REPORTS) in there else ()
    if alive:
        raise Unsuccessful(
            f"{pipeline.name} still runs somewhere ({', '.join(alive)} reported just now); "
            "end it there first"
        )
    topics = tuple(name for name in own_topics(pipeline) if name in there)
    # Plans and results first, so that a group that cannot be deleted does not keep them.
    records = _forget(kafka, pipeline, topics, there)
    return Purged(topics, _without_groups(kafka, pipeline), records)


def _alive(kafka: KafkaConfig, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the nodes that report within ``LISTEN_S``."""
    reports = Tail(kafka, physical(pipeline.name, REPORTS))
    nodes = set()
    try:
        until = time.monotonic() + LISTEN_S
        while time.monotonic() < until:
            for record in map(decoded, reports.take(0.1)):
                if isinstance(record, Report) and record.pipeline == pipeline.name:
                    nodes.add(record.node)
    finally:
        reports.close()
    return tuple(sorted(nodes))


def _without_groups(kafka: KafkaConfig, pipeline: Pipeline) -> tuple[str, ...]:
    names = own_groups(pipeline)
    until = time.monotonic() + EMPTY_WITHIN_S
    while True:
        outcomes = asked(kafka, lambda client: client.delete_consumer_groups([*names]), WAIT_S)
        left = [o for o in outcomes.values() if isinstance(o, KafkaError)]
        # Killed members count until their session times out.
        waits = any(each.code() == KafkaError.NON_EMPTY_GROUP for each in left)
        if not waits or time.monotonic() > until:
            break
        time.sleep(0.5)
    gone = []
    for name, outcome in outcomes.items():
        if not isinstance(outcome, KafkaError):
            gone.append(name)
        elif outcome.code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise BrokerError(f"group {name!r} cannot be deleted: {outcome.str()}")
    return tuple(gone)


def _forget(
    kafka: KafkaConfig, pipeline: Pipeline, topics: tuple[str, ...], there: dict[str, int]
) -> int:
    """Delete the topics and the records on shared topics; return the number of the latter."""
    if topics:
        outcomes = asked(kafka, lambda client: client.delete_topics([*topics]), WAIT_S)
        for name, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                raise BrokerError(f"topic {name!r} cannot be deleted: {outcome.str()}")
    shared = [physical(pipeline.name, topic) for topic in (PLANS, COMMAND_RESULTS)]
    keys = [(t, k) for t in shared if t in there for k in _keys(kafka, pipeline, t)]
    if {physical(pipeline.name, t) for t in (COMMANDS, COMMAND_RESULTS)} <= there.keys():
        results = physical(pipeline.name, COMMAND_RESULTS)
        keys += [(results, key) for key in _unanswered(kafka, pipeline)]
    client = producer(kafka)
    for topic, key in keys:
        # A tombstone: compaction removes the records of its key.
        client.produce(topic, None, key, partition=0)
        client.poll(0)
    if client.flush(WAIT_S):
        raise BrokerError("the broker did not confirm within 30 s that plans were deleted")
    return len(keys)


def _keys(kafka: KafkaConfig, pipeline: Pipeline, topic: str) -> list[bytes]:
    """Return the pipeline's keys on a shared topic, except deleted ones."""
    mine = f"{pipeline.name}/".encode()
    return [key for key in read_kept(kafka, topic, WAIT_S) if key.startswith(mine)]


def _unanswered(kafka: KafkaConfig, pipeline: Pipeline) -> list[bytes]:
    """Return the result keys of the pipeline's valid commands that have no result yet."""
    results = {m.key() for m in read_to_end(kafka, physical(pipeline.name, COMMAND_RESULTS))}
    since_ms = (time.time() - COMMAND_VALID_S) * 1e3
    messages = read_to_end(kafka, physical(pipeline.name, COMMANDS))
    fresh = [decoded(m.value() or b"") for m in messages if m.timestamp()[1] >= since_ms]
    mine = [c for c in fresh if isinstance(c, Command) and c.pipeline == pipeline.name]
    return [key for c in mine if (key := f"{pipeline.name}/{c.id}".encode()) not in results]
