"""The live latencies of composed plans."""

import pytest

from benchmarks.composed_latency import ANSWERED_WITHIN_S, Latencies, lived, misses, row
from schemas.records import ANSWERED, DROPPED, Answer, Hop, Origin


def an_answer(outcome: str, seconds: float) -> Answer:
    hop = Hop(
        task="read", variant="cnn", worker="w0", epoch=1, received_s=0.0, started_s=seconds / 2,
        finished_s=seconds, batch=1,
    )  # fmt: skip
    return Answer(
        id="q", origin=Origin(0, 0), outcome=outcome, created_s=0.0, deadline_s=5.0,
        answered_s=seconds, paths=((hop,),) if outcome == ANSWERED else (),
    )  # fmt: skip


def test_queries_without_an_answer_count_as_the_longest() -> None:
    """They were left out, so that a plan that lost its slow queries had the better p95."""
    found = lived([an_answer(ANSWERED, 0.5), an_answer(DROPPED, 0.01), an_answer(ANSWERED, 1.0)])
    assert list(found.total) == [500.0, 1000.0, 1e3 * ANSWERED_WITHIN_S]
    assert list(found.run) == [250.0, 500.0]


def test_a_miss_is_printed_with_the_part_of_the_operators() -> None:
    composed, slower = Latencies([30.0], [20.0]), Latencies([36.0], [24.0])
    rows = [
        row("near", composed, composed, composed, composed, {}),
        row("far", slower, composed, slower, composed, {}),
    ]
    assert misses(rows) == ["+20.0 %, +6.0 ms, of which operators +4.0 ms: far"]


def test_the_rule_is_judged_by_the_operators_live_seconds() -> None:
    composed, live = Latencies([30.0, 30.0], [20.0, 20.0]), Latencies([36.0, 36.0], [26.0, 26.0])
    found = row("slower", composed, composed, live, composed, {})
    assert (found.error, found.rule_error) == pytest.approx((0.2, 0.0))


def test_a_plan_is_judged_by_the_latency_at_the_paces_seen_before() -> None:
    composed, live = Latencies([30.0], [20.0]), Latencies([36.0], [26.0])
    found = row("slower", composed, live, live, composed, {("read/cnn", "depot"): 1.3})
    assert (found.error, found.profile_error) == pytest.approx((0.0, 0.2))
    assert found.paces == {"read/cnn on depot": 1.3}
