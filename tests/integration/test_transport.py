"""The transport, with sends that stay unconfirmed while a real broker may or may not deliver."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from streams.codecs.wire import Fetched
from streams.kafka import sender, stalled_sends
from streams.kafka import transport as module
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.egress_recovery import commit_now, notes_by_slot
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import read_to_end
from streams.kafka.transport import KafkaTransport
from streams.topics import Topic

pytestmark = pytest.mark.kafka


NOBODY = KafkaConfig("127.0.0.1:1")


@pytest.fixture
def transport(broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaTransport]:
    """Yield a transport that reads from the broker and whose sends reach no broker."""
    monkeypatch.setattr(sender, "producer", lambda _, **settings: producer(NOBODY, log_level=0))
    transport = KafkaTransport(KafkaConfig(broker), "transport")
    transport.send("anywhere", b"x", 0, "")
    yield transport
    transport._sender._producer.purge()
    transport._sender._producer.poll(0)
    transport.abandon()
    transport.close()


def a_topic(broker: str) -> str:
    name = f"transport-{uuid.uuid4().hex[:8]}"
    client = admin(KafkaConfig(broker))
    client.create_topics([NewTopic(name, 1)])[name].result(20)
    return name


def test_a_role_that_is_served_but_gets_no_confirmations_ends_with_an_explanation(
    broker: str, transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalled_sends, "STALLED_S", 1.0)
    topic = a_topic(broker)
    source = producer(KafkaConfig(broker))
    transport.assign([(topic, 0)], [], commits=False)
    until_s = time.monotonic() + 30

    def served() -> None:
        while time.monotonic() < until_s:
            source.produce(topic, b"x")
            source.poll(0)
            transport.fetch(0.05)
            transport.end_turn(time.time())

    with pytest.raises(BrokerError, match="has confirmed nothing of what was sent"):
        served()
    assert source.flush(5) == 0


@pytest.mark.parametrize("report_first", [False, True])
def test_after_an_outage_the_time_to_confirm_counts_from_the_brokers_return(
    broker: str, transport: KafkaTransport, report_first: bool
) -> None:
    topic = a_topic(broker)
    source = producer(KafkaConfig(broker))
    transport.assign([(topic, 0)], [], commits=False)
    until_s = time.monotonic() + 30
    transport._connectivity.failed("gone", none_left=True)
    transport.end_turn(1000.0)
    assert transport.away

    def delivered(now: float) -> bool:
        source.produce(topic, b"x")
        assert source.flush(5) == 0
        while not transport.fetch(0.05):
            assert time.monotonic() < until_s
        transport.end_turn(now)
        return True

    if report_first:
        transport._answered = True
        transport.end_turn(1035.0)
        assert not transport.away
    delivered(1035.0)  # away for longer than sends may stay unconfirmed
    for second in range(1, 21):
        delivered(1035.0 + second)
    with pytest.raises(BrokerError, match="has confirmed nothing"):
        all(delivered(1035.0 + second) for second in count(22))  # the answer on copies takes time


def test_a_broker_that_is_merely_silent_is_waited_for(
    transport: KafkaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalled_sends, "STALLED_S", 0.2)
    until_s = time.monotonic() + 1.0
    while time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(time.time())
    assert transport.unsettled


def test_an_unavailable_reports_topic_does_not_block_commits(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "report_producer", lambda _, **settings: producer(NOBODY, log_level=0)
    )
    config, topic = KafkaConfig(broker), a_topic(broker)
    transport = KafkaTransport(config, topic)
    transport.assign([(topic, 0)], [], commits=True)
    transport.send("headrace.reports", b"a report", 0, "")
    transport.send(topic, b"work", 0, "")
    transport.done((topic, 0), 1, "note")
    reader = consumer(config, topic)
    until_s = time.monotonic() + 15

    def offset() -> int:
        return int(reader.committed([TopicPartition(topic, 0)], timeout=5)[0].offset)

    while offset() != 1 and time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(time.time())
    assert offset() == 1
    assert not transport.unsettled
    reader.close()
    transport._reporter.purge()
    transport.close()


def test_a_slot_given_up_before_its_offset_lookup_is_not_read(broker: str) -> None:
    config, topic = KafkaConfig(broker), a_topic(broker)
    transport = KafkaTransport(config, topic)
    transport.assign([(topic, 0)], [], commits=True)
    last = transport.assign([], [(topic, 0)], commits=True)
    until_s = time.monotonic() + 15
    while transport.assigned != last and time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(time.time())
    assert transport.assigned == last
    assert transport._reader._consumer.assignment() == []
    again = transport.assign([(topic, 0)], [], commits=True)
    transport.pause([(topic, 0)], [(topic, 0)])
    while transport.assigned != again and time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(time.time())
    source = producer(config)
    source.produce(topic, b"x", partition=0)
    source.flush(5)
    assert [transport.fetch(0.05) for _ in range(10)] == [[]] * 10
    transport.pause([], [(topic, 0)])
    found = [record for _ in range(40) for record in transport.fetch(0.05)]
    assert [record.value for record in found] == [b"x"]
    transport.close()


def test_a_slot_is_read_at_once_after_a_pause_even_if_nothing_else_was_read(broker: str) -> None:
    config, topic = KafkaConfig(broker), a_topic(broker)
    transport, source = KafkaTransport(config, topic), producer(config)
    transport.assign([(topic, 0)], [], commits=False)

    def read(patience_s: float) -> list[bytes | None]:
        until_s = time.monotonic() + patience_s
        while time.monotonic() < until_s:
            if found := transport.fetch(0.05):
                return [record.value for record in found]
            transport.end_turn(time.time())
        return []

    source.produce(topic, b"0", partition=0)
    assert read(20.0) == [b"0"]
    for number in range(1, 11):
        transport.pause([(topic, 0)], [(topic, 0)])
        source.produce(topic, b"%d" % number, partition=0)
        source.flush(5)
        assert read(0.1) == []
        transport.pause([], [(topic, 0)])
        # The client by itself resumes a full second after its last request.
        assert read(0.7) == [b"%d" % number]
    transport.close()


def lag_of(transport: KafkaTransport, topic: str, read: list[Fetched]) -> int:
    """Return the lag of a topic of one slot, -1 while it is unknown; fetch into ``read``
    meanwhile, as the thread that reads does."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(transport.lag, 5.0)
        while not asked.done():
            read.extend(transport.fetch(0.05))
            transport.end_turn(time.time())
        return asked.result().get((topic, 0), -1)


def test_marker_of_a_transaction_at_the_end_of_a_slot_is_no_lag(broker: str) -> None:
    config, topic = KafkaConfig(broker), a_topic(broker)
    transport, read = KafkaTransport(config, topic), list[Fetched]()
    transport.assign([(topic, 0)], [], commits=True)
    source = producer(config, **{"transactional.id": topic, "delivery.timeout.ms": 20_000})
    source.init_transactions(20)
    for value in (b"1", b"2"):
        source.begin_transaction()
        source.produce(topic, value, partition=0)
        source.commit_transaction(20)
    until_s = time.monotonic() + 30
    while len(read) < 2 and time.monotonic() < until_s:
        lag_of(transport, topic, read)
    transport.done((topic, 0), read[0].offset + 1, "")
    assert lag_of(transport, topic, read) > 1  # the second record and a marker, at least
    transport.done((topic, 0), read[1].offset + 1, "")
    while lag_of(transport, topic, read) > 0 and time.monotonic() < until_s:
        pass
    assert lag_of(transport, topic, read) == 0
    transport.close()


def test_a_slot_that_the_client_has_stopped_reading_is_read_anew(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, topic = KafkaConfig(broker), a_topic(broker)
    transport, source = KafkaTransport(config, topic), producer(config)
    transport.assign([(topic, 0)], [], commits=False)

    def read(until: Callable[[list[bytes | None]], bool]) -> list[bytes | None]:
        values: list[bytes | None] = []
        until_s = time.monotonic() + 20
        while not until(values) and time.monotonic() < until_s:
            values += [record.value for record in transport.fetch(0.05)]
            transport.end_turn(time.time())
        return values

    source.produce(topic, b"1", partition=0)
    source.flush(5)
    assert read(lambda values: len(values) > 0) == [b"1"]
    transport._reader._consumer.pause([TopicPartition(topic, 0)])  # without the reader's knowledge
    for value in (b"2", b"3"):
        source.produce(topic, value, partition=0)
    source.flush(5)
    assert read(lambda values: len(values) > 1) == [b"2", b"3"]
    assert f"the client stopped reading {topic}-0 at 1 of 3; reading again" in caplog.text
    transport.close()


def delete_before(config: KafkaConfig, place: TopicPartition) -> None:
    """Delete a partition's records before an offset, as its retention does."""
    client = admin(config)
    client.list_topics(place.topic, timeout=20)  # the client does not ask for a leader by itself
    (deleted,) = client.delete_records([place]).values()
    deleted.result(20)


@pytest.mark.parametrize("later", [0, 1])
def test_records_that_were_deleted_before_they_were_read_are_logged(
    broker: str, caplog: pytest.LogCaptureFixture, later: int
) -> None:
    """Whether or not others follow them."""
    config, topic = KafkaConfig(broker), a_topic(broker)
    source = producer(config)
    for value in (b"1", b"2", b"3"):
        source.produce(topic, value, partition=0)
    assert source.flush(20) == 0
    commit_now(config, topic, [TopicPartition(topic, 0, 1)])
    delete_before(config, TopicPartition(topic, 0, 3))
    for _ in range(later):
        source.produce(topic, b"4", partition=0)
    assert source.flush(20) == 0
    transport, found = KafkaTransport(config, topic), list[bytes | None]()
    transport.assign([(topic, 0)], [], commits=True)
    told = f"deleted records before this role read them: {topic}-0 from 1 to 2"
    until_s = time.monotonic() + 30
    while (told not in caplog.text or len(found) < later) and time.monotonic() < until_s:
        found += [record.value for record in transport.fetch(0.05)]
        transport.end_turn(time.time())
    assert told in caplog.text
    assert found == [b"4"][:later]
    assert "stopped reading" not in caplog.text
    transport.close()


def test_a_transport_warms_up_before_the_first_record_and_does_without_a_broker(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "WARM_WITHIN_S", 10.0)
    topic = a_topic(broker)
    transport = KafkaTransport(KafkaConfig(broker), topic)
    assert transport.warm([topic])
    transport.send(topic, b"x", 0, "")
    transport.close()
    assert [m.value() for m in read_to_end(KafkaConfig(broker), topic)] == [b"x"]
    monkeypatch.setattr(sender, "WARM_WITHIN_S", 0.1)
    absent = KafkaTransport(NOBODY, "nobody")
    assert not absent.warm([topic])
    absent.close()


def test_a_role_is_notified_of_the_first_report_after_a_silence(broker: str) -> None:
    ensure_topics(KafkaConfig(broker), [Topic("headrace.reports", 1)])
    transport, returned = KafkaTransport(KafkaConfig(broker), "silent"), list[float]()
    transport.notice_silence(0.7, lambda: returned.append(transport._reported_s))
    until_s = time.monotonic() + 30

    def report(now: float) -> None:
        transport.send("headrace.reports", b"a report", 0, "")
        while transport._reported_s != now and time.monotonic() < until_s:
            transport.end_turn(now)
        assert transport._reported_s == now

    for now in (1000.0, 1000.5, 1001.5, 1002.0):
        report(now)
    assert returned == [1000.5]
    transport.close()


def test_records_after_a_refused_record_of_their_partition_are_not_written(broker: str) -> None:
    config, name = KafkaConfig(broker), f"refusing-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name, 2, config={"max.message.bytes": "1000"})
    client = admin(config)
    client.create_topics([topic])[name].result(20)
    transport = KafkaTransport(config, "transport")
    transport.send(name, bytes(5000), 0, "")
    transport.send(name, b"later", 0, "")
    transport._sender._producer.flush(20)  # the second record waits for the end of the turn
    with pytest.raises(BrokerError, match=f"'{name}'"):
        transport.end_turn(time.time())
    transport.close()
    assert [m.value() for m in read_to_end(config, name)] == []


def test_a_commit_that_the_broker_forgot_under_a_reader_is_made_again_within_an_hour(
    broker: str,
) -> None:
    config, topic, group = KafkaConfig(broker), a_topic(broker), f"idle-{uuid.uuid4().hex[:8]}"
    commit_now(config, group, [TopicPartition(topic, 0, 5, metadata="a-note")])
    transport = KafkaTransport(config, group, validates=True)
    number = transport.assign([(topic, 0)], [], commits=True)
    until_s = time.monotonic() + 30
    while transport.assigned < number and time.monotonic() < until_s:
        transport.fetch(0.05)
        transport.end_turn(1000.0)
    client = admin(config)
    client.delete_consumer_groups([group])[group].result(20)
    assert notes_by_slot(config, group, topic, (0,)) == {}
    transport.end_turn(1000.0 + module.RENEW_S)
    transport.close()
    assert notes_by_slot(config, group, topic, (0,)) == {0: (5, "a-note")}
