"""The election among control apps: in charge is the member of their consumer group that is assigned
the topics of commands and plans."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaError

from schemas.effects import COMMANDS, PLANS
from schemas.user_errors import UNSUCCESSFUL, HeadraceError
from streams.kafka.kafka_client import asked
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

CHARGED = (COMMANDS, PLANS)  # the app that is assigned them is in charge, and reads reports
SESSION_TIMEOUT_S = 6.0  # until a dead app is replaced; the brokers' default minimum
ANSWER_S = 2.0  # without an answer within this time an app assumes that it is in charge
# The library aborts the process if an answer comes later than this (librdkafka issue 4605).
REQUEST_S = 60.0


class Assigned(Protocol):
    """A partition that the group assigned to a member."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class TopicGone(HeadraceError):
    """A topic that the app in charge reads is no longer on the broker."""

    exit_code = UNSUCCESSFUL


def elected(assigned: Iterable[Assigned]) -> set[str]:
    """Return the topics whose first partition is assigned.

    Others, of a topic to which partitions were added, may be assigned to another member.
    """
    return {place.topic for place in assigned if place.partition == 0}


def charged(pipeline: str, topics: Iterable[str]) -> bool:
    """Return whether an app that is assigned these topics is in charge.

    Raise ``TopicGone`` if it is assigned only a part of them: the group assigns them together, and
    omits topics that the broker does not have.
    """
    wanted = {physical(pipeline, logical) for logical in CHARGED}
    missing = wanted - set(topics)
    if missing and missing != wanted:
        raise TopicGone(
            f"the broker has lost {' and '.join(sorted(missing))}; this control app begins anew, "
            "and makes the topic if it is still missing"
        )
    return not missing


@dataclass(frozen=True, slots=True)
class Election:
    """The group of a pipeline's control apps, asked by the member with this client id."""

    kafka: KafkaConfig
    pipeline: str
    client: str

    @property
    def group(self) -> str:
        """The name of the consumer group."""
        return f"{self.pipeline}.control"

    def replaced(self) -> bool:
        """Return whether another member is in charge; block, and raise ``BrokerError``.

        While the group rebalances, no member is in charge.
        """
        found = asked(
            self.kafka,
            lambda client: client.describe_consumer_groups([self.group], request_timeout=REQUEST_S),
            ANSWER_S,
        )[self.group]
        if isinstance(found, KafkaError):
            return False
        wanted = {physical(self.pipeline, logical) for logical in CHARGED}
        return any(
            wanted <= elected(member.assignment.topic_partitions)
            for member in found.members
            if member.client_id != self.client and member.assignment is not None
        )
