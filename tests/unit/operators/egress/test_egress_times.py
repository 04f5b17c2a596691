"""operators/egress/egress_times.py: the time that items take to egress."""

from typing import Any

import pytest

from operators.egress.egress_times import EVERY_S, EgressTimes
from schemas.records import ANSWERED, DROPPED, Work
from tests.builders import a_hop, a_work, an_end, an_item


def at_egress(outcome: str = ANSWERED, **changes: Any) -> Work:
    path = (a_hop(task="locate", started_s=1.0), a_hop(task="read", started_s=1.3))
    return a_work(1, an_item(path=path, end=an_end(outcome, "read")), task="", **changes)


def test_each_task_of_an_items_path_counts_from_the_begin_of_its_batch() -> None:
    counts: dict[str, float] = {}
    times = EgressTimes(counts)
    times.arrived(at_egress(), 1.5)
    times.arrived(at_egress(), 1.6)
    assert counts == pytest.approx({
        "to_egress/locate": 2.0, "to_egress_s/locate": 1.1, "to_egress_s2/locate": 0.61,
        "to_egress/read": 2.0, "to_egress_s/read": 0.5, "to_egress_s2/read": 0.13,
    })  # fmt: skip


def test_one_item_in_a_while_is_enough_and_dropped_ones_say_nothing() -> None:
    counts: dict[str, float] = {}
    times = EgressTimes(counts)
    times.arrived(at_egress(DROPPED), 1.5)
    assert counts == {}
    times.arrived(at_egress(), 1.5)
    times.arrived(at_egress(), 1.5 + EVERY_S / 2)
    assert counts["to_egress/read"] == 1.0


def test_a_clock_behind_the_workers_counts_as_no_time() -> None:
    counts: dict[str, float] = {}
    EgressTimes(counts).arrived(at_egress(), 0.9)
    assert counts["to_egress_s/read"] == counts["to_egress_s2/read"] == 0.0
