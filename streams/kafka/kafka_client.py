"""The client library behind a few functions; its errors turned into sentences.

Facts behind the settings: docs/reference/topics.md.
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

NOBODY_AFTER_S = 3.5  # a person is told within 5 s, with what the process takes to start
POLL_S = 0.02
REPORT_TIMEOUT_MS = 1000
COPIES = 3  # of every topic, where there are as many brokers
REPLICATION = "topics.replication.factor"  # in the client file: another number of copies

Client = TypeVar("Client")
Key = TypeVar("Key")
Found = TypeVar("Found")

# A group's coordinator moves when a broker comes back, and loads what was committed.
UNCOORDINATED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
OnError = Callable[[KafkaError], None]


class BrokerError(HeadraceError):
    """The broker cannot be used; the message says what was tried and what to do."""

    exit_code = NO_BROKER


def admin(config: KafkaConfig, on_error: OnError | None = None) -> AdminClient:
    """A client for topics and offsets. Raises ``KafkaConfigError``."""
    more = {} if on_error is None else {"error_cb": on_error}
    # An address where nobody answers at all is given up, and said, before the person is.
    patience = {"socket.connection.setup.timeout.ms": 4000}
    return _made(
        AdminClient, config, {**patience, **config.client("admin"), "log_level": 0, **more}
    )


def producer(config: KafkaConfig, **more: Any) -> Producer:
    """An idempotent producer that sends at once. Raises ``KafkaConfigError``.

    A record waits ten minutes for a broker that is away: nothing acknowledged to anybody yet
    is given up sooner, because its input offset stays uncommitted all the while. A broker that
    turns the user away is a ``BrokerError`` of ``poll`` and ``flush``.
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
    """A producer for reports: one that is not out after a second says nothing any more, and the
    next one has all its counts. It waits for one copy, not for all."""
    quick = {
        "acks": 1,
        "enable.idempotence": False,
        "delivery.timeout.ms": REPORT_TIMEOUT_MS,
        "request.timeout.ms": REPORT_TIMEOUT_MS,
        "queue.buffering.max.messages": 1000,
    }
    return producer(config, **quick, **more)


def consumer(config: KafkaConfig, group: str, **more: Any) -> Consumer:
    """A consumer for slots assigned by hand; ``group`` only names the committed offsets.

    Raises ``KafkaConfigError``; a broker that turns the user away is a ``BrokerError`` of
    ``poll`` and ``consume``.
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
    """An ``error_cb``, which is where the library tells of a wrong password: raises
    ``BrokerError`` for it. ``told`` hears of every error first."""

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
    """What the broker answers to a question of ``AdminClient``: for each key the result, or the
    ``KafkaError`` that it gave.

    Raises ``BrokerError`` at once where the broker turns the user away, after ``timeout_s`` where
    it does not answer, and after ``nobody_s`` where by then it could not even be reached.
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
    """Return once a broker answers that lets this user in; raises ``BrokerError``."""
    asked(
        config,
        lambda client: {"": client.describe_cluster(request_timeout=timeout_s)},
        timeout_s,
        NOBODY_AFTER_S,
    )


def described(config: KafkaConfig, topics: Iterable[str], timeout_s: float) -> dict[str, Any]:
    """What the broker tells of each topic, with what this user may do there, or a ``KafkaError``.

    Raises ``BrokerError`` where no broker answers.
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
    """Whether a description allows it; brokers that do not tell are taken to allow it."""
    return not description.authorized_operations or operation in description.authorized_operations


def ensure_topics(config: KafkaConfig, wanted: Iterable[Topic], timeout_s: float = 30.0) -> None:
    """Make the topics that are missing. Those that this user may not even see are passed over.

    Raises ``BrokerError`` where no broker answers, where a topic is not allowed, and where one
    exists with fewer partitions than are needed.
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
    """How many copies new topics have: what the client file says, else three where there are
    three brokers, else one."""
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
    """With three copies, two must have a record before it is acknowledged, and a broker that has
    missed some never becomes the leader: what was acknowledged survives any one broker."""
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
        # Another role may have made it in the meantime.
        if not isinstance(made, KafkaError) or made.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        if made.code() in FORBIDDEN:
            raise BrokerError(
                f"topic {name!r} is missing, and {forbidden(config, 'Create', 'topic', name)}; "
                "or let the pipeline's operator make the topics with `headrace up FILE`"
            )
        raise BrokerError(f"topic {name!r} cannot be made: {made.str()}")


def partitions(config: KafkaConfig, timeout_s: float = 10.0) -> dict[str, int]:
    """How many partitions each topic has, of those that this user may see.

    Raises ``BrokerError`` where no broker answers.
    """
    try:
        found = admin(config).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise BrokerError(unreachable(config, error.args[0])) from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def partitions_of(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> int:
    """How many partitions a topic has. One that was made just now takes the broker a moment to tell
    of; raises ``BrokerError`` where it does not within ``timeout_s``."""
    until = time.monotonic() + timeout_s
    while (count := partitions(config).get(topic)) is None:
        if time.monotonic() > until:
            raise BrokerError(f"topic {topic!r} is not on the broker; run `headrace up FILE` first")
        time.sleep(POLL_S)
    return count


def readable_partitions(config: KafkaConfig, topic: str, timeout_s: float = 10.0) -> int:
    """How many partitions a topic has, 0 if there is none.

    Raises ``BrokerError`` where this user may not read it, or no broker answers.
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
    """Every record of a small topic, oldest first within each partition."""
    reader = consumer(config, "headrace.reader")
    try:
        count = readable_partitions(config, topic, timeout_s)
        return [m for p in range(count) for m in _read_partition(reader, topic, p, timeout_s)]
    finally:
        reader.close()


def read_kept(config: KafkaConfig, topic: str, timeout_s: float = 30.0) -> dict[bytes, bytes]:
    """What a small compacted topic is to keep: the newest value of each key, less what is deleted,
    whether or not compaction has come that far."""
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
    """The first offset of a partition and the one behind its last record.

    Raises ``BrokerError`` after ``timeout_s``.
    """

    def ask() -> tuple[int, int]:
        low, high = client.get_watermark_offsets(place, timeout=timeout_s)
        return low, high

    return _once_led(place.topic, ask, timeout_s)


def offset_since(
    client: Consumer, place: TopicPartition, since_s: float, timeout_s: float = 30.0
) -> int | None:
    """The offset of a partition's first record from ``since_s`` (epoch seconds) on, if any.

    Raises ``BrokerError`` after ``timeout_s``.
    """
    stamp = TopicPartition(place.topic, place.partition, int(since_s * 1e3))

    def ask() -> int | None:
        (found,) = _at_times(client, [stamp], timeout_s)
        return int(found.offset) if found.offset >= 0 else None

    return _once_led(place.topic, ask, timeout_s)


def _once_led(
    topic: str, ask: Callable[[], Found], timeout_s: float, only: Collection[int] = ()
) -> Found:
    """What a partition's leader says, or a group's coordinator; tried again after any error, or
    after those of the codes ``only``.

    A broker that has just come back, or a topic that was made just now, has no leader for a
    moment (seconds on a busy machine), which the library does not wait for.
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
    """Where the logs of partitions begin (``OFFSET_BEGINNING``) or end (``OFFSET_END``).

    Asked of a consumer, as ``done_offsets`` is, which for this reads nothing and joins no group:
    librdkafka's admin client aborts the process where a broker goes away while it asks for a
    group's offsets (librdkafka issues 3663 and 4605, seen with 2.16). Raises ``KafkaException``.
    """
    # Where a log begins or ends is, to the protocol, one of two special times.
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
    """What the client's group has committed, where it has. Raises ``KafkaException``."""
    asked = [TopicPartition(place.topic, place.partition) for place in places]
    found = client.committed(asked, timeout=timeout_s)
    return {(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}


def committed(client: Consumer, topic: str, slots: Iterable[int], timeout_s: float = 30.0) -> Any:
    """The committed offsets of some slots as ``TopicPartition``, the beginning where none is.

    Raises ``BrokerError``, after ``timeout_s`` where the group has no coordinator.
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
