"""The backlog on the broker: records behind the committed offsets, per task."""

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from schemas.effects import OUTPUTS, work_topic
from schemas.pipeline import Pipeline
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import done_offsets, log_offsets
from streams.topics import physical

WAIT_S = 10.0


class Backlog:
    """Reads a pipeline's backlog from the broker: ``work`` by task, ``outputs`` before egress.

    Its methods raise ``BrokerError``, after ``within_s`` for each request without an answer.
    """

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline, within_s: float = WAIT_S) -> None:
        self._pipeline, self._within_s = pipeline, within_s
        self._workers = consumer(kafka, f"{pipeline.name}.workers")
        self._egress = consumer(kafka, f"{pipeline.name}.egress")

    def work(self) -> dict[str, int]:
        """Return the number of records on each task's topic that no worker has finished."""
        found = dict.fromkeys(self._pipeline.task_names, 0)
        for (task, _), records in self.slots().items():
            found[task] += records
        return found

    def slots(self) -> dict[tuple[str, int], int]:
        """Return the number of records on each slot, by task and slot, that no worker has
        finished."""
        name = self._pipeline.name
        places = {
            (task.name, slot): TopicPartition(physical(name, work_topic(task.name)), slot)
            for task in self._pipeline.tasks
            for slot in range(task.slots)
        }
        waiting = _waiting(self._workers, [*places.values()], self._within_s)
        return {key: waiting[place.topic, place.partition] for key, place in places.items()}

    def outputs(self) -> int:
        """Return the number of output records that egress has not committed."""
        name = self._pipeline.name
        topic = physical(name, OUTPUTS)
        # Partitions beyond the file's number may hold records from before a change of the file.
        count = max(
            self._pipeline.egress_partitions, _partitions(self._egress, topic, self._within_s)
        )
        places = [TopicPartition(topic, p) for p in range(count)]
        return sum(_waiting(self._egress, places, self._within_s).values())

    def is_empty(self) -> bool:
        """Return whether no record waits on any topic."""
        return not any(self.work().values()) and not self.outputs()


def _partitions(reader: Consumer, topic: str, within_s: float) -> int:
    try:
        return len(reader.list_topics(topic, within_s).topics[topic].partitions)
    except KafkaException as error:
        raise _unsaid(error) from error


def _waiting(
    reader: Consumer, places: list[TopicPartition], within_s: float
) -> dict[tuple[str, int], int]:
    try:
        ends = log_offsets(reader, places, OFFSET_END, within_s)
        starts = log_offsets(reader, places, OFFSET_BEGINNING, within_s)
        done = done_offsets(reader, places, within_s)
    except KafkaException as error:
        raise _unsaid(error) from error
    return {
        place: max(0, end - max(done.get(place, -1), starts[place])) for place, end in ends.items()
    }


def _unsaid(error: KafkaException) -> BrokerError:
    return BrokerError(
        f"the broker did not say how much work waits: {error.args[0].str()}; check it with "
        "`headrace doctor FILE`"
    )
