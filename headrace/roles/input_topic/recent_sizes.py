"""Read back the sizes of a pipeline's last queries, for an ingress that starts."""

import time
from contextlib import suppress

from confluent_kafka import Message

from headrace.client.newest_records import newest_first
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from schemas.records import Query
from streams.codecs.wire import Fetched, decoder
from streams.kafka.kafka_client import read_headers
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

STRETCH = 250  # records of a partition per read
WITHIN_S = 0.3  # queries wait meanwhile; large payloads are read for no longer
WAIT_S = 2.0  # for a partition that cannot be read


def recent_sizes(kafka: KafkaConfig, pipeline: Pipeline, most: int) -> list[int]:
    """Return the sizes of up to ``most`` of the last queries on the input topic, oldest first.

    Fewer if the topic cannot be read, for example if a batch of it cannot be decompressed: ingress
    can do without them, and reads on after that batch.
    """
    decode = decoder(pipeline, QUERIES)
    until = time.monotonic() + WITHIN_S
    newest: list[int] = []
    with suppress(BrokerError):
        for messages in newest_first(kafka, physical(pipeline.name, QUERIES), STRETCH, WAIT_S):
            records = [decode(fetched(message)) for message in messages]
            newest += [record.size for record in records if isinstance(record, Query)]
            if len(newest) >= most or time.monotonic() > until:
                break
    return newest[:most][::-1]


def fetched(message: Message) -> Fetched:
    """Return a client's message in the form that the decoders take."""
    headers, fault = read_headers(message)
    return Fetched(
        topic=message.topic() or "", slot=message.partition() or 0, offset=message.offset() or 0,
        at_s=0.0, key=message.key(), value=message.value(), headers=headers, fault=fault,
    )  # fmt: skip
