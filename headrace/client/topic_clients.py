"""Kafka clients of a running pipeline: send queries, follow topics, give commands.

    with Asker(kafka, pipeline) as asker, closing(Tail(kafka, results)) as tail:
        asker.ask(Query(payload=b"...", id="my-id"))
        answers = answers_in(tail.take(1.0), reader_of(pipeline))

Open the ``Tail`` before the first query: it reads from the end of the topic at the time of its
construction, so no answer is missed.
"""

import getpass
import os
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headrace.client.formats import Headers, answer_reader, answers_in, writer_of
from headrace.errors import Unsuccessful
from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import COMMAND_RESULTS, COMMANDS, LABELS, PLANS, QUERIES, RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer, Command, CommandResult, Label, Plan, Query
from streams.kafka.admin.topic_admin import PartitionCount, readable_partitions
from streams.kafka.kafka_client import (
    OnError,
    assign_more,
    available,
    fatal_errors,
    follower,
    producer,
)
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError, refusal, unreadable
from streams.kafka.topic_contents import offset_since, read_kept, watermarks
from streams.topics import MAX_RECORD_BYTES, physical

MOST_AT_ONCE = 499
WAIT_S = 10.0  # for offsets and topics from the broker
COUNT_S = 5.0  # between two looks for added partitions
SLOW_AFTER_S = 2.0  # a command is usually answered within half a second
POLICY_WITHIN_S = 30.0  # for the first plan of a policy
ACKNOWLEDGED_WITHIN_S = 30.0  # an interactive client waits less for a broker than a role does


class Tail:
    """Follows a topic from its end, or from ``since_s`` (epoch seconds; 0: its beginning).

    Partitions that are added to the topic are read from their beginning. Raises ``BrokerError`` if
    the broker or the topic is not available.
    """

    def __init__(self, kafka: KafkaConfig, topic: str, since_s: float | None = None) -> None:
        count = readable_partitions(kafka, topic, WAIT_S)
        if not count:
            raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
        self._kafka, self._topic = kafka, topic
        self._count = PartitionCount(kafka, topic, COUNT_S)
        self._consumer = follower(kafka, "headrace.reader")
        places = [TopicPartition(topic, p) for p in range(count)]
        try:
            self._starts = [self._start(place, since_s) for place in places]
            self._consumer.assign(self._starts)
        except BrokerError:
            self._consumer.close()
            raise

    def _start(self, place: TopicPartition, since_s: float | None) -> TopicPartition:
        # An explicit offset: OFFSET_END would miss records that are written before the client
        # resolves it.
        low, high = watermarks(self._consumer, place)
        start = high if since_s is None else low
        if since_s:
            found = offset_since(self._consumer, place, since_s)
            start = high if found is None else found
        return TopicPartition(place.topic, place.partition, start)

    def take(self, timeout_s: float) -> list[bytes]:
        """Wait for a record, then return all available ones; [] after the timeout."""
        return [_value(message) for message in self.messages(timeout_s)]

    def messages(self, timeout_s: float) -> list[Message]:
        """Return the records that ``take`` would, with keys, headers and offsets."""
        self._read_added()
        found = available(self._consumer, timeout_s, MOST_AT_ONCE)
        return [message for message in found if holds_record(self._kafka, message)]

    def _read_added(self) -> None:
        """Read the partitions that were added."""
        added = range(len(self._starts), self._count.answered())
        if added:
            places = [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in added]
            assign_more(self._consumer, places)
            self._starts += places

    def written(self, within_s: float) -> list[Message]:
        """Return the unread records on the topic, as far as they arrive within ``within_s``."""
        ends = {p.partition: watermarks(self._consumer, p)[1] for p in self._starts}
        until = time.monotonic() + within_s
        found: list[Message] = []
        while self._unread(ends) and (left_s := until - time.monotonic()) > 0:
            found += self.messages(left_s)
        return found

    def _unread(self, ends: Mapping[int, int]) -> bool:
        """Return whether a partition has unread records before its end."""
        positions = zip(self._consumer.position(self._starts), self._starts, strict=True)
        return any(
            (at.offset if at.offset >= 0 else start.offset) < ends[start.partition]
            for at, start in positions
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class PlanTail:
    """Follows the shared plans topic: first the plans that compaction keeps, then new ones.

    Deleted plans are left out, whether or not compaction has run. Raises ``BrokerError`` if the
    topic does not exist.
    """

    def __init__(self, kafka: KafkaConfig) -> None:
        topic = physical("", PLANS)
        self._tail = Tail(kafka, topic)  # before the kept plans are read, so that none is missed
        self._kept = [*read_kept(kafka, topic).items()]

    def take(self, timeout_s: float) -> list[bytes]:
        """Return the kept plans at the first call; later calls are as ``Tail.take``."""
        return [value for _, value in self.records(timeout_s)]

    def records(self, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """Return the plans that ``take`` would with their keys; a plan that is deleted since then
        is b""."""
        kept, self._kept = self._kept, []
        return kept or [(m.key() or b"", _value(m)) for m in self._tail.messages(timeout_s)]

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()


class Interruptible(ABC):
    """A context manager that an error, such as Ctrl-C, ends without waiting for the broker."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.abandon()
        self.close()

    @abstractmethod
    def abandon(self) -> None:
        """Discard what the broker has not acknowledged."""

    @abstractmethod
    def close(self) -> None:
        """Wait for the broker, and end."""


class Asker(Interruptible):
    """Writes queries to a pipeline's input topic, in the form that its file names.

    ``acknowledged`` maps the ids that the broker took to their CreateTime (epoch seconds),
    ``refused`` the ids that it refused to the reason. ``poll`` and ``flush`` fill both.
    """

    def __init__(
        self, kafka: KafkaConfig, pipeline: Pipeline, on_error: OnError | None = None
    ) -> None:
        self._kafka = kafka
        self._topic = physical(pipeline.name, QUERIES)
        self._written = writer_of(pipeline)
        self._producer = producer(
            kafka,
            **{
                "delivery.timeout.ms": int(ACKNOWLEDGED_WITHIN_S * 1e3),
                # A fresh idempotent producer waits up to 500 ms for its id, a whole SLO.
                "enable.idempotence": False,
                "error_cb": fatal_errors(kafka, on_error),
            },
        )
        # Connect before the first query, whose latency would include the connection.
        found = self._producer.list_topics(self._topic, timeout=ACKNOWLEDGED_WITHIN_S)
        self._partitions = max(1, len(found.topics[self._topic].partitions))
        self.acknowledged: dict[str, float] = {}
        self.refused: dict[str, str] = {}

    def ask(self, query: Query, more_headers: Headers = (), together: int | None = None) -> None:
        """Send a query at once, with ``more_headers`` of Kafka's.

        Queries with the same number ``together`` share a partition; without one their ids choose
        it. Raises ``Unsuccessful`` for one over the size limit, ``BufferError`` while too many wait
        for the broker, and ``BrokerError`` if the topic is gone.
        """
        value, headers = self._written(query)
        if len(value) > MAX_RECORD_BYTES - 64 * 1024:
            raise Unsuccessful(
                f"the input has {len(value)} bytes, but a record holds {MAX_RECORD_BYTES} at most; "
                "send a smaller one or a reference to it"
            )

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                self.refused[query.id] = refusal(self._kafka, error, "Write", "topic", self._topic)
            else:
                self.acknowledged[query.id] = message.timestamp()[1] / 1e3

        every = [*headers, *more_headers]
        partition = -1 if together is None else together % self._partitions
        send = partial(
            self._producer.produce, self._topic, value, query.id, headers=every,
            on_delivery=delivered,
        )  # fmt: skip
        try:
            self._produce(send, partition)
        except KafkaException as error:
            why = refusal(self._kafka, error.args[0], "Write", "topic", self._topic)
            raise BrokerError(why) from error
        self._producer.poll(0)

    def _produce(self, send: Callable[..., None], partition: int) -> None:
        try:
            send(partition=partition)
        except KafkaException as error:
            if partition <= 0 or error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            self._partitions = partition  # the topic was recreated, with this many at most
            send(partition=-1)

    def poll(self) -> None:
        """Process the broker's acknowledgements and refusals."""
        self._producer.poll(0)

    def reached(self, timeout_s: float) -> bool:
        """Return whether a broker answers within ``timeout_s``."""
        try:
            self._producer.list_topics(self._topic, timeout=timeout_s)
        except KafkaException:
            return False
        return True

    def flush(self) -> None:
        """Wait until the broker has acknowledged or refused every query."""
        self._producer.flush(ACKNOWLEDGED_WITHIN_S)

    def abandon(self) -> None:
        """Discard the queries that the broker has not acknowledged."""
        self._producer.purge()

    def close(self) -> None:
        """Flush and close the producer."""
        self.flush()
        self._producer.close()


class Labeller:
    """Writes labels to a pipeline's topic, without waiting for the broker before ``close``."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._topic = physical(pipeline.name, LABELS)
        self._producer = producer(kafka)

    def send(self, label: Label) -> None:
        """Send a label."""
        self._producer.produce(self._topic, encode(label), label.id)
        self._producer.poll(0)

    def abandon(self) -> None:
        """Discard the labels that the broker has not acknowledged."""
        self._producer.purge()

    def close(self) -> None:
        """Wait until the broker has every label."""
        self._producer.flush(ACKNOWLEDGED_WITHIN_S)


class Commander:
    """Writes commands to a pipeline's control app and follows the results."""

    def __init__(self, kafka: KafkaConfig, pipeline: str) -> None:
        self._pipeline = pipeline
        self._results = Tail(kafka, physical(pipeline, COMMAND_RESULTS))
        self._producer = producer(kafka)

    def give(self, action: str, arguments: Mapping[str, str]) -> str:
        """Write a command and return its id."""
        command = Command(
            id=new_id(_sender()),
            pipeline=self._pipeline,
            action=action,
            arguments=arguments,
            issued_s=time.time(),
        )
        # The app in charge may be assigned this partition only, if others were added.
        topic = physical(self._pipeline, COMMANDS)
        self._producer.produce(topic, encode(command), command.id, partition=0)
        self._producer.poll(0)
        return command.id

    def results(self, timeout_s: float) -> list[CommandResult]:
        """Return the results that arrived, of any client's commands."""
        self._producer.poll(0)
        records = (decoded(value) for value in self._results.take(timeout_s))
        return [record for record in records if isinstance(record, CommandResult)]

    def result(
        self, command: str, timeout_s: float, said: Callable[[str], None] = lambda _: None
    ) -> CommandResult:
        """Return the result of one command; raises ``Unsuccessful`` after ``timeout_s``.

        ``said`` gets a word on a wait that takes longer than ``SLOW_AFTER_S``.
        """
        began_s = time.monotonic()
        slow_s, until = began_s + SLOW_AFTER_S, began_s + timeout_s
        while (now := time.monotonic()) < until:
            if now >= slow_s:
                said(f"the control app has not answered yet; waiting {timeout_s:g} s at most")
                slow_s = until
            for result in self.results(0.1):
                if result.id == command:
                    return result
        raise Unsuccessful(
            f"the control app did not answer within {timeout_s:g} s; check that it runs: "
            "`headrace status FILE`, else `headrace up FILE`"
        )

    def apply_policy(self, policy: str) -> None:
        """Apply a policy; raises ``Unsuccessful`` if that fails."""
        result = self.result(self.give("apply-policy", {"policy": policy}), POLICY_WITHIN_S)
        if not result.ok:
            raise Unsuccessful(f"policy {policy} was not applied: {result.message}")

    def close(self) -> None:
        """Close the Kafka clients."""
        self._producer.flush(WAIT_S)
        self._producer.close()
        self._results.close()


def ask_once(kafka: KafkaConfig, pipeline: Pipeline, query: Query, wait_s: float) -> Answer | None:
    """Send one query and return its answer; None if none arrives within ``wait_s``."""
    read = answer_reader(pipeline)
    with (
        closing(Tail(kafka, physical(pipeline.name, RESULTS))) as tail,
        Asker(kafka, pipeline) as asker,
    ):
        asker.ask(query)
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            asker.poll()
            _taken(asker.refused)
            for answer in answers_in(tail.take(0.1), read):
                if answer.id == query.id:
                    return answer
    return None


def _taken(refused: Mapping[str, str]) -> None:
    for reason in refused.values():
        raise BrokerError(f"the broker did not take the query: {reason}")


def retained_plans(kafka: KafkaConfig, pipeline: str) -> list[Plan]:
    """Return every plan of a pipeline that compaction keeps, oldest first."""
    records = map(decoded, read_kept(kafka, physical(pipeline, PLANS)).values())
    found = [r for r in records if isinstance(r, Plan) and r.pipeline == pipeline]
    return sorted(found, key=lambda plan: plan.epoch)


def _sender() -> str:
    """Return the sender of this process's commands, for `policy history`: "user@host"."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user[:40]}@{socket.gethostname()[:60]}"


def new_id(what: str) -> str:
    """Return a unique id that begins with ``what``."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


def decoded(value: bytes) -> Any:
    """Return the record in a value; None for a foreign record."""
    try:
        return decode(value)
    except CodecError:
        return None


def _value(message: Message) -> bytes:
    return message.value() or b""


def holds_record(kafka: KafkaConfig, message: Message) -> bool:
    """Return whether a message holds a record; raises ``BrokerError`` for an error that no retry
    mends, such as a lost right to the topic.

    Its reader commits nothing, so a right to the group is not needed.
    """
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return False
    if why := unreadable(kafka, error, message.topic() or "", "headrace.reader"):
        raise BrokerError(why)
    return False
