"""The newest plan of every pipeline, from the shared plans topic."""

import threading

from headrace.client.topic_clients import PlanTail, decoded
from schemas.pipeline import Pipeline
from schemas.records import Plan
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

TURN_S = 0.5


def fault(pipeline: Pipeline, plan: Plan | None) -> str:
    """Return the reason that a pipeline takes no queries now, or ""."""
    if plan is None:
        return f"pipeline {pipeline.name} has no plan yet; `headrace up FILE` runs it"
    if plan.settings.paused:
        return f"pipeline {pipeline.name} is paused; `headrace resume FILE` lets queries in again"
    # As in ingress: a plan may deliberately give a task after the first one no worker.
    first = pipeline.root.name
    served = any(lease.task == first and lease.open_slot >= 0 for lease in plan.leases)
    return "" if served else f"no worker of pipeline {pipeline.name} serves task {first}"


class NewestPlans:
    """The newest plan of each pipeline, from the records of the plans topic."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[bytes, Plan]] = {}  # with the keys of their records

    def of(self, pipeline: str) -> Plan | None:
        """Return the plan of a pipeline; None: there is none."""
        held = self._plans.get(pipeline)
        return held and held[1]

    def see(self, key: bytes, value: bytes) -> None:
        """Take a record; an empty value deletes the plan with its key, as a purge does."""
        if not value:
            self._plans = {name: held for name, held in self._plans.items() if held[0] != key}
            return
        plan = decoded(value)
        if isinstance(plan, Plan) and plan.supersedes(self.of(plan.pipeline)):
            self._plans[plan.pipeline] = key, plan


class PlansInForce:
    """Follows the plans in a thread. Raises ``BrokerError`` if the topic does not exist.

    ``newest`` has the plans; ``ended`` is the error after which no newer one can come, None while
    there is none.
    """

    def __init__(self, kafka: KafkaConfig) -> None:
        self._tail = PlanTail(kafka)
        self.newest = NewestPlans()
        self.ended: BrokerError | None = None
        self._closing = threading.Event()
        self._take(0.0)
        self._thread = threading.Thread(target=self._follow, name="headrace-plans", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the Kafka client."""
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            while not self._closing.is_set():
                self._take(TURN_S)
        except BrokerError as error:
            self.ended = error
        finally:
            self._tail.close()

    def _take(self, timeout_s: float) -> None:
        for key, value in self._tail.records(timeout_s):
            self.newest.see(key, value)
