"""control/estimation/ended_queries.py: how queries end, by windows."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.ended_queries import WINDOW_S, EndedQueries, Window
from control.estimation.report_deltas import ReportDeltas
from control.estimation.seen_capacity import SeenCapacity
from schemas.enumerations import NodeState
from schemas.records import Report

COUNTS = ("answered", "late", "dropped", "refused", "unpromised", "tight")


def report(
    at_s: float, counts: Mapping[str, float], node: str = "e", incarnation: float = 1.0,
    role: str = "egress", state: NodeState = NodeState.READY,
) -> Report:  # fmt: skip
    return Report(
        node=node, role=role, pipeline="p", epoch=1, incarnation=incarnation, sent_s=at_s,
        state=state, counts=counts,
    )  # fmt: skip


def windows(*reports: Report, queries: EndedQueries | None = None) -> list[Window]:
    """Return the windows that end with the reports."""
    queries, deltas = queries or EndedQueries(), ReportDeltas("egress")
    news = [found for each in reports if (found := deltas.take(each)) is not None]
    return [window for each in news if (window := queries.take(each)) is not None]


@given(st.lists(st.tuples(*[st.integers(0, 300)] * len(COUNTS)), min_size=10, max_size=40))
def test_windows_hold_what_ended_between_their_reports(ended: list[tuple[int, ...]]) -> None:
    """Five reports a second give five intervals in the first window and in each later one."""
    totals = [dict.fromkeys(COUNTS, 0.0)]
    for each in ended:
        totals.append({n: totals[-1][n] + new for n, new in zip(COUNTS, each, strict=True)})
    found = windows(*(report(at * WINDOW_S / 5, counts) for at, counts in enumerate(totals)))
    assert len(found) == len(ended) // 5
    for at, window in enumerate(found):
        within = ended[5 * at : 5 * at + 5]
        good, late, _, refused, _, tight = (sum(each) for each in zip(*within, strict=True))
        assert (window.good, window.late, window.refused, window.tight) == (
            good, late, refused, tight,
        )  # fmt: skip
        assert window.seconds == pytest.approx(WINDOW_S)
        promised = [late + dropped - hopeless for _, late, dropped, _, hopeless, _ in within]
        assert window.missed == sum(max(0, each) for each in promised)


@pytest.mark.parametrize("ahead_s", [-3600.0, -0.7, 0.0, 0.7, 3600.0])
def test_windows_do_not_wait_for_the_clock_of_an_egress_that_has_ended(ahead_s: float) -> None:
    """Its clock was ahead by an hour, and for an hour no outcome changed the admission."""
    queries, deltas, seconds = EndedQueries(), ReportDeltas("egress"), []
    for tick in range(200):
        at_s, counts = 10_000.0 + tick / 4, {"answered": 10.0 * tick}
        both = [report(at_s, counts, "e0"), report(at_s + ahead_s, counts, "e1")]
        for each in both if tick < 40 else both[:1]:
            news = deltas.take(each)
            assert news is not None
            if (window := queries.take(news)) is not None:
                seconds.append(window.seconds)
    assert len(seconds) >= 45
    assert max(seconds) < 1.5


def test_a_window_does_not_last_while_its_only_egress_restarts() -> None:
    """Else the seconds of its restart make the devices look slow, and admission falls to the
    answers per second that they seem to give."""
    before = [report(at / 5, {"answered": 10.0 * at}) for at in range(5)]
    after = [report(10 + at / 5, {"answered": 10.0 * at}, incarnation=2.0) for at in range(6)]
    (window,) = windows(*before, *after)
    assert window.seconds == pytest.approx(WINDOW_S)
    assert window.served_qps == pytest.approx(50.0)


@given(st.lists(st.tuples(*[st.integers(0, 300)] * 3), max_size=40), st.integers(0, 10_000))
def test_misses_that_no_plan_promised_to_avoid_do_not_change_admission(
    seconds: list[tuple[int, ...]], hopeless: int
) -> None:
    def shares(hopeless: int) -> list[float]:
        totals = [dict.fromkeys(COUNTS, 0.0)]
        for good, missed, refused in seconds:
            new = (good, (missed + hopeless) / 2, (missed + hopeless) / 2, refused, hopeless, 0)
            totals.append({n: totals[-1][n] + x for n, x in zip(COUNTS, new, strict=True)})
        capacity, found = SeenCapacity(), list[float]()
        for window in windows(*(report(float(at), counts) for at, counts in enumerate(totals))):
            capacity.judge(window)
            found.append(capacity.share)
        return found

    assert len(shares(0)) == len(seconds)
    assert shares(hopeless) == pytest.approx(shares(0))


def test_misses_that_no_plan_promised_to_avoid_do_not_count() -> None:
    counts = {"late": 30.0, "dropped": 20.0, "unpromised": 40.0, "answered": 50.0}
    (window,) = windows(report(0.0, {}), report(1.0, counts))
    assert (window.missed, window.admitted) == (10.0, 60.0)
    assert (window.served_qps, window.dropped_qps) == (60.0, 0.0)


def test_late_answers_are_served_and_the_rest_of_the_misses_is_dropped() -> None:
    counts = {"late": 30.0, "dropped": 20.0, "answered": 50.0}
    (window,) = windows(report(0.0, {}), report(2.0, counts))
    assert (window.served_qps, window.dropped_qps) == (40.0, 10.0)


@pytest.mark.parametrize(("tight", "stands"), [(0, False), (49, False), (50, True), (100, True)])
def test_standing_queue_is_detected_when_half_of_the_answers_are_tight(
    tight: int, stands: bool
) -> None:
    (window,) = windows(report(0.0, {}), report(1.0, {"answered": 100.0, "tight": float(tight)}))
    assert window.stands is stands


@pytest.mark.parametrize(
    ("good", "tight", "stands"), [(20, 10, True), (20, 9, False), (9, 9, False)]
)
def test_standing_queue_is_detected_in_the_class_in_which_it_stands(
    good: int, tight: int, stands: bool
) -> None:
    """Answers of the tight class are not tight: its items pass those of the slack class."""
    ended = {"answered": 80.0 + good, "class/gold/answered": 80.0, "class/bulk/answered": good}
    counts = {**ended, "tight": float(tight), "tight/bulk": float(tight)}
    for classes, found in ((("gold", "bulk"), stands), ((), False)):
        queries = EndedQueries(classes)
        (window,) = windows(report(0.0, {}), report(1.0, counts), queries=queries)
        assert (window.stands, window.stands_in_class) == (False, found)


def test_standing_queue_is_not_detected_without_ended_queries() -> None:
    (window,) = windows(report(0.0, {}), report(1.0, {"refused": 100.0}))
    assert not window.stands


def test_counts_of_an_unknown_time_are_left_out() -> None:
    """The time of counts is unknown for a new or restarted egress."""
    many = {"answered": 100.0}
    restarted = [
        report(at_s, {"answered": answered}, incarnation=2.0)
        for at_s, answered in ((1.0, 200.0), (2.0, 250.0))
    ]
    (window,) = windows(report(0.0, many), *restarted)
    assert window.good == 50
    first, second = report(0.0, many), report(1.0, {"answered": 130.0})
    (window,) = windows(first, report(0.5, many, node="other"), second)
    assert window.good == 30


def test_window_records_whether_a_worker_loaded_a_variant() -> None:
    queries = EndedQueries()
    loading = report(0.5, {}, role="worker", node="w", state=NodeState.LOADING)
    queries.loads(loading)
    (first,) = windows(report(0.0, {}), report(1.0, {}), queries=queries)
    (second,) = windows(report(1.0, {}), report(2.0, {}), queries=queries)
    assert (first.loading, second.loading) == (True, False)
    queries.loads(report(2.5, {}, role="worker", node="w", state=NodeState.LOADING))
    queries.loads(report(2.6, {}, role="worker", node="w"))
    (third,) = windows(report(2.0, {}), report(3.0, {}), queries=queries)
    assert not third.loading
