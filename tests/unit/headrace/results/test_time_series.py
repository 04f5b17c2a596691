"""headrace/results/time_series.py: a run in intervals."""

from typing import Any

import pytest

from headrace.results.time_series import WIDTHS_S, Recorder, width_s
from schemas.records import DROPPED, REFUSED, Answer, Hop
from streams.observers.run_metrics import RunMetrics
from tests.builders import SLO_S, a_hop, a_lease, a_pipeline, a_plan, an_answer, an_end

PIPELINE = a_pipeline({"locate": ["read"], "read": []})
ACCURACIES = {"locate/v": 0.9, "read/v": 0.8}
READ = an_end("answered", "read")


def an_answer_at(offset: int, created_s: float, **changes: Any) -> Answer:
    path = (
        a_hop(task="locate", finished_s=created_s + 0.1),
        a_hop(task="read", finished_s=created_s + 0.2),
    )
    usual: dict[str, Any] = {"ends": (READ,), "paths": (path,)}
    return an_answer(
        offset, created_s=created_s, deadline_s=created_s + SLO_S, answered_s=created_s + 0.2,
        **{**usual, **changes},
    )  # fmt: skip


def recorded(*steps: tuple[float, object]) -> Recorder:
    """Return the series after answers and plans at their times, in intervals of a second."""
    account = RunMetrics(PIPELINE, ACCURACIES)
    recorder = Recorder(account, 1.0)
    for now, record in steps:
        recorder.reach(now)
        if isinstance(record, Answer):
            account.take(record, False, now)
            recorder.answer(record)
        else:
            recorder.plan(record)  # type: ignore[arg-type]
    return recorder


def test_a_stretch_has_what_was_made_and_what_ended_in_it() -> None:
    plan = a_plan([a_lease("w-1"), a_lease("w-2")], capacity_qps=7.0)
    found = recorded(
        (10.0, plan),
        (10.4, an_answer_at(1, 10.2)),
        (11.1, an_answer_at(2, 10.9)),
        (11.2, an_answer_at(3, 11.0, outcome=REFUSED, reason="over capacity", ends=(), paths=())),
        (13.5, an_answer_at(4, 13.3)),
    ).recording(10.0, 13.5)
    assert found.ends_s == (1.0, 2.0, 3.0, 4.0)
    assert found.demand_qps == (2.0, 1.0, 0.0, 1.0)
    assert found.violation == (0.0, 0.5, None, 0.0)
    assert found.accuracy == (pytest.approx(0.72), pytest.approx(0.72), None, pytest.approx(0.72))
    assert (found.devices, found.capacity_qps) == ((2,) * 4, (7.0,) * 4)
    assert found.bad == {("", "over_capacity"): 1}


def test_items_are_counted_where_they_were_given_up_and_why() -> None:
    gone = an_end(DROPPED, "read", "v would finish 3 ms after the deadline")
    late: tuple[Hop, ...] = (a_hop(task="read", finished_s=10.2 + SLO_S + 0.1),)
    found = recorded(
        (10.4, an_answer_at(1, 10.2, ends=(gone, READ), paths=((), late), incomplete=True)),
        (
            10.5,
            an_answer_at(2, 10.2, outcome=DROPPED, task="locate", reason="?", ends=(), paths=()),
        ),
    ).recording(10.0, 11.0)
    assert found.bad == {("locate", "other"): 1, ("read", "late"): 1, ("read", "past_saving"): 1}


def test_latencies_are_shares_of_all_queries_so_that_refused_ones_are_missing() -> None:
    answers = [(10.5, an_answer_at(at, 10.2)) for at in range(3)]
    refused = an_answer_at(9, 10.2, outcome=REFUSED, ends=(), paths=())
    found = recorded(*answers, (10.6, refused)).recording(10.0, 11.0)
    seconds, share = found.latency[-1]
    assert (seconds, share) == (pytest.approx(0.2, rel=1e-3), 0.75)
    assert recorded((10.6, refused)).recording(10.0, 11.0).latency == ()


@pytest.mark.parametrize(("seconds", "width"), [(1, 0.5), (100, 0.5), (288, 2.0), (1e9, 3600.0)])
def test_a_long_run_has_longer_stretches(seconds: float, width: float) -> None:
    assert width_s(seconds) == width
    assert width in WIDTHS_S
