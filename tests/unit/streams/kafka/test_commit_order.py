"""Offsets are committed once the sends of their turn, and of all turns before it, are confirmed."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import COMMIT_S, KafkaTransport
from tests.kafka_clients import replace_clients

PLACE = ("p.queries", 0)


class Client:
    """The library's clients; the broker confirms the sends to a topic on ``confirm``."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self._sent: dict[str, Callable[[KafkaError | None, Any], None]] = {}
        self._confirmed: list[Callable[[KafkaError | None, Any], None]] = []

    def produce(self, topic: str, *_: Any, on_delivery: Any, **__: Any) -> None:
        self._sent[topic] = on_delivery

    def confirm(self, topic: str) -> None:
        self._confirmed.append(self._sent.pop(topic))

    def poll(self, timeout_s: float) -> None:
        confirmed, self._confirmed = self._confirmed, []
        for delivered in confirmed:
            delivered(None, None)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        self.commits += [each.offset for each in offsets]
        return offsets

    def nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    flush = purge = close = nothing


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    replace_clients(monkeypatch, made)
    return made


def a_role(*topics: str) -> KafkaTransport:
    """Return a transport after one turn for each topic; turn n is done below offset n."""
    role = KafkaTransport(KafkaConfig("nobody:1"), "p.ingress")
    for number, topic in enumerate(topics, 1):
        role.send(topic, b"value", 0, "")
        role.done(PLACE, number, "")
        role.end_turn(float(number))
    return role


@pytest.mark.parametrize(
    ("confirmed", "commits"), [(["b"], []), (["a"], [1]), (["b", "a"], [2]), ([], [])]
)
def test_a_turn_waits_for_those_before_it(
    client: Client, confirmed: list[str], commits: list[int]
) -> None:
    role = a_role("a", "b")
    for topic in confirmed:
        client.confirm(topic)
    role.end_turn(10.0)
    role.abandon()
    role.close()
    assert client.commits == commits


@pytest.mark.parametrize(("later_s", "last"), [(COMMIT_S / 2, 1), (COMMIT_S, 2)])
def test_commits_are_made_a_few_times_a_second(client: Client, later_s: float, last: int) -> None:
    role = a_role("a")
    client.confirm("a")
    role.end_turn(10.0)
    role.done(PLACE, 2, "")
    role.end_turn(10.0 + later_s)
    role.abandon()
    role.close()
    assert client.commits[-1] == last


def test_the_end_of_a_role_commits_what_is_confirmed(client: Client) -> None:
    role = a_role("a")
    client.confirm("a")
    role.end_turn(10.0)
    role.done(PLACE, 2, "")
    role.close()
    assert client.commits[-1] == 2


def test_nothing_is_settled_while_a_send_is_unconfirmed(client: Client) -> None:
    role = a_role("a")
    assert role.unsettled
    client.confirm("a")
    role.end_turn(10.0)
    role.close()
    assert not role.unsettled
