"""Gathering of reports in the control app: it sleeps without reports and hands on few batches."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams.control_app.report_reader import GATHER_S, WAIT_S, ReportReader, _gathered
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError


class Message:
    """A report with an offset, or an error."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def topic(self) -> str:
        return "reports"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"node"

    value = key


class Client:
    """A consumer with these next records; ``waits`` records the timeouts of its calls."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self.waits: list[float] = []

    def poll(self, timeout_s: float) -> Message | None:
        self.waits.append(timeout_s)
        return self._messages.pop(0) if self._messages else None

    def consume(self, most: int, timeout: float) -> list[Message]:
        self.waits.append(timeout)
        taken, self._messages = self._messages[:most], self._messages[most:]
        return taken


def offsets(client: Any) -> list[int]:
    reader = ReportReader(KafkaConfig("b:1"), "p", lambda batch: None, lambda error: None)
    return [each.offset for each in reader._records(_gathered(client))]


def test_without_a_report_it_only_waits_for_one() -> None:
    client = Client()
    assert offsets(client) == []
    assert client.waits == [WAIT_S]


def test_the_first_report_gathers_others_behind_it() -> None:
    client = Client(Message(3), Message(4))
    assert offsets(client) == [3, 4]
    assert client.waits == [WAIT_S, GATHER_S]


def test_errors_are_no_reports() -> None:
    error = KafkaError(KafkaError._TRANSPORT)
    assert offsets(Client(Message(0, error), Message(3))) == [3]
    assert offsets(Client(Message(0, error))) == []


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic 'reports'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "group 'p.control'"),
    ],
)
def test_a_right_that_the_user_has_lost_is_named(code: int, right: str) -> None:
    """The control app read on without reports, and told only that it is to be restarted."""
    with pytest.raises(BrokerError, match=f"no right to Read on {right}; `headrace acls"):
        offsets(Client(Message(3), Message(0, KafkaError(code))))
