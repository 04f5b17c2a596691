"""A role whose records wait for copies on a lost broker goes on when that is back."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from headrace.broker import local_broker as local
from schemas.effects import LEASES
from streams.kafka import missing_copies, stalled_sends
from streams.kafka.admin.topic_copies import IN_SYNC, copies_of
from streams.kafka.kafka_client import admin, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.leases import egress_lease
from streams.kafka.leases.egress_lease import EgressLease
from streams.kafka.leases.write_barrier import TRANSACTIONS, pass_barrier
from streams.kafka.topic_contents import read_to_end
from streams.kafka.transport import KafkaTransport
from streams.topics import STAMP_SETTINGS, Stamps, physical

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WITHIN_S = 90.0
LOST = 3  # a node
# Topics: two want all three copies, one has its own on two nodes, and one on the lost node alone.
SHORT, LEASED, WHOLE, LED_BY_NONE = "short", physical("p", LEASES), "whole", "led-by-none"
FENCED, STAMPED = "fenced", "stamped"  # refuse old stamps; the first one wants all copies, too


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("copies")
    with local.borrow(home, nodes=3):
        yield home


def make_topics(kafka: KafkaConfig) -> None:
    all_copies, stamped = {IN_SYNC: "3"}, STAMP_SETTINGS[Stamps.BROKER]
    fenced = STAMP_SETTINGS[Stamps.LEASE]
    wanted = [
        NewTopic(SHORT, 1, replica_assignment=[[1, 2, LOST]], config=all_copies),
        NewTopic(LEASED, 1, replica_assignment=[[1, 2, LOST]], config={**all_copies, **stamped}),
        NewTopic(FENCED, 1, replica_assignment=[[1, 2, LOST]], config={**all_copies, **fenced}),
        NewTopic(STAMPED, 1, replica_assignment=[[1, 2, LOST]], config={IN_SYNC: "1", **fenced}),
        NewTopic(WHOLE, 1, replica_assignment=[[1, 2]], config={IN_SYNC: "1"}),
        NewTopic(LED_BY_NONE, 1, replica_assignment=[[LOST]]),
    ]
    client = admin(kafka)
    for made in client.create_topics(wanted).values():
        made.result(WITHIN_S)


@pytest.fixture
def kafka(home: Path) -> KafkaConfig:
    """Return the cluster with one node lost."""
    running = local.start(home, nodes=3)
    kafka = KafkaConfig(running.bootstrap)
    make_topics(kafka)
    pass_barrier(kafka, "first", STAMPED)  # makes the topic of the transactions' state
    want_all_copies(kafka, TRANSACTIONS)
    lost = running.nodes[LOST - 1]
    assert lost is not None
    os.kill(lost, signal.SIGKILL)
    return kafka


def want_all_copies(kafka: KafkaConfig, topic: str) -> None:
    """Let the topic take records only while all of its copies are in sync."""
    change = ConfigEntry(IN_SYNC, "3", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    client = admin(kafka)
    for changed in client.incremental_alter_configs([resource]).values():
        changed.result(WITHIN_S)


def take_turns(transport: KafkaTransport, kafka: KafkaConfig, holds: Callable[[], bool]) -> None:
    """Take turns, and read a new record in each, until a condition holds."""
    source, until_s = producer(kafka), time.monotonic() + WITHIN_S
    transport.end_turn(time.time())
    while not holds():
        assert time.monotonic() < until_s
        source.produce(WHOLE, b"x")
        source.poll(0)
        transport.fetch(0.05)
        transport.end_turn(time.time())
    assert source.flush(WITHIN_S) == 0


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """Return the lines of an event."""
    return [r.getMessage() for r in caplog.records if r.event == event]  # type: ignore[attr-defined]


def test_an_egress_that_starts_waits_for_the_copies_of_leases(
    home: Path,
    kafka: KafkaConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended after 60 s, with a line that named no reason."""
    caplog.set_level(logging.INFO, "headrace.broker")
    monkeypatch.setattr(egress_lease, "ASK_S", 1.0)
    monkeypatch.setattr(egress_lease, "CLAIM_WITHIN_S", 3.0)
    monkeypatch.setattr(missing_copies, "REMIND_S", 10.0)
    lease, until_s = EgressLease(kafka, "p", [0], "egress-0"), time.monotonic() + WITHIN_S
    with ThreadPoolExecutor(1) as beside:
        acquired = beside.submit(lease.acquire)
        while len(told(caplog, "broker.copies_missing")) < 2:
            assert not wait([acquired], 0.1).done
            assert time.monotonic() < until_s
        monkeypatch.setattr(egress_lease, "CLAIM_WITHIN_S", WITHIN_S)
        local.start(home, nodes=3)
        acquired.result(WITHIN_S)
    assert lease.fresh
    assert len(told(caplog, "broker.copies_back")) == 1
    lease.end(confirmed=True)


@pytest.mark.parametrize(
    ("topic", "lacking"), [(FENCED, f"{TRANSACTIONS}, {FENCED}"), (STAMPED, TRANSACTIONS)]
)
def test_an_egress_that_starts_waits_for_the_copies_of_its_answers_or_of_transactions(
    topic: str,
    lacking: str,
    home: Path,
    kafka: KafkaConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended after 60 s, with a line that named no reason."""
    caplog.set_level(logging.INFO, "headrace.broker")
    monkeypatch.setattr(missing_copies, "REMIND_S", 20.0)
    until_s = time.monotonic() + WITHIN_S
    with ThreadPoolExecutor(1) as beside:
        passed = beside.submit(pass_barrier, kafka, "barrier", topic, within_s=15.0)
        while len(told(caplog, "broker.copies_missing")) < 2:
            assert not wait([passed], 0.1).done
            assert time.monotonic() < until_s
        local.start(home, nodes=3)
        passed.result(WITHIN_S)
    assert told(caplog, "broker.copies_missing")[-1].startswith(f"{lacking}: the brokers take no")
    assert len(told(caplog, "broker.copies_back")) == 1


def test_a_role_waits_for_missing_copies_and_goes_on_when_they_are_back(
    home: Path,
    kafka: KafkaConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ended every 20 s until then, although its other topics delivered."""
    monkeypatch.setattr(missing_copies, "ASK_AFTER_S", 0.5)
    monkeypatch.setattr(stalled_sends, "STALLED_S", 3.0)
    caplog.set_level(logging.INFO, "headrace.broker")
    with closing(KafkaTransport(kafka, "roles")) as transport, ThreadPoolExecutor(1) as beside:
        transport.assign([(WHOLE, 0)], [], commits=True)
        transport.send(SHORT, b"work", 0, "")
        transport.send(SHORT, b"more", 0, "")
        transport.done((WHOLE, 0), 1, "note")
        long_s = time.time() + 3 * stalled_sends.STALLED_S
        take_turns(transport, kafka, lambda: transport._missing.missed_s > long_s)
        assert [each.led for each in copies_of(kafka, {(LED_BY_NONE, 0)}, WITHIN_S)] == [False]
        back = beside.submit(local.start, home, nodes=3)
        take_turns(transport, kafka, lambda: not transport._missing.missing)
        back.result(WITHIN_S)
    assert [m.value() for m in read_to_end(kafka, SHORT)] == [b"work", b"more"]
    missing = told(caplog, "broker.copies_missing")[0]
    assert f"the 3 copies of {SHORT}-0 2 are in sync, and its min.insync.replicas is 3" in missing
    assert len(told(caplog, "broker.copies_back")) == 1
