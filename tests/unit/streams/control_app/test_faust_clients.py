"""The errors with which a control app ends."""

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)

from streams.codecs.size_gate import RecordTooLarge
from streams.control_app.control_writer import WriteRefused
from streams.control_app.election import Election
from streams.control_app.faust_clients import (
    LOOK_S,
    MOVED_LOOKS,
    missing_right,
    moved_brokers,
    refused_write,
    unjoined,
)
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from tests.virtual_loop import VirtualLoop

KAFKA = KafkaConfig("b:1")
ELECTION = Election(KAFKA, "p", "p.control.1")


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (TopicAuthorizationFailedError("headrace.plans"), "topic 'headrace.plans'"),
        (TopicAuthorizationFailedError({"b", "a"}), "topic 'a, b'"),
        (GroupAuthorizationFailedError("p.control"), "group 'p.control'"),
    ],
)
def test_a_right_that_the_consumer_has_lost_is_named(error: KafkaError, right: str) -> None:
    found = missing_right(KAFKA, error)
    assert isinstance(found, BrokerError)
    assert f"has no right to Read on {right}; `headrace acls" in str(found)


@pytest.mark.parametrize("error", [KafkaConnectionError("away"), TopicAuthorizationFailedError()])
def test_other_errors_stay_as_they_are(error: KafkaError) -> None:
    assert missing_right(KAFKA, error) is error


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (InvalidSessionTimeoutError(), "group.max.session.timeout.ms on the brokers to a range "),
        (KafkaError("UnknownError()"), "'p.control' does not take this control app: KafkaError"),
        (GroupAuthorizationFailedError("p.control"), "no right to Read on group 'p.control'"),
    ],
)
def test_an_app_that_its_group_does_not_take_ends_with_the_remedy(
    error: KafkaError, remedy: str
) -> None:
    """It waited for ever, also after SIGTERM."""
    assert remedy in str(unjoined(ELECTION, error))


def lost_after_s(known: Sequence[bool], there: Sequence[bool]) -> float | None:
    """Return after how many seconds an app gives its client up, None if it does not; the last of
    the answers are repeated."""
    loop, looks = VirtualLoop(), [0, 0]

    def answers(which: int, said: Sequence[bool]) -> bool:
        looks[which] += 1
        return said[min(looks[which], len(said)) - 1]

    async def updated() -> bool:
        return answers(0, known)

    async def answering() -> bool:
        return answers(1, there)

    async def whole() -> float | None:
        began = loop.time()
        try:
            await asyncio.wait_for(moved_brokers(KAFKA, updated, answering), 100 * LOOK_S)
        except BrokerError:
            return loop.time() - began
        except TimeoutError:
            return None

    try:
        return loop.run_until_complete(whole())
    finally:
        loop.close()


def test_an_app_whose_brokers_have_all_moved_ends() -> None:
    """It asked for them at their former addresses for ever, and took charge no more."""
    assert lost_after_s([True, False], [True]) == LOOK_S * (MOVED_LOOKS + 1)
    assert lost_after_s([False], [False] * 20 + [True]) == LOOK_S * (MOVED_LOOKS + 20)


@pytest.mark.parametrize(("known", "there"), [([True], [True]), ([False], [False])])
def test_an_app_whose_brokers_are_where_they_were_or_away_waits(
    known: list[bool], there: list[bool]
) -> None:
    assert lost_after_s(known, there) is None


def test_a_plan_that_its_topic_does_not_take_leaves_the_former_one_in_force() -> None:
    """It ended the control app at every start, with a trace of the client library."""
    found = refused_write(KAFKA, MessageSizeTooLargeError(), "headrace.plans")
    assert isinstance(found, RecordTooLarge)
    assert "on topic 'headrace.plans'" in str(found)
    assert "raise the topic's max.message.bytes" in str(found)


def test_a_lost_right_to_write_is_named() -> None:
    found = refused_write(KAFKA, TopicAuthorizationFailedError("headrace.plans"), "headrace.plans")
    assert isinstance(found, WriteRefused)
    assert "has no right to Write on topic 'headrace.plans'; `headrace acls" in str(found)


@pytest.mark.parametrize("error", [NotEnoughReplicasError(), KafkaConnectionError("away")])
def test_a_write_that_may_succeed_later_is_not_refused(error: KafkaError) -> None:
    assert refused_write(KAFKA, error, "headrace.plans") is None
