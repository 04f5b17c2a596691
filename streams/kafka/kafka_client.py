"""Clients of the Kafka library and one request to the broker; failures raise ``BrokerError``.

docs/reference/topics.md explains the settings.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError
from streams.kafka.kafka_errors import BrokerError, turned_away, unreachable
from streams.topics import MAX_RECORD_BYTES

NO_ANSWER_AFTER_S = 3.5  # an unreachable broker is reported within 5 s, process start included
POLL_S = 0.02
SEEK_S = 5.0  # longest wait for an assignment
LED_S = 600.0  # a client forgets leaders after ``metadata.max.age.ms``, 900 s
LEADERS_S = 0.5  # longest wait for the leaders of newly assigned slots
REPORT_TIMEOUT_MS = 1000
# A connection whose peer vanished silently is given up after this; by default after 60 s.
SOCKET_TIMEOUT_MS = 6000

Client = TypeVar("Client")
Key = TypeVar("Key")


OnError = Callable[[KafkaError], None]
# A client's callbacks by the names of the library's settings (``error_cb``, ``throttle_cb``).
Callbacks = Mapping[str, Callable[[Any], None]]
NO_CALLBACKS: Callbacks = {}


def admin(config: KafkaConfig, on_error: OnError | None = None) -> AdminClient:
    """Return a client for topics and offsets; raise ``KafkaConfigError``."""
    more = {} if on_error is None else {"error_cb": on_error}
    # Give up an unresponsive address, and report it, before the user gives up.
    patience = {"socket.connection.setup.timeout.ms": 4000}
    return _made(
        AdminClient, config, {**patience, **config.client("admin"), "log_level": 0, **more}
    )


def producer(config: KafkaConfig, **more: Any) -> Producer:
    """Return an idempotent producer that sends immediately; raise ``KafkaConfigError``.

    A record waits up to ten minutes for a broker that is away. If the broker refuses the user,
    ``poll`` and ``flush`` raise ``BrokerError``.
    """
    settings = {
        "linger.ms": 0,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "delivery.timeout.ms": 600_000,
        "queue.buffering.max.messages": 200_000,
        **config.client("producer"),
        # With a lower limit, a role would end repeatedly at a record that its topic accepts.
        "message.max.bytes": MAX_RECORD_BYTES,
        "acks": "all",
        "enable.idempotence": True,
        "error_cb": fatal_errors(config),
        **more,
    }
    if "delivery.timeout.ms" in more:  # the properties may use the other name of this setting
        settings.pop("message.timeout.ms", None)
    return _made(Producer, config, settings)


def report_producer(config: KafkaConfig, **more: Any) -> Producer:
    """Return a producer for reports, which expire after a second; the leader alone confirms them.

    A report is obsolete after a second, and the next one contains all its counts.
    """
    quick = {
        **heartbeat_id(config),
        "acks": 1,
        "enable.idempotence": False,
        "delivery.timeout.ms": REPORT_TIMEOUT_MS,
        "request.timeout.ms": REPORT_TIMEOUT_MS,
        "queue.buffering.max.messages": 1000,
    }
    return producer(config, **quick, **more)


def heartbeat_id(config: KafkaConfig) -> dict[str, str]:
    """Return the client id of those that write and read reports and leases.

    A quota on the id of the others does not delay them: a node whose reports are late counts as
    lost, and an egress that has not read its fresh lease sends no answer.
    """
    return {"client.id": f"{config.client('producer')['client.id']}-heartbeats"}


def consumer(config: KafkaConfig, group: str, **more: Any) -> Consumer:
    """Return a consumer for manually assigned slots; ``group`` only names the committed offsets.

    Raise ``KafkaConfigError``. If the broker refuses the user, ``poll`` and ``consume`` raise
    ``BrokerError``.
    """
    # With the default of 500 a newly assigned slot waits half a second.
    return _consumer(config, group, 50, more)


def follower(config: KafkaConfig, group: str, **more: Any) -> Consumer:
    """Return a consumer as ``consumer`` does, for slots that stay: it fetches a tenth as often."""
    return _consumer(config, group, 500, more)


def _consumer(config: KafkaConfig, group: str, wait_ms: int, more: Mapping[str, Any]) -> Consumer:
    """Return a consumer; the broker holds its fetches without records for ``wait_ms``."""
    return _made(
        Consumer,
        config,
        {
            "fetch.wait.max.ms": wait_ms,
            "fetch.queue.backoff.ms": 5,
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "fetch.error.backoff.ms": 100,
            "queued.max.messages.kbytes": 16_384,
            "message.max.bytes": MAX_RECORD_BYTES,
            "fetch.message.max.bytes": MAX_RECORD_BYTES,
            "fetch.max.bytes": 2 * MAX_RECORD_BYTES,
            **config.client("consumer"),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "error_cb": fatal_errors(config),
            **more,
        },
    )


class KnownLeaders:
    """The topics whose leaders a consumer knows.

    A consumer that is assigned a slot without a known leader looks for it only 0.5 to 1 s later
    (librdkafka 2.16). It still does so later if no broker answers in time.
    """

    def __init__(self, client: Consumer) -> None:
        self._client = client
        self._asked_s: dict[str, float] = {}

    def ask(self, topics: Iterable[str]) -> None:
        """Let the client know the leaders of these topics.

        Before the first assignment an answer takes 1 ms; later it waits behind a fetch of the same
        connection, for up to ``fetch.wait.max.ms``.
        """
        now = time.monotonic()
        with suppress(KafkaException):
            for topic in dict.fromkeys(topics):
                if now - self._asked_s.get(topic, -inf) > LED_S:
                    self._client.list_topics(topic, timeout=LEADERS_S)
                    self._asked_s[topic] = now


def assign_more(client: Consumer, places: Sequence[TopicPartition]) -> None:
    """Read slots besides the present ones, from now on; raise ``KafkaException`` as ``read_from``
    does."""
    KnownLeaders(client).ask(place.topic for place in places)
    read_from(client.incremental_assign, client, places)


def read_from(
    assign: Callable[[list[TopicPartition]], object],
    client: Consumer,
    places: Sequence[TopicPartition],
) -> None:
    """Assign slots to a client so that it compares their leader epochs with the log's.

    If the client knows a slot's leader, it does so only on a seek. Until then the slot is assigned
    at its log's start, and none of those records is delivered: from an offset beyond the log's end
    the client could go back to the start after the seek. Raise ``KafkaException`` if a slot cannot
    be sought within ``SEEK_S``.
    """
    compared = [place for place in places if place.leader_epoch is not None]
    assign([*_log_starts(client, compared), *(p for p in places if p.leader_epoch is None)])
    until_s = time.monotonic() + SEEK_S
    for place in compared:
        while not _sought(client, place, time.monotonic() > until_s):
            time.sleep(POLL_S)


def _log_starts(client: Consumer, places: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return slots at the start of their logs; at their own places once no broker answers."""
    found: list[TopicPartition] = []
    with suppress(KafkaException):
        for place in places:
            start, _ = client.get_watermark_offsets(place, timeout=LEADERS_S)
            found.append(TopicPartition(place.topic, place.partition, start))
    return [*found, *places[len(found) :]]


def _sought(client: Consumer, place: TopicPartition, last: bool) -> bool:
    try:
        client.seek(place)
    except KafkaException:  # its assignment waits for the end of another one
        if last:
            raise
        return False
    return True


def available(client: Consumer, timeout_s: float, most: int) -> list[Message]:
    """Return the messages that have arrived, errors included, after a wait for the first one.

    The client's ``consume(most, timeout_s)`` would wait for ``most`` messages or the whole time.
    """
    first = client.poll(timeout_s)
    return [] if first is None else [first, *client.consume(most - 1, 0)]


def read_headers(message: Message) -> tuple[list[tuple[str, bytes]] | None, str]:
    """Return a message's headers, None without any, and what is wrong with them, or "".

    Call it once for a message. The client raises ``SystemError`` for a name that is not UTF-8, and
    its next call returns tuples that crash the process.
    """
    try:
        headers: list[tuple[str, bytes]] | None = message.headers()
    except SystemError:
        return None, "the name of a header is not UTF-8; write it as text"
    return headers, ""


def _made(
    make: Callable[[dict[str, Any]], Client], config: KafkaConfig, settings: dict[str, Any]
) -> Client:
    try:
        return make(settings)
    except (KafkaException, TypeError, ValueError) as error:
        cause = error.args[0]
        reason = cause.str() if isinstance(cause, KafkaError) else str(cause)
        raise KafkaConfigError(
            config.hide(f"the client library does not take the Kafka properties: {reason}")
        ) from None


def fatal_errors(config: KafkaConfig, first: OnError | None = None) -> OnError:
    """Return an ``error_cb`` that raises ``BrokerError`` for refused credentials.

    ``first`` receives every error first. librdkafka reports a wrong password only to ``error_cb``.
    """

    def raise_if_hopeless(error: KafkaError) -> None:
        if first is not None:
            first(error)
        sentence = turned_away(config, error)
        if sentence is not None:
            raise BrokerError(sentence)

    return raise_if_hopeless


def asked(
    config: KafkaConfig,
    ask: Callable[[AdminClient], Mapping[Key, "Future[Any]"]],
    timeout_s: float,
    unreachable_s: float | None = None,
) -> dict[Key, Any]:
    """Return the broker's answer to an ``AdminClient`` request: per key a result or ``KafkaError``.

    Raise ``BrokerError`` at once if the broker refuses the user, after ``timeout_s`` without an
    answer, and after ``unreachable_s`` if connecting failed.
    """
    errors: list[KafkaError] = []
    client = admin(config, errors.append)
    futures = ask(client)
    began = time.monotonic()
    while not all(future.done() for future in futures.values()):
        client.poll(POLL_S)
        for error in errors:
            fatal_errors(config)(error)
        waited_s = time.monotonic() - began
        if waited_s > timeout_s or (
            errors and unreachable_s is not None and waited_s > unreachable_s
        ):
            raise BrokerError(unreachable(config, errors[-1] if errors else None))
    return {key: _outcome(config, future) for key, future in futures.items()}


def _outcome(config: KafkaConfig, future: "Future[Any]") -> Any:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, KafkaException):
        raise error
    cause: KafkaError = error.args[0]
    if cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
        raise BrokerError(unreachable(config, cause)) from error
    return cause


def reach(config: KafkaConfig, timeout_s: float) -> None:
    """Return once a broker accepts this user; raise ``BrokerError``."""
    asked(
        config,
        lambda client: {"": client.describe_cluster(request_timeout=timeout_s)},
        timeout_s,
        NO_ANSWER_AFTER_S,
    )
