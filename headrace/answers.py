"""Which answer did a query get? The results topic, searched from its newest record back."""

import re
from typing import TYPE_CHECKING

from headrace.forms import Read, reader_of
from headrace.newest import newest_first
from headrace.terminal import Unsuccessful, waiting
from schemas.codec import CodecError
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer
from streams.kafka import KafkaConfig
from streams.topics import physical

if TYPE_CHECKING:
    from confluent_kafka import Message

_PLACE = re.compile(r"(\d+)-(\d+)")


def find_answer(kafka: KafkaConfig, pipeline: Pipeline, name: str) -> Answer:
    """The newest answer to the query of that id, or at that PARTITION-OFFSET of the input topic.

    Raises ``Unsuccessful`` where there is none, ``BrokerError`` where the topic cannot be read.
    """
    topic = physical(pipeline.name, RESULTS)
    read = reader_of(pipeline)
    looked_at = 0
    with waiting(f"searching {topic} for {name}"):
        for stretch in newest_first(kafka, topic):
            for message in stretch:
                answer = answer_of(message, name, read)
                if answer is not None:
                    return answer
            looked_at += len(stretch)
    raise Unsuccessful(
        f"no answer to {name!r} is among the {looked_at} on {topic}; check the id, or wait: "
        "a query is answered by its deadline and grace at the latest, and answers are kept for an "
        "hour"
    )


def answer_of(message: "Message", name: str, read: Read) -> Answer | None:
    """The answer in a record of the results topic if it is the one asked for."""
    place = _PLACE.fullmatch(name)
    by_key = message.key() == name.encode()
    if not by_key and place is None:
        return None
    try:
        record = read(message.value() or b"")
    except CodecError:
        return None  # somebody else's record
    origin = (str(record.origin.partition), str(record.origin.offset))
    matches = record.id == name or (place is not None and origin == place.groups())
    return record if matches else None
