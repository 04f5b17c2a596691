"""How many queries stand on the input topic, and how many of them has ingress taken in?"""

from concurrent.futures import TimeoutError as Late

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka import BrokerError, KafkaConfig, admin
from streams.topics import physical

WAIT_S = 2.0  # an answer that comes later is of no use any more


class InputTopic:
    """Asks the broker for offsets; blocks for as long as that takes."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._admin = admin(kafka)
        self._topic = physical(pipeline.name, QUERIES)
        self._group = f"{pipeline.name}.ingress"
        self._places: list[TopicPartition] = []

    def ends(self) -> dict[int, int]:
        """Log-end offsets by partition; raises ``BrokerError``."""
        try:
            if not self._places:
                found = self._admin.list_topics(self._topic, timeout=WAIT_S).topics[self._topic]
                self._places = [TopicPartition(self._topic, p) for p in found.partitions]
            asked = self._admin.list_offsets(
                dict.fromkeys(self._places, OffsetSpec.latest()),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=WAIT_S,
            )
            return {place.partition: f.result(WAIT_S).offset for place, f in asked.items()}
        except (KafkaException, Late) as error:
            raise BrokerError(_told("how many queries stand on the input topic", error)) from error

    def done(self) -> dict[int, int]:
        """Offsets that ingress has committed, where it has; raises ``BrokerError``."""
        try:
            asked = ConsumerGroupTopicPartitions(self._group, self._places)
            answered = self._admin.list_consumer_group_offsets([asked], request_timeout=WAIT_S)
            places = answered[self._group].result(WAIT_S).topic_partitions
        except (KafkaException, Late) as error:
            raise BrokerError(_told("how far ingress is", error)) from error
        return {p.partition: p.offset for p in places if p.error is None and p.offset >= 0}


def _told(what: str, error: Exception) -> str:
    said = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
    return f"the broker did not say {what}: {said}"
