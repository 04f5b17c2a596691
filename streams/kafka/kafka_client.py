"""Facade of the client library; its errors become ``BrokerError`` with a sentence.

docs/reference/topics.md explains the settings.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from schemas.user_errors import NO_BROKER, HeadraceError
from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError
from streams.kafka.kafka_errors import FORBIDDEN, forbidden, turned_away, unreachable
from streams.topics import MAX_RECORD_BYTES, Topic

__all__ = ["BrokerError", "KafkaConfig", "KafkaConfigError"]

NOBODY_AFTER_S = 3.5  # an unreachable broker is reported within 5 s, process start included
POLL_S = 0.02
REPORT_TIMEOUT_MS = 1000
COPIES = 3  # replicas of every topic, given enough brokers
REPLICATION = "topics.replication.factor"  # property that overrides the number of replicas

Client = TypeVar("Client")
Key = TypeVar("Key")
Found = TypeVar("Found")

# A group's coordinator moves when a broker comes back, and first loads the committed offsets.
UNCOORDINATED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
OnError = Callable[[KafkaError], None]


class BrokerError(HeadraceError):
    """The broker cannot be used; the message names the attempt and the remedy."""

    exit_code = NO_BROKER


def admin(config: KafkaConfig, on_error: OnError | None = None) -> AdminClient:
    """Return a client for topics and offsets; raise ``KafkaConfigError``."""
    more = {} if on_error is None else {"error_cb": on_error}
    # Give up an address without an answer, and report it, before the user gives up.
    patience = {"socket.connection.setup.timeout.ms": 4000}
    return _made(
        AdminClient, config, {**patience, **config.client("admin"), "log_level": 0, **more}
    )


def producer(config: KafkaConfig, **more: Any) -> Producer:
    """Return an idempotent producer that sends immediately; raise ``KafkaConfigError``.

    A record waits up to ten minutes for a broker that is away; its input offset stays uncommitted
    meanwhile. If the broker refuses the user, ``poll`` and ``flush`` raise ``BrokerError``.
    """
    return _made(
        Producer,
        config,
        {
            "linger.ms": 0,
            "message.max.bytes": MAX_RECORD_BYTES,
            "delivery.timeout.ms": 600_000,
            "queue.buffering.max.messages": 200_000,
            **config.client("producer"),
            "acks": "all",
            "enable.idempotence": True,
            "error_cb": heeding(config),
            **more,
        },
    )


def report_producer(config: KafkaConfig, **more: Any) -> Producer:
    """Return a producer for reports, which expire after a second; the leader's copy confirms them.

    A report is obsolete after a second, and the next one contains all its counts.
    """
    quick = {
        "acks": 1,
        "enable.idempotence": False,
        "delivery.timeout.ms": REPORT_TIMEOUT_MS,
        "request.timeout.ms": REPORT_TIMEOUT_MS,
        "queue.buffering.max.messages": 1000,
    }
    return producer(config, **quick, **more)


def consumer(config: KafkaConfig, group: str, **more: Any) -> Consumer:
    """Return a consumer for manually assigned slots; ``group`` only names the committed offsets.

    Raise ``KafkaConfigError``. If the broker refuses the user, ``poll`` and ``consume`` raise
    ``BrokerError``.
    """
    return _made(
        Consumer,
        config,
        {
            # With the default of 500 a newly assigned slot waits half a second.
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 16_384,
            "message.max.bytes": MAX_RECORD_BYTES,
            "fetch.message.max.bytes": MAX_RECORD_BYTES,
            "fetch.max.bytes": 2 * MAX_RECORD_BYTES,
            **config.client("consumer"),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "error_cb": heeding(config),
            **more,
        },
    )


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


def heeding(config: KafkaConfig, told: OnError | None = None) -> OnError:
    """Return an ``error_cb`` that raises ``BrokerError`` for refused credentials.

    ``told`` receives every error first. librdkafka reports a wrong password only to ``error_cb``.
    """

    def raise_if_hopeless(error: KafkaError) -> None:
        if told is not None:
            told(error)
        sentence = turned_away(config, error)
        if sentence is not None:
            raise BrokerError(sentence)

    return raise_if_hopeless


def asked(
    config: KafkaConfig,
    ask: Callable[[AdminClient], Mapping[Key, "Future[Any]"]],
    timeout_s: float,
    nobody_s: float | None = None,
) -> dict[Key, Any]:
    """Return the broker's answer to an ``AdminClient`` request: per key a result or ``KafkaError``.

    Raise ``BrokerError`` at once if the broker refuses the user, after ``timeout_s`` without an
    answer, and after ``nobody_s`` if connecting failed.
    """
    errors: list[KafkaError] = []
    client = admin(config, errors.append)
    futures = ask(client)
    began = time.monotonic()
    while not all(future.done() for future in futures.values()):
        client.poll(POLL_S)
        for error in errors:
            heeding(config)(error)
        waited_s = time.monotonic() - began
        if waited_s > timeout_s or (errors and nobody_s is not None and waited_s > nobody_s):
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
        NOBODY_AFTER_S,
    )


def described(config: KafkaConfig, topics: Iterable[str], timeout_s: float) -> dict[str, Any]:
    """Return each topic's description with this user's operations, or its ``KafkaError``.

    Raise ``BrokerError`` if no broker answers.
    """
    names = TopicCollection(sorted(topics))
    return asked(
        config,
        lambda client: client.describe_topics(
            names, include_authorized_operations=True, request_timeout=timeout_s
        ),
        timeout_s,
    )


def may(description: Any, operation: AclOperation) -> bool:
    """Return whether a description permits an operation; one that lists none permits all."""
    return not description.authorized_operations or operation in description.authorized_operations


def ensure_topics(config: KafkaConfig, wanted: Iterable[Topic], timeout_s: float = 30.0) -> None:
    """Create the missing topics; skip those that this user may not describe.

    Raise ``BrokerError`` if no broker answers, a topic may not be created, or an existing one has
    too few partitions.
    """
    wanted = tuple(wanted)
    there = described(config, (topic.name for topic in wanted), timeout_s)
    missing: list[NewTopic] = []
    copies = 0
    for topic in wanted:
        found = there[topic.name]
        if not isinstance(found, KafkaError):
            _check_partitions(topic, len(found.partitions))
        elif found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            copies = copies or _copies(config, timeout_s)
            missing.append(_new_topic(topic, copies))
        elif found.code() not in FORBIDDEN:
            raise BrokerError(f"topic {topic.name!r} cannot be used: {found.str()}")
    if missing:
        _make(config, missing, timeout_s)


def _copies(config: KafkaConfig, timeout_s: float) -> int:
    """Return the replication factor of new topics: the property's, else three given three brokers,
    else one."""
    said = config.properties.get(REPLICATION)
    if said is not None:
        if not said.isdigit() or not int(said):
            raise KafkaConfigError(f"{REPLICATION} is {said!r}; write a number of brokers, as in 3")
        return int(said)
    cluster = asked(
        config,
        lambda client: {"": client.describe_cluster(request_timeout=timeout_s)},
        timeout_s,
    )[""]
    known = 0 if isinstance(cluster, KafkaError) else len(cluster.nodes)
    return COPIES if known >= COPIES else 1


def _new_topic(topic: Topic, copies: int) -> NewTopic:
    """Return the topic to create.

    With three replicas, two must have a record before it is acknowledged, and an out-of-sync
    replica never becomes the leader: acknowledged records survive the loss of any one broker.
    """
    settings = dict(topic.settings)
    if copies >= COPIES:
        settings["min.insync.replicas"] = str(copies - 1)
        settings["unclean.leader.election.enable"] = "false"
    return NewTopic(topic.name, topic.partitions, replication_factor=copies, config=settings)


def _check_partitions(topic: Topic, there: int) -> None:
    if there < topic.partitions:
        raise BrokerError(
            f"topic {topic.name!r} has {there} partitions, {topic.partitions} are "
            f"needed; add partitions (kafka-topics --alter) or lower `slots` in the file"
        )


def _make(config: KafkaConfig, missing: list[NewTopic], timeout_s: float) -> None:
    def create(client: AdminClient) -> Mapping[str, "Future[Any]"]:
        made: Mapping[str, Future[Any]] = client.create_topics(missing, operation_timeout=timeout_s)
        return made

    for name, made in asked(config, create, timeout_s).items():
        # Another role may have created it in the meantime.
        if not isinstance(made, KafkaError) or made.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        if made.code() in FORBIDDEN:
            raise BrokerError(
                f"topic {name!r} is missing, and {forbidden(config, 'Create', 'topic', name)}; "
                "or let the pipeline's operator make the topics with `headrace up FILE`"
            )
        raise BrokerError(f"topic {name!r} cannot be made: {made.str()}")


def partitions(config: KafkaConfig, timeout_s: float = 10.0) -> dict[str, int]:
    """Return the number of partitions of each topic that this user may describe.

    Raise ``BrokerError`` if no broker answers.
    """
    try:
        found = admin(config).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise BrokerError(unreachable(config, error.args[0])) from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def partitions_of(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> int:
    """Return a topic's number of partitions; wait for a topic that was just created.

    Raise ``BrokerError`` if the topic does not appear within ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    while (count := partitions(config).get(topic)) is None:
        if time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
        time.sleep(POLL_S)
    return count


def readable_partitions(config: KafkaConfig, topic: str, timeout_s: float = 10.0) -> int:
    """Return a topic's number of partitions, 0 if it does not exist.

    Raise ``BrokerError`` if this user may not read it or no broker answers.
    """
    found = described(config, (topic,), timeout_s)[topic]
    if not isinstance(found, KafkaError):
        if not may(found, AclOperation.READ):
            raise BrokerError(forbidden(config, "Read", "topic", topic))
        return len(found.partitions)
    if found.code() in FORBIDDEN:
        raise BrokerError(forbidden(config, "Read", "topic", topic))
    if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return 0
    raise BrokerError(f"topic {topic!r} cannot be read: {found.str()}")


def read_to_end(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> list[Message]:
    """Return every record of a small topic, oldest first within each partition."""
    reader = consumer(config, "headrace.reader")
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
    reader.assign([place])
    until = time.monotonic() + timeout_s
    while reader.position([place])[0].offset < high:
        if time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} could not be read within {timeout_s:g} s")
        found += [m for m in reader.consume(500, timeout=0.05) if not m.error()]
    return found


def watermarks(client: Consumer, place: TopicPartition, timeout_s: float = 30.0) -> tuple[int, int]:
    """Return the first and the end offset of a partition.

    Raise ``BrokerError`` after ``timeout_s``.
    """

    def ask() -> tuple[int, int]:
        low, high = client.get_watermark_offsets(place, timeout=timeout_s)
        return low, high

    return _once_led(place.topic, ask, timeout_s)


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

    Retries follow any error, or those with the codes ``only``. After a broker's return or a topic's
    creation there is no leader for a moment (seconds on a busy machine), for which the library does
    not wait. Raise ``BrokerError`` after ``timeout_s``.
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
    (librdkafka issues 3663 and 4605, seen with 2.16). Raise ``KafkaException``.
    """
    # The protocol encodes a log's beginning and end as two special times.
    asked = [TopicPartition(place.topic, place.partition, end) for place in places]
    found = _at_times(client, asked, timeout_s)
    return {(place.topic, place.partition): place.offset for place in found}


def _at_times(
    client: Consumer, asked: Sequence[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    found: list[TopicPartition] = client.offsets_for_times(list(asked), timeout=timeout_s)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
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
