"""Records that the broker refused as too old for their lease, but may have written before.

A producer repeats a request that was not confirmed, for instance when the partition's leader dies.
The broker checks a record's time stamp before it checks for duplicates. So it refuses the
repetition of a record that it has already written just like a record that it has never seen. Only
the topic shows which: it is read back, and records that are not on it may be sent again.

After the refusal no earlier attempt can be written, as it has the same stamp. But a record that was
written becomes readable only once every in-sync replica has it, so the topic is read behind a
barrier (``streams/kafka/leases/write_barrier.py``).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from streams.kafka.background_call import BackgroundCall
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import (
    TELLS_ENDS,
    offset_since,
    records_between,
    watermarks,
)
from streams.kafka.turn import Turn

WAIT_S = 10.0

Written = tuple[int | None, bytes | None, bytes | None]  # partition, key, value
Find = Callable[[Collection[Message], float], frozenset[Written]]


class Refused(NamedTuple):
    """A refused record, the turn that sent it, and the time stamp of its first attempt."""

    turn: Turn
    message: Message
    stamp_s: float


class RefusedRecords:
    """Refused records until it is known whether they were written.

    ``find`` returns those of the given records that are on the topic since a time. It may raise
    ``BrokerError``, and is then called again.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: list[Refused] = []
        self._sought: list[Refused] = []
        self._search: BackgroundCall[frozenset[Written]] | None = None

    def add(self, turn: Turn, messages: Iterable[Message], stamp_s: float) -> None:
        """Add refused records of a turn, whose first attempt had the stamp ``stamp_s``."""
        taken = [Refused(turn, message, stamp_s) for message in messages]
        turn.held += len(taken)
        self._waiting += taken

    def decided(self) -> list[tuple[Refused, bool]]:
        """Remove and return the records with a known fate, each with whether it was written."""
        if self._search is None and self._waiting:
            self._sought, self._waiting = self._waiting, []
            self._search = BackgroundCall("refused", partial(self._find_sought, self._sought))
        if self._search is None or not self._search.ended:
            return []
        found, sought = self._search.result, self._sought
        self._search, self._sought = None, []
        if found is None:
            self._waiting = sought + self._waiting
            return []
        for each in sought:
            each.turn.held -= 1
        return [(each, identity(each.message) in found) for each in sought]

    def _find_sought(self, sought: Sequence[Refused]) -> frozenset[Written]:
        since_s = min(each.stamp_s for each in sought)
        return self._find([each.message for each in sought], since_s)


def identity(message: Message) -> Written:
    """Return a record's identity: an answer contains its query's place and its own time."""
    return message.partition(), message.key(), message.value()


def find_written(
    config: KafkaConfig,
    settle: Callable[[], None] | None,
    messages: Collection[Message],
    since_s: float,
) -> frozenset[Written]:
    """Return those records that are on their topic with a time stamp from ``since_s`` on.

    ``settle`` returns once every record written so far can be read. Raise ``BrokerError`` if the
    broker does not answer.
    """
    if settle is not None:
        settle()
    places = {(message.topic() or "", message.partition() or 0) for message in messages}
    reader = consumer(config, "headrace.reader", **TELLS_ENDS)
    try:
        found = {
            identity(record)
            for topic, partition in places
            for record in _since(reader, TopicPartition(topic, partition), since_s)
        }
    finally:
        reader.close()
    return frozenset(map(identity, messages)) & found


def _since(reader: Consumer, place: TopicPartition, since_s: float) -> Iterable[Message]:
    start = offset_since(reader, place, since_s, WAIT_S)
    if start is None:
        return ()
    _, end = watermarks(reader, place, WAIT_S)
    begin = TopicPartition(place.topic, place.partition, start)
    return records_between(reader, begin, end, WAIT_S)
