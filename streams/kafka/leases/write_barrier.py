"""A barrier in a topic: once it is passed, every record written before it can be read.

Consumers read up to the high watermark, which every in-sync replica has reached. While a replica is
frozen, records that the leader has written are neither confirmed nor readable, for up to
``replica.lag.time.max.ms``. A reader cannot detect them, but a producer can: a record written after
them is confirmed only once they all can be read.

The barrier is the end of a transaction without records. The coordinator writes a marker, invisible
to consumers, to each of its partitions, and accepts the id's next transaction when every marker is
confirmed. A client adds a partition to a transaction by writing to it. So it writes a record that
the broker refuses, as its time stamp is too old for a topic whose records are leased
(``streams/topics.py``). Nothing is ever written.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from streams.kafka.admin.topic_copies import copies_of
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError, unadorned
from streams.kafka.missing_copies import MissingCopies
from streams.kafka.turn import TOO_OLD
from streams.observers.journal import tell

log = logging.getLogger("headrace.broker")
LEVELS = {"results.unsettled": logging.WARNING}

TRANSACTIONS = "__transaction_state"  # the brokers' own topic
TOO_OLD_MS = 1  # a time stamp of 1970
TRANSACTION_MS = 10_000
CALL_S = 10.0  # for one request; a frozen coordinator is replaced by then
# A lost replica is dropped within the brokers' default session timeout of 9 s.
DROPPED_S = 10.0


def pass_barrier(config: KafkaConfig, name: str, topic: str, within_s: float = 60.0) -> None:
    """Return once every record written to a topic so far can be read.

    ``name`` is the transactional id, of one process at a time. The topic must refuse old time
    stamps. A user without the right to the id waits ``DROPPED_S`` instead. Wait while copies of the
    topic or of the transactions' state are missing. Raise ``BrokerError`` if the brokers do not
    pass the barrier within ``within_s`` otherwise, or allow no transaction this long.
    """
    missing = MissingCopies(partial(copies_of, config, timeout_s=CALL_S))
    began_s = time.monotonic()
    while True:
        try:
            copies = _copies(config, topic)
            if max(copies) > 1:  # a single copy's records are readable at once
                _barrier(config, name, topic, len(copies))
            missing.look(time.monotonic(), None, tuple)  # logs that they are back
            return
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() in FORBIDDEN:
                _wait(config, name, topic)
                return
            if cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise BrokerError(
                    f"the brokers allow no transaction of {TRANSACTION_MS} ms, which egress needs "
                    "before it reads its answers back; raise transaction.max.timeout.ms on them"
                ) from error
            now = time.monotonic()
            missing.ask(now, {(topic, -1), (TRANSACTIONS, -1)})
            if now - max(began_s, missing.missed_s) > within_s:
                raise BrokerError(
                    f"it is not known which answers topic {topic!r} holds: {unadorned(cause)}; "
                    "check that every broker is well, then try again"
                ) from error


def _copies(config: KafkaConfig, topic: str) -> list[int]:
    """Return the number of copies of each partition; raise ``KafkaException``, also for a topic
    that the broker does not know, as just after its start."""
    client = consumer(config, "headrace.reader")
    try:
        found = client.list_topics(topic, timeout=CALL_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return [len(partition.replicas) for partition in found.partitions.values()]
    finally:
        client.close()


def _wait(config: KafkaConfig, name: str, topic: str) -> None:
    text = (
        f"{config.who} has no right to Write on transactional-id {name!r}, so it waits "
        f"{DROPPED_S:g} s before it reads back the existing answers; `headrace acls FILE` prints "
        "the ACLs that each role needs"
    )
    tell(log, LEVELS["results.unsettled"], "results.unsettled", text, topic=topic)
    time.sleep(DROPPED_S)


def _barrier(config: KafkaConfig, name: str, topic: str, partitions: int) -> None:
    """End a transaction on each partition; raise ``KafkaException`` if one was not part of it."""
    client = _transactional(config, name)
    for partition in range(partitions):  # a refusal ends the transaction for all its partitions
        told: list[KafkaError | None] = []
        client.begin_transaction()
        client.produce(
            topic, b"", partition=partition, timestamp=TOO_OLD_MS,
            on_delivery=lambda error, _: told.append(error),  # noqa: B023 - called in `flush`
        )  # fmt: skip
        client.flush(CALL_S)
        _check_refused(topic, told)
        client.abort_transaction(CALL_S)
    # The id can be used again only once the markers of its last transaction are confirmed.
    _transactional(config, name)


def _check_refused(topic: str, told: Sequence[KafkaError | None]) -> None:
    """Check that the broker refused the record, for which the partition was added."""
    error = told[0] if told else KafkaError(KafkaError._TIMED_OUT)
    if error is None:
        raise BrokerError(f"topic {topic!r} took a record of 1970; it does not refuse old stamps")
    if error.code() not in TOO_OLD:
        raise KafkaException(error)


def _transactional(config: KafkaConfig, name: str) -> Producer:
    timeouts = dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms"), TRANSACTION_MS)
    made = producer(config, **timeouts, **{"transactional.id": name})
    made.init_transactions(CALL_S)
    return made
