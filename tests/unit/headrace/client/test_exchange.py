"""An exchange on a broker within the Kafka library's own client, which keeps records in memory."""

import time
from threading import Event

import pytest

from headrace.client.exchange import BrokerNews, Exchange
from schemas.records import Query
from tests.builders import a_pipeline
from tests.library_broker import a_library_broker

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
    heard, began_s = Heard(), time.monotonic()
    with a_library_broker(monkeypatch, "words.queries", "words.results") as kafka:
        exchange = Exchange(kafka, PIPELINE, heard)
        exchange.send(Query(payload=b"x", id="mine"))
        assert heard.acknowledged.wait(20)
        exchange.close()
    assert all(began_s <= at_s <= time.monotonic() for at_s in heard.times)
