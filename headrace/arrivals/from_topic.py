"""Arrival times from the time stamps of a topic's records."""

from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from headrace.arrivals.arrival_processes import Times
from headrace.errors import ArrivalsError
from streams.kafka.admin.topic_admin import partitions
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_to_end


def recorded(kafka: KafkaConfig, topic: str) -> Times:
    """Return the seconds from a topic's first record to each record, ascending.

    Raises ``ArrivalsError`` if the topic does not exist, is empty or has no time stamps.
    """
    known = partitions(kafka)
    if topic not in known:
        raise ArrivalsError(
            f"there is no topic {topic!r} on the broker; name the input topic, PIPELINE.queries"
        )
    return arrival_times(topic, read_to_end(kafka, topic))


def arrival_times(topic: str, messages: list[Any]) -> Times:
    """Return the seconds from the earliest message to each message, ascending."""
    if not messages:
        raise ArrivalsError(f"topic {topic!r} has no records any more; raise its retention.ms")
    stamps = np.empty(len(messages))
    for at, message in enumerate(messages):
        kind, milliseconds = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            raise ArrivalsError(
                f"{topic}[{message.partition()}] offset {message.offset()} has no time stamp; "
                "its producer wrote an old message format; name a topic with CreateTime"
            )
        stamps[at] = milliseconds
    stamps.sort()
    times: Times = (stamps - stamps[0]) / 1e3
    return times
