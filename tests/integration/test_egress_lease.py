"""Egress leases on a real broker: records of a replaced holder are refused."""

import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterable

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from schemas.effects import LEASES, RESULTS
from streams.fencing import LeaseLost
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.admin.topic_settings import set_stamps
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.leases.egress_lease import EgressLease
from streams.kafka.topic_contents import read_to_end
from streams.kafka.transport import KafkaTransport
from streams.topics import STAMPED_BY, Stamps, physical, topics
from tests.builders import a_pipeline

pytestmark = pytest.mark.kafka


@pytest.fixture
def name(broker: str) -> str:
    pipeline = a_pipeline({"read": []}, name=f"lease-{uuid.uuid4().hex[:8]}", egress_partitions=2)
    ensure_topics(KafkaConfig(broker), topics(pipeline))
    return pipeline.name


def acquired(kafka: KafkaConfig, pipeline: str, *partitions: int) -> EgressLease:
    lease = EgressLease(kafka, pipeline, partitions, "egress-0")
    assert lease.living_holder() == ""
    lease.acquire()
    return lease


def write(kafka: KafkaConfig, topic: str, stamp_ms: int) -> KafkaError | None:
    """Write a record with this stamp; return the broker's error."""
    errors: list[KafkaError | None] = []

    def told(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    client = producer(kafka)
    client.produce(topic, b"answer", partition=0, timestamp=stamp_ms, on_delivery=told)
    assert client.flush(30) == 0
    return errors[0]


def frozen(lease: EgressLease) -> None:
    """Stop the lease's thread without a release, like SIGSTOP or a network partition."""
    lease.end(confirmed=False)


def test_records_of_a_replaced_holder_are_refused(broker: str, name: str) -> None:
    kafka, results = KafkaConfig(broker), physical(name, RESULTS)
    first = acquired(kafka, name, 0, 1)
    frozen(first)
    second = acquired(kafka, name, 0, 1)
    error = write(kafka, results, first.stamp_ms)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP
    assert write(kafka, results, second.stamp_ms) is None
    second.end(confirmed=True)


def test_a_lease_that_the_broker_does_not_stamp_is_refused(broker: str, name: str) -> None:
    """An egress whose clock was ahead stamped its answers ahead of the broker's clock, which took
    them long after another egress had replaced it."""
    kafka, topic = KafkaConfig(broker), physical(name, LEASES)
    by_writers = ConfigEntry(
        STAMPED_BY, "CreateTime", ConfigSource.DYNAMIC_TOPIC_CONFIG,
        incremental_operation=AlterConfigOpType.SET,
    )  # fmt: skip
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[by_writers])
    client = admin(kafka)
    (altered,) = client.incremental_alter_configs([change]).values()
    altered.result(30)
    with pytest.raises(BrokerError, match=f"{topic} --add-config {STAMPED_BY}=LogAppendTime"):
        acquired(kafka, name, 0)


def test_a_living_holder_is_heard_and_one_that_loses_a_partition_ends(
    broker: str, name: str
) -> None:
    kafka = KafkaConfig(broker)
    first = acquired(kafka, name, 0)
    second = EgressLease(kafka, name, (0, 1), "egress-0")
    assert second.living_holder() == first.holder
    second.acquire()  # as if two had started at the same time
    first._thread.join(30)
    with pytest.raises(LeaseLost, match="has taken over partitions of the outputs topic"):
        first.check()
    second.check()
    second.end(confirmed=True)


HOLDS = """
import sys
from streams.fencing import LeaseLost
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.leases.egress_lease import EgressLease

lease = EgressLease(KafkaConfig(sys.argv[1]), sys.argv[2], (0, 1), "egress-0")
lease.acquire()
print("held", flush=True)
lease._thread.join(60)
try:
    lease.check()
except LeaseLost as lost:
    print(lost, flush=True)
"""


def test_a_frozen_holder_ends_even_if_its_successors_claim_was_deleted(
    broker: str, name: str
) -> None:
    """This happens on a host that is suspended for longer than the topic's retention."""
    kafka, topic = KafkaConfig(broker), physical(name, LEASES)
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDS, broker, name], stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    first.send_signal(signal.SIGSTOP)
    second = acquired(kafka, name, 0, 1)
    client, place = admin(kafka), TopicPartition(topic, 0, len(read_to_end(kafka, topic)))
    client.delete_records([place])[place].result(20)
    first.send_signal(signal.SIGCONT)
    told, _ = first.communicate(timeout=90)
    assert "has taken over" in told or "were deleted" in told
    second.check()
    second.end(confirmed=True)


class HandLease:
    """A lease that a test renews; each stamp of ``first`` is used once before the others."""

    place = ("leases", 0)

    def __init__(self, stamped: str, stamp_ms: int, first: Iterable[int] = ()) -> None:
        self.stamped, self.renewed_ms, self.fresh = stamped, stamp_ms, True
        self._first = deque(first)

    @property
    def stamp_ms(self) -> int:
        return self._first.popleft() if self._first else self.renewed_ms

    def check(self) -> None: ...
    def settle(self) -> None: ...
    def end(self, *, confirmed: bool) -> None:
        self.confirmed = confirmed


def held(transport: KafkaTransport, lease: HandLease, count: int) -> None:
    """Take turns until ``count`` records wait for the lease, which is not renewed meanwhile."""
    transport.end_turn(time.time())
    lease.fresh, until_s = False, time.monotonic() + 30
    while len(transport._sender._window) < count:
        transport.end_turn(time.time())
        assert time.monotonic() < until_s


def settled(transport: KafkaTransport) -> None:
    """Take turns until every record is confirmed."""
    until_s = time.monotonic() + 30
    transport.end_turn(time.time())
    while transport.unsettled:
        transport.end_turn(time.time())
        assert time.monotonic() < until_s


def test_an_answer_that_came_too_late_is_sent_again_with_the_renewed_lease(
    broker: str, name: str
) -> None:
    kafka, results = KafkaConfig(broker), physical(name, RESULTS)
    now_ms = int(time.time() * 1e3)
    lease = HandLease(results, now_ms, first=[now_ms - 60_000] * 3)
    transport = KafkaTransport(kafka, "lease", lease)
    for number in range(6):  # all in one batch, because the producer must connect first
        transport.send(results, b"answer", 0, f"q{number}")
    held(transport, lease, 3)
    assert transport.unsettled
    lease.renewed_ms, lease.fresh = int(time.time() * 1e3), True
    settled(transport)
    transport.close()
    assert lease.confirmed
    keys = sorted(m.key() for m in read_to_end(kafka, results))
    assert keys == [b"q%d" % number for number in range(6)]


def test_an_answer_that_was_written_before_its_repetition_was_refused_is_not_sent_again(
    broker: str, name: str
) -> None:
    """A producer repeats a request if the leader dies before it confirms the request."""
    kafka, results = KafkaConfig(broker), physical(name, RESULTS)
    lease = HandLease(results, int(time.time() * 1e3))
    transport = KafkaTransport(kafka, "lease", lease)
    transport.send(results, b"written", 0, "q0")
    settled(transport)
    lease.renewed_ms = int((time.time() - 60) * 1e3)
    transport.send(results, b"written", 0, "q0")
    transport.send(results, b"never written", 0, "q1")
    held(transport, lease, 1)
    lease.renewed_ms, lease.fresh = int(time.time() * 1e3), True
    settled(transport)
    transport.close()
    found = [(m.key(), m.value()) for m in read_to_end(kafka, results)]
    assert found == [(b"q0", b"written"), (b"q1", b"never written")]


def test_an_answer_waits_while_the_lease_is_not_fresh(broker: str, name: str) -> None:
    """Without a fresh lease the broker may refuse its stamp by the time it arrives."""
    kafka, results = KafkaConfig(broker), physical(name, RESULTS)
    lease = HandLease(results, int((time.time() - 60) * 1e3))
    lease.fresh = False
    transport = KafkaTransport(kafka, "lease", lease)
    transport.send(results, b"answer", 0, "q0")
    for _ in range(3):
        transport.end_turn(time.time())
    assert transport.unsettled
    lease.renewed_ms, lease.fresh = int(time.time() * 1e3), True
    settled(transport)
    transport.close()
    assert [m.timestamp()[1] for m in read_to_end(kafka, results)] == [lease.renewed_ms]


def test_a_results_topic_created_before_leases_existed_gets_the_limit(broker: str) -> None:
    kafka, topic = KafkaConfig(broker), f"old-{uuid.uuid4().hex[:8]}"
    client = admin(kafka)
    client.create_topics([NewTopic(topic, 1)])[topic].result(20)
    assert set_stamps(kafka, topic, Stamps.LEASE)
    until_s = time.monotonic() + 20  # the broker confirms the setting before it applies it
    while (error := write(kafka, topic, int((time.time() - 60) * 1e3))) is None:
        assert time.monotonic() < until_s
    assert error.code() == KafkaError.INVALID_TIMESTAMP
