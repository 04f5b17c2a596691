"""A record whose partition is idle is sent before its turn ends."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from streams.fencing import LeaseLost
from streams.kafka import kafka_client, sender
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.send_window import MOST_UNCONFIRMED, RECORD_BYTES, TurnRecord
from streams.kafka.sender import MEASURE_S, Sender
from streams.kafka.turn import Turn
from streams.topics import MAX_RECORD_BYTES


class Client:
    """The library's producer; the broker accepts the sent records on ``take``."""

    def __init__(self) -> None:
        self.full = False
        self.left: list[bytes] = []
        self.headers: list[list[tuple[str, bytes]] | None] = []
        self.stamps: list[int] = []
        self.settings: dict[str, Any] = {}
        self._under_way: list[Callable[[KafkaError | None, Message | None], None]] = []
        self._taken: list[Callable[[KafkaError | None, Message | None], None]] = []

    def produce(
        self,
        topic: str,
        value: bytes,
        *_: Any,
        on_delivery: Callable[[KafkaError | None, Message | None], None],
        timestamp: int,
        headers: list[tuple[str, bytes]] | None,
    ) -> None:
        if self.full:
            raise BufferError
        self.left.append(value)
        self.headers.append(headers)
        self.stamps.append(timestamp)
        self._under_way.append(on_delivery)

    def take(self) -> None:
        self._taken, self._under_way = self._taken + self._under_way, []

    def refuse(self, topic: str) -> None:
        """Refuse the sent records as too old; a delivery does not have the headers."""
        left, self._under_way = self._under_way, []
        for delivered in left:
            message = Message(topic=topic, partition=0, value=self.left[-1])
            delivered(KafkaError(KafkaError.INVALID_TIMESTAMP), message)

    def purge(self) -> None:
        self._under_way = []

    def flush(self, timeout_s: float) -> None:
        """Do nothing."""

    def poll(self, timeout_s: float) -> None:
        confirmed, self._taken = self._taken, []
        for delivered in confirmed:
            delivered(None, None)


class Lease:
    """A lease of topic "a" that stays fresh."""

    stamped, stamp_ms, fresh = "a", 1, True
    place = ("leases", 0)

    def check(self) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""

    def end(self, *, confirmed: bool) -> None:
        """Do nothing."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()

    def make(config: KafkaConfig, **settings: Any) -> Client:
        made.settings = settings
        return made

    monkeypatch.setattr(sender, "producer", make)
    return made


def test_a_record_leaves_at_once_where_earlier_turns_are_confirmed_by_now(client: Client) -> None:
    sends, turns = Sender(KafkaConfig("b:1"), None, {}), [Turn(), Turn()]
    for turn, value in zip(turns, (b"first", b"second"), strict=True):
        sends.send(("a", 0), TurnRecord(turn, value, None))
        assert client.left[-1] == value
        sends.progress(turns, 0.0)
        client.take()
    sends.progress(turns, 0.0)
    assert [turn.waiting for turn in turns] == [0, 0]


def test_the_other_records_of_a_turn_leave_together_at_its_end(client: Client) -> None:
    sends, turn = Sender(KafkaConfig("b:1"), None, {}), Turn()
    for value in (b"first", b"second", b"third"):
        sends.send(("a", 0), TurnRecord(turn, value, None))
    assert client.left == [b"first"]
    sends.progress([turn], 0.0)
    assert client.left == [b"first", b"second", b"third"]


def test_no_record_expires_since_a_later_one_of_its_partition_would_arrive_without_it(
    client: Client,
) -> None:
    Sender(KafkaConfig("b:1"), None, {})
    assert client.settings["delivery.timeout.ms"] == 0


def test_a_record_leaves_with_its_headers(client: Client) -> None:
    sends, header = Sender(KafkaConfig("b:1"), None, {}), ("name", b"value")
    sends.send(("a", 0), TurnRecord(Turn(), b"first", None, (header,)))
    sends.send(("a", 1), TurnRecord(Turn(), b"second", None))
    assert client.headers == [[header], None]


def test_a_record_that_was_too_late_for_its_lease_leaves_again_with_its_headers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[threading.Thread]()

    def nothing_written(*_: Any) -> frozenset[Any]:
        looks.append(threading.current_thread())
        return frozenset()

    monkeypatch.setattr(sender, "find_written", nothing_written)
    sends, turn = Sender(KafkaConfig("b:1"), Lease(), {}), Turn()
    sends.send(("a", 0), TurnRecord(turn, b"first", None, (("name", b"value"),)))
    client.refuse("a")
    sends.progress([turn], 0.0)
    for thread in [*[each for each in threading.enumerate() if each.name == "refused"], *looks]:
        thread.join(10)
    sends.progress([turn], 0.0)
    assert client.left == [b"first"] * 2
    assert client.headers == [[("name", b"value")]] * 2


def test_only_records_of_the_leased_topic_have_the_stamp_of_the_lease(client: Client) -> None:
    sends, turn = Sender(KafkaConfig("b:1"), Lease(), {}), Turn()
    for topic in ("a", "b"):
        sends.send((topic, 0), TurnRecord(turn, b"value", None))
    assert client.stamps == [Lease.stamp_ms, 0]


def test_records_of_the_leased_topic_alone_wait_for_a_fresh_lease(client: Client) -> None:
    lease = Lease()
    sends, turn = Sender(KafkaConfig("b:1"), lease, {}), Turn()
    lease.fresh = False
    for topic in ("a", "b"):
        sends.send((topic, 0), TurnRecord(turn, topic.encode(), None))
    sends.progress([turn], 0.0)
    assert client.left == [b"b"]
    lease.fresh = True
    sends.progress([turn], 0.0)
    assert client.left == [b"b", b"a"]


def test_records_of_the_leased_topic_alone_wait_while_a_quota_delays_what_is_sent(
    client: Client,
) -> None:
    """Their stamps expired on the way, again and again: egress answered nothing."""
    delayed = [True]
    sends, turn = Sender(KafkaConfig("b:1"), Lease(), {}, lambda: delayed[0]), Turn()
    for topic in ("a", "b"):
        sends.send((topic, 0), TurnRecord(turn, topic.encode(), None))
    sends.progress([turn], 0.0)
    assert client.left == [b"b"]
    delayed[0] = False
    sends.progress([turn], 0.0)
    assert client.left == [b"b", b"a"]


def test_the_partitions_that_wait_are_those_of_unconfirmed_records_and_of_the_lease(
    client: Client,
) -> None:
    sends, turn = Sender(KafkaConfig("b:1"), Lease(), {}), Turn()
    sends.send(("work", 3), TurnRecord(turn, b"1", None))
    sends.send(("work", 3), TurnRecord(turn, b"2", None))
    assert sends.places == {("work", 3), Lease.place}
    client.take()
    sends.progress([turn], 0.0)
    client.take()
    sends.progress([turn], 0.0)
    assert sends.places == {Lease.place}


def test_a_role_reads_no_more_while_too_much_waits(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MOST_WAITING_BYTES", 2 * RECORD_BYTES)
    sends, turn = Sender(KafkaConfig("b:1"), None, {}), Turn()
    for _ in range(2):  # the first one leaves at once
        sends.send(("work", 0), TurnRecord(turn, b"1", None))
    assert not sends.crowded(100.0)
    sends.send(("work", 0), TurnRecord(turn, b"1", None))
    assert not sends.crowded(100.0 + MEASURE_S / 2)
    assert sends.crowded(100.0 + MEASURE_S)
    sends.progress([turn], 0.0)
    assert not sends.crowded(100.0 + 2 * MEASURE_S)


def test_a_lease_that_is_lost_ends_the_turn_before_anything_leaves(client: Client) -> None:
    class Lost(Lease):
        def check(self) -> None:
            raise LeaseLost("another egress holds it")

    sends, turn = Sender(KafkaConfig("b:1"), Lost(), {}), Turn()
    for value in (b"first", b"second"):
        sends.send(("b", 0), TurnRecord(turn, value, None))
    with pytest.raises(LeaseLost):
        sends.progress([turn], 0.0)
    assert client.left == [b"first"]


def test_the_end_of_a_process_sends_what_waits_for_confirmations(client: Client) -> None:
    sends, values = Sender(KafkaConfig("b:1"), None, {}), [b"1", b"2", b"3"]
    for value in values * MOST_UNCONFIRMED:
        sends.send(("a", 0), TurnRecord(Turn(), value, None))
        sends.progress([], 0.0)
    assert client.left == (values * MOST_UNCONFIRMED)[:MOST_UNCONFIRMED]
    sends.flush(1.0)
    assert client.left == values * MOST_UNCONFIRMED


def test_a_queue_that_stays_full_ends_the_role(client: Client) -> None:
    sends = Sender(KafkaConfig("b:1"), None, {})
    client.full = True
    with pytest.raises(BrokerError, match="no more fits; restart this role"):
        sends.send(("a", 0), TurnRecord(Turn(), b"first", None))


def test_behind_a_record_that_did_not_fit_nothing_leaves_any_more(client: Client) -> None:
    """A role that ends flushes its sends, and there may be room again then."""
    sends, turn = Sender(KafkaConfig("b:1"), None, {}), Turn()
    for value in (b"first", b"second", b"third"):
        sends.send(("a", 0), TurnRecord(turn, value, None))
    client.full = True
    with pytest.raises(BrokerError):
        sends.progress([turn], 0.0)
    client.full = False
    sends.flush(1.0)
    assert client.left == [b"first"]


def made(given: dict[str, str], **own: Any) -> dict[str, Any]:
    """Return the settings of a producer with these properties of a file and of its own."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_client, "Producer", found.update)
        kafka_client.producer(KafkaConfig("b:1", given), **own)
    return found


def test_a_properties_file_gives_no_expiry_by_another_name() -> None:
    """Of several names, librdkafka would use the one that it reads last."""
    given = {"producer.message.timeout.ms": "30000"}
    assert "message.timeout.ms" not in made(given, **sender.NO_EXPIRY)
    assert made(given)["message.timeout.ms"] == "30000"


def test_a_properties_file_makes_no_record_too_large_for_the_producer() -> None:
    assert made({"message.max.bytes": "1000000"})["message.max.bytes"] == MAX_RECORD_BYTES
