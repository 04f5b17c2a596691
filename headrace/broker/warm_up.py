"""A broker that has just started is slow and gets faster with what it handles.

Java first interprets, and then compiles what runs often, on the cores that everybody else needs.
At twelve queries a second that takes minutes, in which nothing takes as long as it did before.
"""

import time

from confluent_kafka import TopicPartition

from streams.kafka.kafka_client import KafkaConfig, consumer, ensure_topics, producer
from streams.topics import Topic

TOPIC = "headrace.warm-up"
PARTITIONS = 4
COMMIT_EVERY = 10
PATIENCE_S = 1.0


def warm_up(kafka: KafkaConfig, seconds: float) -> int:
    """Send single records through a topic of its own, one after the other; how many there were."""
    ensure_topics(kafka, [Topic(TOPIC, PARTITIONS)])
    writer, reader = producer(kafka), consumer(kafka, TOPIC)
    reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    turns, until_s = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            writer.produce(TOPIC, b"", partition=turns % PARTITIONS)
            writer.poll(0)
            message = reader.poll(PATIENCE_S)
            turns += 1
            if message is not None and message.error() is None and turns % COMMIT_EVERY == 0:
                reader.commit(message, asynchronous=True)
    finally:
        writer.flush(PATIENCE_S)
        writer.close()
        reader.close()
    return turns
