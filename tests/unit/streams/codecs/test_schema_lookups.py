"""Lookups of schemas: unregistered ids take little of a reader's time."""

from collections.abc import Callable, Iterator

import pytest

from schemas.codec.values import CodecError
from streams.codecs.schema_lookups import LIST_S, MOST_S, SHARE, SchemaLookups
from streams.kafka.kafka_errors import BrokerError

REQUEST_S = 0.01
RECORD_S = 0.001  # the reader's other work per record


class Site:
    """A registry whose answers take ``REQUEST_S``, with the clock of its reader."""

    def __init__(self, *texts: str) -> None:
        self.now_s, self.spent_s = 0.0, 0.0
        self.texts = list(texts)  # ids and versions from 1 on
        self.broken: set[int] = set()  # ids for which it answers with an error of its own
        self.failures = 0  # number of further requests that fail, whatever they ask for
        self.lookups = SchemaLookups(self.ask, self.versions, self.version, lambda: self.now_s)

    def ask(self, number: int) -> str:
        self.wait()
        if number in self.broken:
            raise BrokerError(f"gave no schema {number}")
        if number > len(self.texts):
            raise LookupError(number)
        return self.texts[number - 1]

    def versions(self) -> Iterator[int]:
        self.wait()
        return iter(range(1, len(self.texts) + 1))

    def version(self, number: int) -> tuple[int, str]:
        self.wait()
        return number, self.texts[number - 1]

    def wait(self) -> None:
        self.now_s += REQUEST_S
        self.spent_s += REQUEST_S
        if self.failures:
            self.failures -= 1
            raise BrokerError("does not answer")

    def flood(self, seconds: float, first: int = 1000) -> list[type[Exception]]:
        """Read unknown ids for ``seconds``; return the error of each."""
        until_s, raised = self.now_s + seconds, []
        while self.now_s < until_s:
            raised.append(error_of(lambda: self.lookups.text_of(first + len(raised))))
            self.now_s += RECORD_S
        return raised


def error_of(call: Callable[[], object]) -> type[Exception]:
    try:
        call()
    except (LookupError, CodecError) as error:
        return type(error)
    raise AssertionError("an unknown id has no schema")


def test_a_flood_of_unknown_ids_takes_a_twentieth_of_the_time() -> None:
    site = Site()
    raised = site.flood(100.0)
    lists_s = 101 * REQUEST_S
    assert site.spent_s <= 100 * SHARE + MOST_S + lists_s + 2 * REQUEST_S
    assert set(raised) == {LookupError, CodecError}


def test_a_few_unknown_ids_are_asked_for() -> None:
    site = Site()
    assert set(site.flood(10 * (REQUEST_S + RECORD_S))) == {LookupError}


def test_known_schemas_cost_nothing_of_it() -> None:
    site = Site("a")
    for _ in range(1000):
        assert site.lookups.text_of(1) == "a"
    assert error_of(lambda: site.lookups.text_of(9)) is LookupError


def test_a_schema_of_the_topics_subject_is_found_in_the_middle_of_a_flood() -> None:
    site = Site("a")
    site.flood(10.0)
    assert site.lookups.text_of(1) == "a"
    site.texts.append("b")
    site.flood(LIST_S)
    assert site.lookups.text_of(2) == "b"


def test_an_id_that_the_registry_fails_at_is_refused_while_it_answers_otherwise() -> None:
    site = Site("a", "b")
    site.broken = {7}
    with pytest.raises(CodecError, match="answers, but not for schema 7: gave no schema 7; "):
        site.lookups.text_of(7)
    assert site.lookups.text_of(1) == "a"


def test_ids_that_the_registry_fails_at_take_a_twentieth_of_the_time() -> None:
    site = Site()
    site.broken = {*range(1000, 100_000)}
    assert set(site.flood(100.0)) == {CodecError}
    lists_s = 101 * REQUEST_S
    assert site.spent_s <= 100 * SHARE + MOST_S + lists_s + 3 * REQUEST_S


def test_a_schema_of_the_topics_subject_is_read_although_the_registry_fails_at_its_id() -> None:
    site = Site("a")
    site.broken = {1}
    assert site.lookups.text_of(1) == "a"


def test_a_registry_that_is_away_refuses_no_record() -> None:
    site = Site("a")
    site.broken = {7}
    assert error_of(lambda: site.lookups.text_of(7)) is CodecError  # it has just listed
    site.now_s, site.failures = 100.0, 2
    with pytest.raises(BrokerError, match="does not answer"):
        site.lookups.text_of(9)
    assert site.lookups.text_of(1) == "a"


def test_a_request_that_fails_once_is_made_again() -> None:
    site = Site("a", "b")
    site.failures = 1
    assert site.lookups.text_of(2) == "b"


def test_after_a_flood_every_id_is_asked_for_again() -> None:
    site = Site()
    site.flood(10.0)
    with pytest.raises(CodecError, match="too many unknown schema ids and not for 7; register"):
        site.lookups.text_of(7)
    site.now_s += 1.0
    assert error_of(lambda: site.lookups.text_of(7)) is LookupError
