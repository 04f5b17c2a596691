"""Warm up a broker that has just started, so that measurements begin in a steady state.

Java first interprets, then compiles hot code, on the cores that the roles share. At twelve
queries a second that takes minutes, in which latencies drift.
"""

import time

from confluent_kafka import TopicPartition

from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_admin import ensure_topics
from streams.topics import Topic

TOPIC = "headrace.warm-up"
PARTITIONS = 4
COMMIT_EVERY = 10
PATIENCE_S = 1.0


def warm_up(kafka: KafkaConfig, seconds: float) -> list[float]:
    """Send single records through a separate topic for ``seconds``; return how long each took.

    A record's time in seconds is from its production to its receipt.
    """
    ensure_topics(kafka, [Topic(TOPIC, PARTITIONS)])
    writer, reader = producer(kafka), consumer(kafka, TOPIC)
    reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
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
    finally:
        writer.flush(PATIENCE_S)
        writer.close()
        reader.close()
    return took_s
