"""Errors of aiokafka, Faust's Kafka client, and the two that Faust does not notice.

A client that cannot join its group keeps the error for the next fetch, and Faust waits for an
assignment before its first one. And a client asks for brokers only where they were: if all have
moved, it never returns to ``bootstrap.servers``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InvalidSessionTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)

from streams.codecs.size_gate import RecordTooLarge
from streams.control_app.control_writer import WriteRefused
from streams.control_app.election import SESSION_TIMEOUT_S, Election
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError, forbidden, refusal

LOOK_S = 2.0  # between two looks
MOVED_LOOKS = 5  # in a row at which brokers answer, but not this client


async def group_errors(election: Election, app: Any) -> None:
    """Raise the error with which a Faust app's client has stopped joining its group."""
    while True:
        await asyncio.sleep(LOOK_S)
        thread = app.consumer._thread
        client = thread._consumer
        if client is not None and client._coordinator is not None:
            try:
                await thread.call_thread(client._coordinator.check_errors)
            except KafkaError as error:
                raise unjoined(election, error) from error


def unjoined(election: Election, error: KafkaError) -> BrokerError:
    """Return the ``BrokerError`` for an error with which the group refuses this app."""
    found = missing_right(election.kafka, error)
    if isinstance(found, BrokerError):
        return found
    if isinstance(error, InvalidSessionTimeoutError):
        return BrokerError(
            f"the brokers do not take the control app's session timeout of {SESSION_TIMEOUT_S:g} "
            "s; set group.min.session.timeout.ms and group.max.session.timeout.ms on the brokers "
            f"to a range that has {SESSION_TIMEOUT_S * 1e3:.0f}"
        )
    return BrokerError(
        f"group {election.group!r} does not take this control app: {error}; raise group.max.size "
        "on the brokers if the group has that many members, and restart this app"
    )


def missing_right(kafka: KafkaConfig, error: BaseException) -> BaseException:
    """Return the ``BrokerError`` with the right that Faust's consumer lacks, or any other error
    unchanged."""
    lacks = {TopicAuthorizationFailedError: "topic", GroupAuthorizationFailedError: "group"}
    if type(error) not in lacks or not error.args:
        return error
    named = error.args[0]  # a name, or a set of names
    names = named if isinstance(named, str) else ", ".join(sorted(named))
    return BrokerError(forbidden(kafka, "Read", lacks[type(error)], names))


async def moved_brokers(
    kafka: KafkaConfig,
    updated: Callable[[], Awaitable[bool]],
    there: Callable[[], Awaitable[bool]],
) -> None:
    """Raise ``BrokerError`` once brokers answer at the configured address (``there``), but at none
    that the client knows (``updated`` asks those for the cluster's metadata)."""
    looks = 0
    while looks < MOVED_LOOKS:
        await asyncio.sleep(LOOK_S)
        looks = 0 if await updated() or not await there() else looks + 1
    raise BrokerError(
        f"the brokers at {kafka.bootstrap} have other addresses than at this app's start; start "
        "it anew"
    )


def refused_write(kafka: KafkaConfig, error: KafkaError, topic: str) -> Exception | None:
    """Return the error for a record that the broker refuses for good; None if a later one may
    succeed."""
    if error.retriable or error.errno is None:
        return None
    code = confluent_kafka.KafkaError(error.errno)
    text = refusal(kafka, code, "Write", "topic", topic)
    too_large = isinstance(error, MessageSizeTooLargeError)
    return RecordTooLarge(text) if too_large else WriteRefused(text)
