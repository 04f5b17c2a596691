"""Message headers that the client cannot always read."""

from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME

from streams.kafka.reading.partition_reader import _fetched


class Odd:
    """A message with a header whose name is not UTF-8, as returned by librdkafka's client 2.16."""

    def __init__(self) -> None:
        self.asked = 0

    def topic(self) -> str:
        return "p.queries"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 5000

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"payload"

    def headers(self) -> Any:
        self.asked += 1
        raise SystemError("returned a result with an exception set")


def test_a_header_whose_name_is_not_utf_8_does_not_end_the_reader() -> None:
    message = Odd()
    found = _fetched(message)
    assert (found.offset, found.value, found.headers) == (7, b"payload", None)
    assert found.fault == "the name of a header is not UTF-8; write it as text"
    assert message.asked == 1  # another call would return what crashes the process
