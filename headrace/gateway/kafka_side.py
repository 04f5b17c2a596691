"""The Kafka side of a gateway's model: an exchange, the plan in force, a search."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from headrace.client.exchange import Exchange, RequestHolder
from headrace.client.find_answer import answer_since
from headrace.client.formats import Headers
from headrace.gateway.plans_in_force import PlansInForce
from schemas.pipeline import Pipeline
from schemas.records import Answer, Plan, Query
from streams.kafka.kafka_config import KafkaConfig


class QueryExchange(Protocol):
    """Sends queries and passes the broker's news to a holder, as ``headrace.client.exchange``
    does."""

    @property
    def away(self) -> bool: ...
    @property
    def ended(self) -> Exception | None: ...
    def send(self, query: Query, headers: Headers, together: int | None) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSide:
    """``connect`` opens the exchange for a holder of requests, ``plan`` returns the plan in force,
    ``find`` searches the results topic for an id as far back as an epoch time, in a thread.
    ``plans_ended`` returns the error after which no newer plan can arrive, None while there is
    none.

    The others raise ``BrokerError``.
    """

    connect: Callable[[RequestHolder], QueryExchange]
    plan: Callable[[], Plan | None]
    find: Callable[[str, float | None], Answer | None]
    plans_ended: Callable[[], Exception | None] = lambda: None


def kafka_side(kafka: KafkaConfig, pipeline: Pipeline, plans: PlansInForce) -> KafkaSide:
    """Return the Kafka side of a pipeline."""
    return KafkaSide(
        connect=partial(Exchange, kafka, pipeline),
        plan=partial(plans.newest.of, pipeline.name),
        find=partial(answer_since, kafka, pipeline),
        plans_ended=lambda: plans.ended,
    )
