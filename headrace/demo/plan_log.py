"""The plans of a pipeline as they are written."""

from headrace.client.topic_clients import PlanTail, decoded
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.kafka.kafka_client import KafkaConfig


class PlanLog:
    """A pipeline's plans as they come, those from before included, in the order of epochs."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._pipeline = pipeline.name
        self._tail = PlanTail(kafka)
        self.plans: list[Plan] = []

    def feed(self) -> None:
        """Take in what is there without waiting."""
        for value in self._tail.take(0):
            record = decoded(value)
            if isinstance(record, Plan) and record.pipeline == self._pipeline:
                self.plans.append(record)

    def close(self) -> None:
        """Let the topic go."""
        self._tail.close()


def devices(plan: Plan) -> int:
    """Workers to which the plan sends work."""
    return sum(lease.open_slot >= 0 for lease in plan.leases)
