"""Reports are dated by the controller's clock, and each node has one process at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace as with_fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.controller.membership import ReportAges
from control.estimation.class_mix import ClassMix
from control.estimation.demand import Demand
from control.estimation.report_deltas import ReportDeltas
from control.estimation.task_demand import TaskDemand
from schemas.pipeline import Pipeline
from schemas.records import Report, SlotState
from tests.control_world import a_pipeline

STEP_S = 0.2
QPS = 100.0


def a_report(role: str, began_s: float, sent_s: float, counts: Mapping[str, float]) -> Report:
    return Report(
        node=f"{role}-0", role=role, pipeline="p", epoch=1, incarnation=began_s, sent_s=sent_s,
        state="ready", device="cpu", counts=counts,
    )  # fmt: skip


def lives(role: str, count: str, *clocks_s: float) -> Iterator[tuple[Report, float]]:
    """Yield the reports of a node and their arrivals. Its process runs for ten seconds and restarts
    after one, each time with its host's clock that much ahead of the controller's."""
    for life, ahead_s in enumerate(clocks_s):
        began_s = 10_000.0 + 11.0 * life
        for at in range(1, 51):
            now = began_s + at * STEP_S
            counts = {count: QPS * at * STEP_S}
            yield a_report(role, began_s + ahead_s, now + ahead_s, counts), now


CLOCKS = pytest.mark.parametrize("clocks_s", [(0.0, -3600.0), (3600.0, 0.0), (-3.0, 3.0)])


@CLOCKS
def test_demand_is_that_of_an_ingress_whose_hosts_clock_is_another(
    clocks_s: tuple[float, ...],
) -> None:
    """After a step back the demand stayed 0 until the clock had passed the old start."""
    ages, demand = ReportAges(), Demand()
    for report, now in lives("ingress", "arrived", *clocks_s):
        dated = ages.dated(report, now)
        assert dated is not None
        demand.observe(dated)
    assert demand.rate_qps(now) == pytest.approx(QPS, rel=0.1)
    assert demand.by_second(now)[-5:] == pytest.approx([QPS] * 5)


@CLOCKS
def test_items_are_counted_at_a_worker_whose_hosts_clock_is_another(
    clocks_s: tuple[float, ...],
) -> None:
    ages, tasks, deltas = ReportAges(), TaskDemand(), ReportDeltas("worker")
    since = 0.0
    for report, now in lives("worker", "arrived/read/small", *clocks_s):
        dated = ages.dated(report, now)
        assert dated is not None
        tasks.observe(replace(dated, slots=[SlotState(task="read", slot=0, done=0, queued=7)]))
        news = deltas.take(dated)
        assert news is not None
        since = news.since("arrived/read/small")
    assert tasks.queued(now) == {"read": 7}
    assert tasks.arriving(now)["read/small"] == pytest.approx(QPS, rel=0.1)
    assert since == pytest.approx(QPS * STEP_S)


def test_class_shares_are_forgotten_though_one_egress_has_a_clock_ahead() -> None:
    """They were kept until the other clocks had caught up."""
    pipeline: Pipeline = with_fields(a_pipeline(), slo_classes={"gold": 0.1, "bulk": 2.0})
    ages, mix, deltas = ReportAges(), ClassMix(pipeline), ReportDeltas("egress")

    def hear(node: str, ahead_s: float, now: float, counts: Mapping[str, float]) -> None:
        report = replace(a_report("egress", 1.0, now + ahead_s, counts), node=node)
        dated = ages.dated(report, now)
        assert dated is not None
        news = deltas.take(dated)
        assert news is not None
        mix.observe(news)

    for at in range(20):
        hear("ahead", 3600.0, at / 5, {"class/gold/answered": 1e6 * at})
        hear("right", 0.0, at / 5, {})
    for at in range(20, 5 * 900):
        hear("right", 0.0, at / 5, {"class/bulk/answered": 100.0 * at})
    assert list(mix.counting()) == ["bulk"]


def test_a_late_report_of_a_replaced_process_is_ignored() -> None:
    ages = ReportAges()
    assert ages.dated(a_report("worker", 10.0, 20.0, {}), 20.0)
    assert ages.dated(a_report("worker", 21.0, 22.0, {}), 22.0)
    assert ages.dated(a_report("worker", 10.0, 20.2, {}), 22.1) is None
    assert ages.dated(a_report("worker", 10.0, 20.4, {}), 22.7) is None
    assert ages.dated(a_report("worker", 21.0, 22.9, {}), 22.9)


@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(0.0, 5.0)), min_size=2, max_size=20))
def test_by_the_controllers_clock_each_process_starts_after_the_one_that_it_replaces(
    lives: list[tuple[float, float]],
) -> None:
    """``lives``: seconds that the node's clock is ahead, and that the first report takes."""
    ages, now, starts = ReportAges(), 1e5, []
    for number, (ahead_s, lag_s) in enumerate(lives):
        now += 11.0
        began_s, sent_s = now - 10.0 + ahead_s + number / 1e3, now + ahead_s - lag_s
        dated = ages.dated(a_report("worker", began_s, sent_s, {}), now)
        assert dated is not None
        assert dated.sent_s == now
        starts.append(dated.incarnation)
    assert all(earlier <= later for earlier, later in pairwise(starts))
