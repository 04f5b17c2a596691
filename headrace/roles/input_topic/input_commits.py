"""What ingress has committed of the input topic, at its start and at its end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import TopicPartition

from headrace.errors import InputMadeAnew
from operators.egress import highest, upto_of
from operators.input_place import InputPlaces, InputStart, note_of_base, start_of_input
from schemas.effects import OUTPUTS, QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.egress_recovery import commit_now, notes
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_admin import partitions_of
from streams.topics import physical


def input_start(
    kafka: KafkaConfig, pipeline: Pipeline, group: str, mine: Sequence[int], topic_id: str
) -> InputStart:
    """Return where ingress resumes (``operators/input_place.py``).

    New partitions and those that were made anew are committed before the first record is read, so
    that a partition is new only once. Raises ``BrokerError``.
    """
    topic, outputs = physical(pipeline.name, QUERIES), physical(pipeline.name, OUTPUTS)
    slots = range(partitions_of(kafka, outputs))
    closed = highest(
        upto_of(note)
        for _, note in notes(kafka, f"{pipeline.name}.egress", outputs, slots).values()
    )
    start = start_of_input(mine, notes(kafka, group, topic, mine), closed, topic_id)
    fresh = [
        TopicPartition(topic, p, 0, metadata=note_of_base(base, topic_id))
        for p, base in start.bases.items()
    ]
    if fresh:
        commit_now(kafka, group, fresh)
    return start


@contextmanager
def commits_end(kafka: KafkaConfig, group: str, topic: str, places: InputPlaces) -> Iterator[None]:
    """Commit how far the topic was read if the block ends with ``InputMadeAnew``.

    The broker deletes a topic's commits with it. Without them the next start could give queries of
    the new topic the places of old ones that egress has not closed yet. Raises ``BrokerError``.
    """
    try:
        yield
    except InputMadeAnew:
        ends = [(p, *places.committed(p)) for p in places.upto]
        read = [TopicPartition(topic, p, offset, metadata=note) for p, offset, note in ends]
        if read:
            commit_now(kafka, group, read)
        raise
