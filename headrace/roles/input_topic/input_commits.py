"""Ingress's commits of the input topic, at its start and at its end."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from headrace.errors import InputRecreated
from operators.egress.egress import highest, upto_of
from operators.input_place import NO_ENDS, InputPlaces, InputStart, commit_at, start_of_input
from schemas.effects import OUTPUTS, QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.egress_recovery import WAIT_S, by_slot, commit_now, commits, notes_by_slot
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.offset_ledger import NO_EPOCH
from streams.kafka.topic_contents import log_offsets
from streams.topics import physical


def input_start(
    kafka: KafkaConfig,
    pipeline: Pipeline,
    group: str,
    mine: Sequence[int],
    topic_id: str,
    *,
    source: KafkaConfig | None = None,
    first: int = 0,
) -> InputStart:
    """Return where ingress resumes (``operators/input_place.py``), by partition of its topic.

    The input lies on ``source``, if that is not the central broker ``kafka``; its partition ``p``
    is called ``first + p`` in egress' notes.

    New, recreated and truncated partitions are committed before the first record is read, so that
    each counts as such only once. Raises ``BrokerError``.
    """
    topic, outputs = physical(pipeline.name, QUERIES), physical(pipeline.name, OUTPUTS)
    slots = range(partitions_of(kafka, outputs))
    noted = highest(
        upto_of(note)
        for _, note in notes_by_slot(kafka, f"{pipeline.name}.egress", outputs, slots).values()
    )
    closed = {p - first: place for p, place in noted.items()}
    source = source or kafka
    found = commits(source, group, topic, mine)
    epochs = {p.partition: p.leader_epoch for p in found if p.leader_epoch is not None}
    ends = _ends(source, topic, epochs) if epochs and closed else NO_ENDS
    start = start_of_input(mine, by_slot(found), closed, topic_id, ends)
    fresh = []
    for p, place in start.fresh.items():
        offset, note = commit_at(place, topic_id)
        epoch = epochs.get(p, NO_EPOCH) if offset else NO_EPOCH
        fresh.append(TopicPartition(topic, p, offset, note, leader_epoch=epoch))
    if fresh:
        commit_now(source, group, fresh)
    return start


def _ends(kafka: KafkaConfig, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the end offsets of partitions; raise ``BrokerError``."""
    reader = consumer(kafka, "headrace.reader")
    try:
        places = [TopicPartition(topic, p) for p in partitions]
        return {p: end for (_, p), end in log_offsets(reader, places, OFFSET_END, WAIT_S).items()}
    except KafkaException as error:
        raise BrokerError(f"the end of {topic!r} cannot be read: {error.args[0].str()}") from error
    finally:
        reader.close()


@contextmanager
def commits_end(
    kafka: KafkaConfig, group: str, topic: str, places: InputPlaces, first: int = 0
) -> Iterator[None]:
    """Commit how far the topic was read if the block ends with ``InputRecreated``; its partition
    ``p`` is called ``first + p`` in ``places``.

    The broker deletes a topic's commits with it. Without them the next start could give queries of
    the new topic the places of old ones that egress has not closed yet. Raises ``BrokerError``.
    """
    try:
        yield
    except InputRecreated:
        ends = [(p - first, *places.committed(p)) for p in places.upto]
        read = [TopicPartition(topic, p, offset, metadata=note) for p, offset, note in ends]
        if read:
            commit_now(kafka, group, read)
        raise
