"""Delivery to a temporarily busy or unavailable collector, in virtual time."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.traces.delivery import GIVE_UP_S, LONGEST_S, MOST_WAIT_S, Delivery, backoff_s
from headrace.traces.otlp import NotTaken, request_of


class Collector:
    """A collector that answers by ``refusals``, then accepts everything, on its own clock."""

    def __init__(
        self,
        refusals: Iterable[tuple[bool, float | None] | None] = (),
        length_s: float | None = None,
    ) -> None:
        self.now = 1000.0
        self.sent_s: list[float] = []
        self.told: list[str] = []
        self._refusals = iter(refusals)
        self.delivery = Delivery(
            self._send, self.told.append,
            clock=lambda: self.now, sleep=self._sleep, chance=lambda: 0.0, length_s=length_s,
        )  # fmt: skip

    def _send(self, request: dict[str, Any]) -> None:
        self.sent_s.append(self.now)
        refusal = next(self._refusals, None)
        if refusal is not None:
            raise NotTaken("no", len(spans(request)), again=refusal[0], after_s=refusal[1])

    def _sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


BUSY, WRONG = (True, None), (False, None)


def a_request(count: int = 3) -> dict[str, Any]:
    return request_of([{"name": str(n)} for n in range(count)], "p")


def spans(request: dict[str, Any]) -> list[Any]:
    found: list[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found


def test_spans_refused_by_a_busy_collector_are_retried_with_doubling_waits() -> None:
    collector = Collector([BUSY] * 3)
    collector.delivery.deliver(a_request())
    collector.delivery.deliver(a_request())
    assert collector.sent_s == [1000.0, 1000.5, 1001.5, 1003.5, 1003.5]
    assert (collector.delivery.taken, collector.delivery.dropped) == (6, 0)
    assert collector.told == ["no; retrying for 60 s"]


def test_retry_after_is_the_least_wait() -> None:
    collector = Collector([(True, 20.0), (True, 0.0)])
    collector.delivery.deliver(a_request())
    assert collector.sent_s == [1000.0, 1020.0, 1021.0]


def test_what_is_refused_for_good_is_dropped_and_the_next_request_goes_at_once() -> None:
    collector = Collector([WRONG])
    collector.delivery.deliver(a_request(2))
    collector.delivery.deliver(a_request(3))
    assert collector.sent_s == [1000.0, 1000.0]
    assert (collector.delivery.taken, collector.delivery.dropped) == (3, 2)
    assert collector.told == ["no; 2 spans dropped, 2 in all"]


def test_a_collector_that_stays_away_costs_a_request_a_minute_and_is_asked_again() -> None:
    collector = Collector([BUSY] * 11)
    collector.delivery.deliver(a_request(2))
    assert collector.delivery.dropped == 2
    assert collector.now <= 1000.0 + GIVE_UP_S
    collector.delivery.deliver(a_request(5))
    assert (collector.delivery.taken, collector.delivery.dropped) == (5, 2)


def test_a_collector_that_wants_to_be_left_alone_for_long_is_left_alone() -> None:
    collector = Collector([(True, 3600.0)])
    for _ in range(3):
        collector.delivery.deliver(a_request(1))
    assert collector.sent_s == [1000.0]
    assert collector.delivery.dropped == 3
    why = "no; it gets no request for 3600 s, by its Retry-After"
    assert collector.told == [f"{why}; 1 spans dropped, {count} in all" for count in (1, 2, 3)]
    collector.now += 3600.0
    collector.delivery.deliver(a_request(1))
    assert collector.delivery.taken == 1


@pytest.mark.parametrize("after_s", [1e9, math.inf])
def test_a_collector_that_wants_to_be_left_alone_for_years_is_asked_again_after_an_hour(
    after_s: float,
) -> None:
    collector = Collector([(True, after_s)])
    collector.delivery.deliver(a_request(1))
    collector.now += LONGEST_S
    collector.delivery.deliver(a_request(2))
    assert (collector.delivery.taken, collector.delivery.dropped) == (2, 1)


def test_remaining_spans_get_one_minute_in_total_at_the_end() -> None:
    collector = Collector([BUSY] * 1000, length_s=0.0)
    for _ in range(10):
        collector.delivery.deliver(a_request(1))
    assert collector.now <= 1000.0 + GIVE_UP_S
    assert collector.delivery.dropped == 10


@pytest.mark.parametrize(
    ("attempt", "after_s", "chance", "waited_s"),
    [(0, None, 0.0, 0.5), (0, None, 1.0, 1.0), (3, None, 0.5, 6.0), (0, 9.0, 0.0, 9.0)],
)
def test_the_wait_doubles_within_its_jitter(
    attempt: int, after_s: float | None, chance: float, waited_s: float
) -> None:
    assert backoff_s(attempt, after_s, chance) == waited_s
    assert backoff_s(100, None, chance) <= MOST_WAIT_S


refusals = st.one_of(
    st.none(), st.tuples(st.booleans(), st.one_of(st.none(), st.floats(0.0, 200.0)))
)


@given(st.lists(refusals, max_size=20), st.lists(st.integers(1, 5), max_size=8))
def test_every_span_is_taken_or_dropped_within_a_bounded_time(
    said: list[tuple[bool, float | None] | None], counts: list[int]
) -> None:
    collector = Collector(said)
    for count in counts:
        began_s = collector.now
        collector.delivery.deliver(a_request(count))
        assert collector.now <= began_s + GIVE_UP_S
    assert collector.delivery.taken + collector.delivery.dropped == sum(counts)
