"""An exchange on a broker within the Kafka library's own client, which keeps records in memory."""

import time
from threading import Event

import pytest
from confluent_kafka import Producer

from headrace.client import topic_clients
from headrace.client.exchange import BrokerNews, Exchange
from schemas.records import Query
from streams.kafka.kafka_config import KafkaConfig
from tests.builders import a_pipeline

PIPELINE = a_pipeline({"read": []}, input="raw", name="words")


class Heard:
    """Keeps the times of the news until a query is acknowledged."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.acknowledged = Event()

    def take(self, news: BrokerNews) -> None:
        self.times.append(news.now)
        if news.acknowledged:
            self.acknowledged.set()

    def end(self, error: Exception) -> None:
        pass


def test_the_times_of_news_do_not_depend_on_the_hosts_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = brokers.list_topics(timeout=20).brokers.values()
    for topic in ("words.queries", "words.results"):
        brokers.produce(topic, b"makes the topic")
    assert brokers.flush(20) == 0
    # The library's broker does not answer the administrator that counts partitions.
    monkeypatch.setattr(topic_clients, "readable_partitions", lambda *_: 1)
    heard, began_s = Heard(), time.monotonic()
    exchange = Exchange(KafkaConfig(f"{broker.host}:{broker.port}"), PIPELINE, heard)
    exchange.send(Query(payload=b"x", id="mine"))
    assert heard.acknowledged.wait(20)
    exchange.close()
    assert all(began_s <= at_s <= time.monotonic() for at_s in heard.times)
