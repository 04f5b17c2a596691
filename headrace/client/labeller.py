"""Send labels: what the answers to queries should have been."""

from headrace.client.topic_clients import ACKNOWLEDGED_WITHIN_S
from schemas.codec.single_object import encode
from schemas.effects import LABELS
from schemas.pipeline import Pipeline
from schemas.records import Label
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical


class Labeller:
    """Writes labels to a pipeline's topic, without waiting for the broker before ``close``."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._topic = physical(pipeline.name, LABELS)
        self._producer = producer(kafka)

    def send(self, label: Label) -> None:
        """Send a label."""
        self._producer.produce(self._topic, encode(label), label.id)
        self._producer.poll(0)

    def close(self) -> None:
        """Wait until the broker has every label."""
        self._producer.flush(ACKNOWLEDGED_WITHIN_S)
