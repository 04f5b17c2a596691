"""Records still delivered to a lagging node once it no longer reads the slot."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.effects import QUERIES, Arrived, Assign, Effect, Event, Woke
from schemas.records import Query
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_pipeline


class Taker:
    """A node that reads slot 0 of the input topic and returns ``last`` on its second record."""

    def __init__(self, last: Assign | None) -> None:
        self.came: list[int] = []
        self._last = last

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Woke:
            return [Assign(QUERIES, (0,))]
        if type(event) is Arrived:
            self.came.append(event.offset)
            return [self._last] if self._last is not None and len(self.came) == 2 else []
        return []


def no_models(node: str, variant: str) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("last", "came"),
    [
        (None, [0, 1, 2, 3, 4]),
        (Assign(QUERIES, ()), [0, 1]),
        (Assign(QUERIES, paused=(0,)), [0, 1]),
    ],
    ids=["reads on", "slot given up", "slot paused"],
)
def test_a_backlog_is_delivered_until_the_slot_is_not_read(
    last: Assign | None, came: list[int]
) -> None:
    node = Taker(last)
    system = Simulated(a_pipeline(), {}, no_models, constant_delays(0.001))
    for _ in range(5):
        system.input(0.0, QUERIES, 0, Query(payload=b""))
    system.run(1.0)
    system.start("taker", node)
    system.run(2.0)
    assert node.came == came


def test_a_producers_records_are_written_at_their_times_those_of_one_moment_in_order() -> None:
    system = Simulated(a_pipeline(), {}, no_models, constant_delays(0.001))
    asked = (("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 2.0))
    system.inputs(QUERIES, [(at_s, 0, Query(payload=None, id=name), at_s) for name, at_s in asked])
    for until_s, names in ((0.5, ""), (1.0, "abc"), (2.0, "abcd")):
        system.run(until_s)
        log = system.written(QUERIES).get(0, [])
        assert [(query.id, at_s) for query, at_s in log if type(query) is Query] == [
            each for each in asked if each[0] in names
        ]
    with pytest.raises(ValueError, match="1 s is in the past"):
        system.inputs(QUERIES, [(1.0, 0, Query(payload=None), 1.0)])


def test_delays_learn_of_a_producers_query_before_its_way_in() -> None:
    sent_s: list[float] = []
    asked = []

    def way_in() -> float:
        asked.append(len(sent_s))
        return 0.001

    delays = replace(constant_delays(0.001), way_in=way_in, sent=lambda: sent_s.append(system.now))
    system = Simulated(a_pipeline(), {}, no_models, delays)
    for at_s in (1.0, 2.0):
        system.input(at_s, QUERIES, 0, Query(payload=None))
    system.run(3.0)
    assert (sent_s, asked) == ([1.0, 2.0], [1, 2])
