"""How much work waits on the broker? Records behind the committed offsets, per task."""

from collections.abc import Iterable

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from schemas.effects import OUTPUTS, work_topic
from schemas.pipeline import Pipeline
from streams.kafka import BrokerError, KafkaConfig, admin
from streams.topics import physical

WAIT_S = 10.0


class Backlog:
    """Asks the broker how many records wait; ``work`` by task, ``outputs`` before egress.

    Raises ``BrokerError``.
    """

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._admin = admin(kafka)
        self._pipeline = pipeline

    def work(self) -> dict[str, int]:
        """Records on each task's topic that no worker has finished."""
        name = self._pipeline.name
        places = {
            task.name: [TopicPartition(physical(name, work_topic(task.name)), slot)
                        for slot in range(task.slots)]
            for task in self._pipeline.tasks
        }  # fmt: skip
        every = [place for of_task in places.values() for place in of_task]
        waiting = self._waiting(f"{name}.workers", every)
        return {
            task: sum(waiting[p.topic, p.partition] for p in of_task)
            for task, of_task in places.items()
        }

    def outputs(self) -> int:
        """Records of queries that egress has not closed."""
        name = self._pipeline.name
        topic = physical(name, OUTPUTS)
        places = [TopicPartition(topic, p) for p in range(self._pipeline.egress_partitions)]
        return sum(self._waiting(f"{name}.egress", places).values())

    def is_empty(self) -> bool:
        """Nothing waits anywhere."""
        return not any(self.work().values()) and not self.outputs()

    def _waiting(self, group: str, places: Iterable[TopicPartition]) -> dict[tuple[str, int], int]:
        places = list(places)
        try:
            ends = self._offsets(places, OffsetSpec.latest())
            starts = self._offsets(places, OffsetSpec.earliest())
            asked = ConsumerGroupTopicPartitions(group, places)
            answered = self._admin.list_consumer_group_offsets([asked], request_timeout=WAIT_S)
            done = {
                (p.topic, p.partition): p.offset
                for p in answered[group].result(WAIT_S).topic_partitions
            }
        except KafkaException as error:
            raise BrokerError(
                f"the broker did not say how much work waits: {error.args[0].str()}"
            ) from error
        return {
            place: max(0, end - max(done.get(place, -1), starts[place]))
            for place, end in ends.items()
        }

    def _offsets(
        self, places: list[TopicPartition], spec: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        asked = self._admin.list_offsets(
            dict.fromkeys(places, spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=WAIT_S,
        )
        return {(p.topic, p.partition): f.result(WAIT_S).offset for p, f in asked.items()}
