"""An exchange on a broker within the Kafka library's own client, which keeps records in memory."""

import itertools
import time
from threading import Event

import pytest

from headrace.client.exchange import TURN_S, BrokerNews, Exchange
from schemas.records import Query
from streams.kafka.kafka_client import producer
from tests.builders import a_pipeline
from tests.library_broker import a_library_broker

PIPELINE = a_pipeline({"read": []}, input="raw", name="words")


class Heard:
    """Keeps the times of the news, of all and of those without records."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.looks: list[float] = []
        self.acknowledged, self.recorded = Event(), Event()

    def take(self, news: BrokerNews) -> None:
        self.times.append(news.now)
        if news.records:
            self.recorded.set()
        else:
            self.looks.append(news.now)
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


def test_records_that_arrive_do_not_bring_a_look_for_acknowledgements_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look delayed the callers of the answers, which wait for the interpreter's lock."""
    heard = Heard()
    with a_library_broker(monkeypatch, "words.queries", "words.results") as kafka:
        exchange, results = Exchange(kafka, PIPELINE, heard), producer(kafka)
        for number in range(50):
            results.produce("words.results", b"{}", f"{number}", partition=0)
        assert heard.recorded.wait(20)
        exchange.send(Query(payload=b"x", id="mine"))
        assert heard.acknowledged.wait(20)
        exchange.close()
        results.close()
    gaps = [later - before for before, later in itertools.pairwise(heard.looks)]
    assert min(gaps) > 0.9 * TURN_S  # the client's waits are whole milliseconds
