"""Read partitions: first, end and committed offsets, and the records of a small topic."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.kafka.admin.topic_admin import readable_partitions
from streams.kafka.kafka_client import POLL_S, available, consumer, read_from
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

Found = TypeVar("Found")

_RECORDS_AT_ONCE = 1000
AT_ONCE_S = 0.5  # longest wait for an answer that can be omitted

# Settings of a consumer that reads to the end: the last offsets may hold no record for it
# (transaction markers, and records removed by compaction).
TELLS_ENDS = {"enable.partition.eof": True}

# A group's coordinator moves when a broker comes back, and first loads the committed offsets.
UNCOORDINATED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

# A partition whose leader is being elected, or was just elected and is not known everywhere.
UNLED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)

# A topic that the controller has created but brokers do not know yet.
UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


def read_to_end(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> list[Message]:
    """Return every record of a small topic, oldest first within each partition."""
    reader = consumer(config, "headrace.reader", **TELLS_ENDS)
    try:
        count = readable_partitions(config, topic, timeout_s)
        return [m for p in range(count) for m in _read_partition(reader, topic, p, timeout_s)]
    finally:
        reader.close()


def read_kept(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> dict[bytes, bytes]:
    """Return the newest value of each key of a small compacted topic, without deleted keys.

    Tombstones count whether or not compaction has run.
    """
    newest = {m.key() or b"": m.value() for m in read_to_end(config, topic, timeout_s)}
    return {key: value for key, value in newest.items() if value}


def _read_partition(reader: Consumer, topic: str, partition: int, timeout_s: float) -> list[Any]:
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    low, high = watermarks(reader, place, timeout_s)
    found: list[Any] = []
    if low == high:
        return found
    until = time.monotonic() + timeout_s
    for message in _until(reader, place, high):
        if message is not None:
            found.append(message)
        elif time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} could not be read within {timeout_s:g} s")
    return found


def records_between(
    reader: Consumer, start: TopicPartition, high: int, timeout_s: float = math.inf
) -> Iterator[Message]:
    """Yield a partition's records from ``start`` up to ``high``.

    If the log has lost its end and ``start`` lies beyond ``high``, yield the records behind the
    cut, which the client finds by the leader epoch of ``start``. The consumer needs ``TELLS_ENDS``.
    Raise ``BrokerError`` after ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    for message in _until(reader, start, high) if start.offset != high else ():
        if message is not None:
            yield message
        elif time.monotonic() > until:
            raise BrokerError(f"topic {start.topic!r} could not be read within {timeout_s:g} s")


def _until(reader: Consumer, start: TopicPartition, high: int) -> Iterator[Message | None]:
    """Yield a partition's records up to ``high``, and None after each request."""
    read_from(reader.assign, reader, [start])
    at = start.offset if start.offset < high else 0
    while at < high:
        for message in available(reader, 0.1, _RECORDS_AT_ONCE):
            error = message.error()
            if error is None and message.offset() < high:
                yield message
            if error is None:
                at = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset())
        yield None
    reader.unassign()


def watermarks(client: Consumer, place: TopicPartition, timeout_s: float = 30.0) -> tuple[int, int]:
    """Return the first and the end offset of a partition.

    Raise ``BrokerError`` after ``timeout_s``.
    """

    def ask() -> tuple[int, int]:
        low, high = client.get_watermark_offsets(place, timeout=timeout_s)
        return low, high

    return _once_led(place.topic, ask, timeout_s)


def bounds_now(
    client: Consumer, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first and the end offset by slot. After a request that fails or takes more than
    ``AT_ONCE_S``, stop and omit its slot and the remaining ones."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    with suppress(KafkaException):
        for topic, slot in places:
            asked = TopicPartition(topic, slot)
            found[topic, slot] = client.get_watermark_offsets(asked, timeout=AT_ONCE_S)
    return found


def offset_since(
    client: Consumer, place: TopicPartition, since_s: float, timeout_s: float = 30.0
) -> int | None:
    """Return the offset of a partition's first record since ``since_s`` (Unix seconds), or None.

    Raise ``BrokerError`` after ``timeout_s``.
    """
    stamp = TopicPartition(place.topic, place.partition, int(since_s * 1e3))

    def ask() -> int | None:
        (found,) = _at_times(client, [stamp], timeout_s)
        return int(found.offset) if found.offset >= 0 else None

    return _once_led(place.topic, ask, timeout_s)


def _once_led(
    topic: str, ask: Callable[[], Found], timeout_s: float, only: Collection[int] = ()
) -> Found:
    """Return the answer of a partition's leader or a group's coordinator, with retries.

    Retry after any error, or only after those with the codes ``only``. After a broker's return or a
    topic's creation there is no leader for a moment (seconds on a busy machine), and the library
    does not wait for one. Raise ``BrokerError`` after ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if only and error.args[0].code() not in only:
                raise
            if time.monotonic() > until:
                raise BrokerError(
                    f"offsets of {topic!r} cannot be read: {error.args[0].str()}; check that the "
                    "broker is well, then try again"
                ) from error
            time.sleep(POLL_S)


def log_offsets(
    client: Consumer, places: Iterable[TopicPartition], end: int, timeout_s: float
) -> dict[tuple[str, int], int]:
    """Return the first (``OFFSET_BEGINNING``) or end (``OFFSET_END``) offsets of partitions.

    Like ``done_offsets``, it uses a consumer, which reads nothing and joins no group: librdkafka's
    admin client aborts the process if a broker goes away during a request for a group's offsets
    (librdkafka issues 3663 and 4605, seen with 2.16). Raise ``KafkaException``, and ``BrokerError``
    if partitions have no leader for ``timeout_s``.
    """
    # The protocol encodes a log's beginning and end as two special times.
    asked = [TopicPartition(place.topic, place.partition, end) for place in places]
    if not asked:
        return {}
    topics = ", ".join(dict.fromkeys(place.topic for place in asked))
    found = _once_led(topics, lambda: _at_times(client, asked, timeout_s), timeout_s, UNLED)
    return {(place.topic, place.partition): place.offset for place in found}


def await_leaders(client: Consumer, places: Iterable[TopicPartition], timeout_s: float) -> None:
    """Return once every partition of a new topic has its leader.

    The controller, which creates topics, reports leaders before these have created their logs.
    Raise ``BrokerError`` after ``timeout_s``, and ``KafkaException``.
    """
    asked = [TopicPartition(place.topic, place.partition, OFFSET_END) for place in places]
    topics = ", ".join(dict.fromkeys(place.topic for place in asked))
    _once_led(topics, lambda: _at_times(client, asked, timeout_s), timeout_s, (*UNLED, *UNKNOWN))


def _at_times(
    client: Consumer, asked: Sequence[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    found: list[TopicPartition] = client.offsets_for_times(list(asked), timeout=timeout_s)
    for place in found:
        if place.error is not None:
            # The library's text does not name the topic.
            why = f"{place.topic}: {place.error.str()}"
            raise KafkaException(KafkaError(place.error.code(), why))
    return found


def done_offsets(
    client: Consumer, places: Iterable[TopicPartition], timeout_s: float
) -> dict[tuple[str, int], int]:
    """Return the committed offsets of the client's group, if any; raise ``KafkaException``."""
    asked = [TopicPartition(place.topic, place.partition) for place in places]
    found = client.committed(asked, timeout=timeout_s)
    return {(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}


def committed(client: Consumer, topic: str, slots: Iterable[int], timeout_s: float = 30.0) -> Any:
    """Return the slots' committed offsets as ``TopicPartition``, else ``OFFSET_BEGINNING``.

    Raise ``BrokerError``; after ``timeout_s`` if the group has no coordinator.
    """
    asked = [TopicPartition(topic, slot) for slot in slots]

    def ask() -> Any:
        found = client.committed(asked, timeout=timeout_s)
        for place in found:
            if place.error is not None and place.error.code() in UNCOORDINATED:
                raise KafkaException(place.error)
        return found

    places = _once_led(topic, ask, timeout_s, UNCOORDINATED)
    for place in places:
        if place.error is not None:
            raise BrokerError(f"offsets of {topic!r} cannot be read: {place.error.str()}")
        if place.offset < 0:
            place.offset = OFFSET_BEGINNING
    return places
