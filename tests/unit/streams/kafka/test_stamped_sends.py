"""Sends that carry the stamp of a lease: records refused as too old wait for the next lease."""

import pytest
from confluent_kafka import KafkaError

from streams.kafka.send_window import Departure, SendWindow
from streams.kafka.turn import Turn, unconfirmed_since


class AMessage:
    def topic(self) -> str:
        return "p.results"


def a_departure(turn: Turn) -> Departure:
    return SendWindow().queue(("p.results", 0)).depart(turn)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,  # of the other records in such a batch
    ],
)
def test_every_record_of_a_batch_with_one_too_old_waits(code: int) -> None:
    turn, message = Turn(), AMessage()
    a_departure(turn).stamped((), KafkaError(code), message)
    assert (turn.refused, turn.error) == ([message], None)


def test_another_refusal_is_an_error_of_its_topic() -> None:
    turn = Turn()
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    a_departure(turn).stamped((), error, AMessage())
    assert turn.refused == []
    assert (turn.error is not None, turn.topic) == (True, "p.results")


def a_turn(ended_s: float, waiting: int, held: int = 0) -> Turn:
    turn = Turn()
    turn.ended_s, turn.waiting, turn.held = ended_s, waiting, held
    return turn


def test_a_turn_whose_records_were_refused_does_not_wait_for_the_broker() -> None:
    """A role that only read back refused records used to end when the broker confirmed nothing."""
    assert unconfirmed_since([a_turn(1.0, waiting=2, held=2), a_turn(2.0, waiting=1)]) == 2.0
    assert unconfirmed_since([a_turn(1.0, waiting=2, held=1)]) == 1.0
    assert unconfirmed_since([a_turn(1.0, waiting=1, held=1), a_turn(2.0, waiting=0)]) is None
