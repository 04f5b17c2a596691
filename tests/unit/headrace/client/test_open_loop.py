"""An open loop of queries on a broker within the Kafka library's own client."""

import time
from itertools import repeat

import pytest

from headrace.client.open_loop import OpenLoop
from tests.builders import a_pipeline
from tests.library_broker import a_library_broker

PIPELINE = a_pipeline({"read": []}, input="raw", name="words")
TOPICS = ("words.queries", "words.results")


def test_a_load_waits_while_too_many_queries_wait_for_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        a_library_broker(monkeypatch, *TOPICS, queue_buffering_max_messages="5") as kafka,
        OpenLoop(kafka, PIPELINE, "load") as loop,
    ):
        numbered = ((b"%d" % n, n) for n in range(100))
        loop.start([0.0] * 100, numbered)
        while not loop.all_sent:
            loop.step()
        sent, _ = loop.accounts()
    assert [(query.id, query.truth) for query in sent] == [(f"load-{n}", n) for n in range(100)]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_load_keeps_its_times_when_the_hosts_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    real = time.time
    with (
        a_library_broker(monkeypatch, *TOPICS) as kafka,
        OpenLoop(kafka, PIPELINE, "load") as loop,
    ):
        loop.start([0.0, 1800.0], repeat((b"x", None)))
        monkeypatch.setattr(time, "time", lambda: real() + step_s)
        loop.step()
        assert loop.sent == 1


def interrupted(loop: OpenLoop) -> None:
    """Send one query, then end as Ctrl-C does."""
    with loop:
        loop.start([0.0], repeat((b"x", None)))
        loop.step()
        raise KeyboardInterrupt


def test_an_interrupted_load_discards_what_the_broker_has_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a broker, Ctrl-C ended the load 30 s later."""
    with a_library_broker(monkeypatch, *TOPICS, linger_ms="20000") as kafka:
        loop = OpenLoop(kafka, PIPELINE, "load")
        with pytest.raises(KeyboardInterrupt):
            interrupted(loop)
        assert loop._asker.refused.keys() == {"load-0"}
