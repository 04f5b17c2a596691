"""Sends that carry the stamp of a lease: what the broker refuses as too old waits for the next."""

import pytest
from confluent_kafka import KafkaError

from streams.kafka.turn import Turn


class AMessage:
    def topic(self) -> str:
        return "p.results"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,  # of the other records of such a batch
    ],
)
def test_every_record_of_a_batch_with_one_too_old_waits(code: int) -> None:
    turn, message = Turn(), AMessage()
    turn.stamped(KafkaError(code), message)
    assert (turn.refused, turn.error) == ([message], None)


def test_another_refusal_is_an_error_of_its_topic() -> None:
    turn = Turn()
    turn.stamped(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), AMessage())
    assert turn.refused == []
    assert (turn.error is not None, turn.topic) == (True, "p.results")
