"""Which plans were in force during a demo, and how many devices did they use?"""

from collections.abc import Sequence

from headrace.client.topic_clients import PlanTail, decoded
from headrace.closing import Closing
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.kafka.kafka_client import KafkaConfig


class PlanLog(Closing):
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


def devices_mean(plans: Sequence[Plan], begin_s: float, end_s: float) -> float | None:
    """Devices in use on average over a time (epoch seconds); None where no plan was in force."""
    used = seconds = 0.0
    ordered = sorted(plans, key=lambda plan: plan.issued_s)
    ends = [*(plan.issued_s for plan in ordered[1:]), end_s]
    for plan, until_s in zip(ordered, ends, strict=False):  # of no plan there is an end, too
        span = min(until_s, end_s) - max(plan.issued_s, begin_s)
        if span > 0:
            used, seconds = used + devices(plan) * span, seconds + span
    return used / seconds if seconds else None
