"""The adaptive limit: admission in overload, and no effect on a healthy model."""

from collections import deque
from collections.abc import Iterator
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.concurrency_limit import (
    AIM,
    LATELY_S,
    ConcurrencyLimit,
    InFlight,
    time_to_answer_s,
)
from schemas.records import ANSWERED, DROPPED, REFUSED, Answer, Origin

SLO_S = 0.25


def an_answer(outcome: str = ANSWERED) -> Answer:
    return Answer(
        id="q", origin=Origin(0, 0), outcome=outcome, created_s=0.0, deadline_s=SLO_S,
        answered_s=0.0,
    )  # fmt: skip


class Server:
    """A server with one queue that serves ``rate_qps``; each answer arrives ``way_s`` later."""

    def __init__(self, rate_qps: float, way_s: float) -> None:
        self.limit = ConcurrencyLimit(0.0)
        self.good = self.refused = self.late = 0
        self._service_s, self._way_s = 1.0 / rate_qps, way_s
        self._free_s = 0.0
        self._ends: deque[tuple[float, InFlight]] = deque()

    def ask(self, now: float, *, limited: bool = True) -> None:
        self.end(now)
        if limited and not self.limit.admits(len(self._ends), now):
            self.refused += 1
            return
        self._free_s = max(self._free_s, now) + self._service_s
        query = InFlight(now, SLO_S, len(self._ends))
        self._ends.append((self._free_s + self._way_s, query))

    def end(self, until_s: float) -> None:
        while self._ends and self._ends[0][0] <= until_s:
            now, query = self._ends.popleft()
            self.limit.ended(query, an_answer(), now)
            in_time = now - query.came_s <= SLO_S
            self.good, self.late = self.good + in_time, self.late + (not in_time)


def arrivals(rate_qps: float, seconds: float, from_s: float = 0.0) -> Iterator[float]:
    rng = np.random.default_rng(1)
    yield from from_s + np.sort(rng.uniform(0.0, seconds, size=round(rate_qps * seconds)))


@pytest.mark.parametrize(("load", "part"), [(1.2, 0.9), (1.5, 0.88), (3.0, 0.85), (10.0, 0.75)])
def test_an_overloaded_model_answers_in_time_what_it_can(load: float, part: float) -> None:
    rate_qps, seconds = 400.0, 20.0
    limited, open_ = Server(rate_qps, 0.01), Server(rate_qps, 0.01)
    for at_s in arrivals(load * rate_qps, seconds):
        limited.ask(at_s)
        open_.ask(at_s, limited=False)
    assert limited.good > part * rate_qps * seconds
    assert open_.good < 0.1 * rate_qps * seconds


@pytest.mark.parametrize("way_s", [0.0, 0.2])
def test_model_that_meets_its_slo_is_not_limited_however_long_it_takes(
    way_s: float,
) -> None:
    server = Server(400.0, way_s)
    for at_s in arrivals(200.0, 20.0):
        server.ask(at_s)
    assert (server.refused, server.late, server.limit.limit) == (0, 0, inf)


def test_a_burst_into_an_idle_model_enters_whole() -> None:
    server = Server(400.0, 0.01)
    for at_s in (*arrivals(50.0, 5.0), *[6.0] * 90):
        server.ask(at_s)
    assert server.refused == 0


def test_after_an_overload_a_model_that_needs_most_of_its_time_serves_what_it_did() -> None:
    server = Server(400.0, 0.2)  # 80 % of its SLO when nothing waits
    for at_s in (*arrivals(1200.0, 1.0), *arrivals(300.0, 10.0, from_s=1.0)):
        server.ask(at_s)
    before = server.refused
    for at_s in arrivals(300.0, 10.0, from_s=11.0):
        server.ask(at_s)
    assert server.refused == before


def test_observations_are_forgotten_without_traffic() -> None:
    server = Server(400.0, 0.01)
    for at_s in arrivals(1200.0, 2.0):
        server.ask(at_s)
    assert server.limit.limit < inf
    before = server.refused
    for _ in range(90):
        server.ask(60.0)
    assert server.refused == before


def test_limit_is_the_number_that_ends_within_a_part_of_the_slo() -> None:
    limit = ConcurrencyLimit(0.0)
    for number in range(100):  # 100 in 0.5 s, each late
        now = (number + 1) * 0.005
        limit.ended(InFlight(now - 1.0, SLO_S, 0), an_answer(), now)
    assert limit.limit == pytest.approx(AIM * 200.0 * SLO_S, rel=0.05)


@pytest.mark.parametrize(
    ("ending", "counts"),
    [(None, True), (an_answer(), True), (an_answer(DROPPED), False), (an_answer(REFUSED), False)],
)
def test_drops_and_refusals_of_the_pipeline_do_not_change_the_limit(
    ending: Answer | None, counts: bool
) -> None:
    limit = ConcurrencyLimit(0.0)
    for number in range(100):
        limit.ended(InFlight(-1.0, SLO_S, 0), ending, 0.01 * number)
    assert (limit.limit < inf) == counts


def test_the_limit_keeps_as_many_in_flight_as_were_answered_in_time() -> None:
    limit = ConcurrencyLimit(0.0)
    for number in range(100):  # 200/s: four of five in time, after 0.2 s
        now = (number + 1) * 0.005
        limit.ended(InFlight(now - (1.0 if number % 5 == 0 else 0.2), SLO_S, 0), an_answer(), now)
    assert limit.limit == pytest.approx(0.8 * 200.0 * 0.2, rel=0.2)
    assert limit.limit > AIM * 200.0 * SLO_S


def test_short_caller_deadlines_do_not_change_the_limit() -> None:
    assert [time_to_answer_s(each, 1.0) for each in (None, 5.0, 0.8, 0.5)] == [1.0, 1.0, 0.8, None]
    limit = ConcurrencyLimit(0.0)
    for number in range(100):
        limit.ended(InFlight(0.0, None, 0), None, 0.01 * number)
    assert limit.limit == inf


def test_a_query_takes_at_least_what_the_quickest_of_the_last_ones_took() -> None:
    limit = ConcurrencyLimit(0.0)
    assert limit.takes_s(5, 0.0) == 0.0
    for took_s, ahead in ((0.10, 9), (0.04, 3), (0.20, 12)):
        limit.ended(InFlight(0.1, SLO_S, ahead), an_answer(), 0.1 + took_s)
    assert limit.takes_s(3, 0.3) == limit.takes_s(50, 0.3) == pytest.approx(0.04)
    assert limit.takes_s(1, 0.3) == pytest.approx(0.02)  # half of them are in flight
    assert limit.takes_s(3, 0.31 + LATELY_S) == 0.0


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 3.0), st.booleans()), max_size=200),
    st.integers(0, 50),
)
def test_few_in_flight_are_admitted_after_any_history(
    history: list[tuple[float, float, bool]], in_flight: int
) -> None:
    limit, now = ConcurrencyLimit(0.0), 0.0
    for step_s, took_s, asks in history:
        now += step_s
        limit.ended(InFlight(now - took_s, SLO_S, in_flight), an_answer(), now)
        if asks:
            limit.admits(in_flight, now)
        assert limit.limit > 0
        assert 0.0 <= limit.takes_s(in_flight, now) < inf
    assert limit.admits(0, now)
