"""Warm up a broker that has just started, so that measurements begin in a steady state.

Java first loads and interprets code, then compiles hot methods, on the cores that it shares with
the roles. The first record takes 50 to 90 ms; at twelve queries a second, latencies drift for
minutes.
"""

import time
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition

from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import watermarks
from streams.topics import Topic

TOPIC = "headrace.warm-up"
PARTITIONS = 4
COMMIT_EVERY = 10
PATIENCE_S = 1.0


def warm_up_broker(kafka: KafkaConfig, seconds: float) -> list[float]:
    """Send single records through a separate topic for ``seconds``; return how long each took.

    A record's time in seconds is from its production to its receipt. Raises ``BrokerError``.
    """
    ensure_topics(kafka, [Topic(TOPIC, PARTITIONS)])
    writer, reader = producer(kafka), consumer(kafka, TOPIC)
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    # Read from the end, so that records of an earlier warm-up are not counted.
    ends = (watermarks(reader, place)[1] for place in places)
    reader.assign([TopicPartition(TOPIC, p, end) for p, end in enumerate(ends)])
    took_s: list[float] = []
    until_s = time.monotonic() + seconds
    try:
        while (began_s := time.monotonic()) < until_s:
            writer.produce(TOPIC, b"", partition=len(took_s) % PARTITIONS)
            writer.poll(0)
            message = reader.poll(PATIENCE_S)
            took_s.append(time.monotonic() - began_s)
            whole = message is not None and message.error() is None
            if whole and len(took_s) % COMMIT_EVERY == 0:
                reader.commit(message, asynchronous=True)
        read = [place for place in reader.position(places) if place.offset >= 0]
        with suppress(KafkaException):  # a group's coordinator may come later than the broker
            reader.commit(offsets=read, asynchronous=False)
    finally:
        writer.flush(PATIENCE_S)
        writer.close()
        reader.close()
    return took_s
