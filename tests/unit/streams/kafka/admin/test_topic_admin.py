"""The id of a topic, which reveals that it was recreated, and the settings of new topics."""

from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams.kafka.admin import topic_admin
from streams.kafka.admin.topic_admin import _new_topic, topic_id_on
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import Topic


class Description:
    """Return a broker's description of a topic."""

    def __init__(self, topic_id: str | None) -> None:
        self.topic_id = topic_id


def id_of(monkeypatch: pytest.MonkeyPatch, found: Any) -> str:
    monkeypatch.setattr(topic_admin, "topic_descriptions", lambda *_: {"p.queries": found})
    return topic_id_on(KafkaConfig("nobody:1"), "p.queries")


def test_a_topic_has_its_id_where_brokers_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert id_of(monkeypatch, Description("a1")) == "a1"
    assert id_of(monkeypatch, Description(None)) == ""


def test_a_topic_that_cannot_be_described_does_not_count_as_one_without_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BrokerError, match=r"'p\.queries' cannot be described at present"):
        id_of(monkeypatch, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


@pytest.mark.parametrize(
    ("copies", "settings"),
    [
        (1, {"retention.ms": "9", "min.insync.replicas": "1"}),
        (2, {"retention.ms": "9", "min.insync.replicas": "1"}),
        (3, {
         "retention.ms": "9",
         "min.insync.replicas": "2",
         "unclean.leader.election.enable": "false",
         }),
    ],
)  # fmt: skip
def test_a_new_topic_takes_records_whatever_the_brokers_ask_of_topics_by_default(
    copies: int, settings: dict[str, str]
) -> None:
    """With the default 2, a topic with one copy refused every record."""
    assert _new_topic(Topic("p.queries", 4, {"retention.ms": "9"}), copies).config == settings
