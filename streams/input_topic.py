"""How many queries stand on the input topic, and how many of them has ingress taken in?"""

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka import BrokerError, KafkaConfig, consumer
from streams.topics import physical

WAIT_S = 2.0  # an answer that comes later is of no use any more


class InputTopic:
    """Asks the broker for offsets; blocks for as long as that takes.

    It asks as a consumer that reads nothing and never joins its group: librdkafka's admin client
    aborts the process where a broker goes away while it asks for a group's offsets (librdkafka
    issues 3663 and 4605, seen with 2.16).
    """

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._topic = physical(pipeline.name, QUERIES)
        self._reader = consumer(kafka, f"{pipeline.name}.ingress")
        self._places: list[TopicPartition] = []

    def ends(self) -> dict[int, int]:
        """Log-end offsets by partition; raises ``BrokerError``."""
        what = "how many queries stand on the input topic"
        try:
            if not self._places:
                found = self._reader.list_topics(self._topic, timeout=WAIT_S).topics[self._topic]
                # As a time, the end of the log is "the latest".
                self._places = [
                    TopicPartition(self._topic, p, OFFSET_END) for p in found.partitions
                ]
            places = self._reader.offsets_for_times(self._places, timeout=WAIT_S)
        except KafkaException as error:
            raise BrokerError(_told(what, error.args[0].str())) from error
        for place in places:
            if place.error is not None:
                raise BrokerError(_told(what, place.error.str()))
        return {place.partition: place.offset for place in places}

    def done(self) -> dict[int, int]:
        """Offsets that ingress has committed, where it has; raises ``BrokerError``."""
        asked = [TopicPartition(self._topic, place.partition) for place in self._places]
        try:
            places = self._reader.committed(asked, timeout=WAIT_S)
        except KafkaException as error:
            raise BrokerError(_told("how far ingress is", error.args[0].str())) from error
        return {p.partition: p.offset for p in places if p.error is None and p.offset >= 0}


def _told(what: str, said: str) -> str:
    return f"the broker did not say {what}: {said}"
