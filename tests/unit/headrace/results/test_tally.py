"""Outcomes are disjoint and sum to the queries; latencies count every query with a result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.results.tally import Accuracy, Sent, tally
from operators.outcomes import OUTCOMES
from schemas.enumerations import ReasonCode
from schemas.records import Answer, Origin

GOOD = Answer(
    id="a", origin=Origin(0, 0), outcome="answered", result="123", created_s=10.0,
    deadline_s=10.3, answered_s=10.1,
)  # fmt: skip


def score(result: object, truth: str) -> tuple[int, int]:
    text = result if isinstance(result, str) else ""
    return sum(a == b for a, b in zip(text, truth, strict=False)), len(truth)


def test_a_load_is_accounted_for_as_a_whole() -> None:
    sent = [Sent(name, 10.0, "123") for name in "abcd"]
    answers = {
        "a": GOOD,
        "b": replace(GOOD, id="b", answered_s=10.2, result="193"),
        "c": replace(
            GOOD,
            id="c",
            outcome="dropped",
            task="read",
            reason="v would finish 3 ms late",
            reason_code=ReasonCode.PAST_SAVING,
        ),
    }
    found = tally(sent, answers, score)
    assert found.as_json() == {
        "queries": 4, "answered": 2, "late": 0, "dropped": 1, "failed": 0, "refused": 0, "lost": 1,
        "slo_attainment": 0.5, "p50_ms": pytest.approx(100.0, rel=1e-3),
        "p95_ms": pytest.approx(200.0, rel=1e-3), "p99_ms": pytest.approx(200.0, rel=1e-3),
        "accuracy": 5 / 6, "accuracy_whole": 0.5,
    }  # fmt: skip
    assert found.reasons == {
        "dropped at read: would finish after the deadline": 1,
        "lost: no answer came": 1,
    }


def test_late_results_count_in_the_latency_and_not_in_the_accuracy() -> None:
    late = replace(GOOD, late=True, answered_s=11.0)
    found = tally([Sent("a", 10.0, "123")], {"a": late}, score)
    assert (found.metrics.latency_ms(0.5), found.accuracy) == (
        pytest.approx(1000.0, rel=1e-3),
        Accuracy(parts=None, whole=None, of=0),
    )


def test_without_queries_nothing_is_claimed() -> None:
    assert tally([], {}, score).as_json() == {
        "queries": 0, "answered": 0, "late": 0, "dropped": 0, "failed": 0, "refused": 0, "lost": 0,
        "slo_attainment": None, "p50_ms": None, "p95_ms": None, "p99_ms": None, "accuracy": None,
        "accuracy_whole": None,
    }  # fmt: skip


ANSWERS = st.one_of(
    st.none(),
    st.builds(
        lambda outcome, late, incomplete: replace(
            GOOD, outcome=outcome, late=late, incomplete=incomplete
        ),
        st.sampled_from(["answered", "dropped", "failed", "refused"]),
        st.booleans(),
        st.booleans(),
    ),
)


@given(st.lists(ANSWERS, max_size=30))
def test_outcomes_sum_to_the_queries(ends: list[Answer | None]) -> None:
    sent = [Sent(str(at), 10.0, "1") for at in range(len(ends))]
    answers = {str(at): end for at, end in enumerate(ends) if end is not None}
    found = tally(sent, answers)
    assert sum(found.counts.values()) == found.queries == len(ends)
    assert set(found.counts) == set(OUTCOMES)
