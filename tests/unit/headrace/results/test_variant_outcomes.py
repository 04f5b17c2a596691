"""Outcomes of queries by the variants on their paths."""

from headrace.results.variant_outcomes import VariantOutcomes, by_variant
from schemas.records import ANSWERED, DROPPED, Answer, Origin
from tests.builders import a_hop


def an_answer(
    number: int, *variants: str, outcome: str = ANSWERED, took_s: float = 0.1, late: bool = False
) -> Answer:
    """Return an answer with a branch through `split/v` and each of the variants of `read`."""
    paths = tuple((a_hop(task="split"), a_hop(task="read", variant=each)) for each in variants)
    return Answer(
        id=str(number), origin=Origin(0, number), outcome=outcome, late=late, created_s=10.0,
        deadline_s=10.3, answered_s=10.0 + took_s, paths=paths, expected_accuracy=0.9,
    )  # fmt: skip


def test_a_query_counts_once_under_each_variant_on_its_paths() -> None:
    found = by_variant(
        [
            an_answer(0, "old"),
            an_answer(1, "old", "new", "new"),
            an_answer(2, "new", outcome=DROPPED),
            an_answer(3, "new", late=True, took_s=0.4),
            an_answer(4),
        ]
    )
    assert {each.variant: each.outcomes for each in found} == {
        "read/new": {"answered": 1, "dropped": 1, "late": 1},
        "read/old": {"answered": 2},
        "split/v": {"answered": 2, "dropped": 1, "late": 1},
    }
    assert found[1] == VariantOutcomes(
        variant="read/old", queries=2, outcomes={"answered": 2}, p50_ms=found[1].p50_ms,
        p95_ms=found[1].p95_ms, expected_accuracy=0.9,
    )  # fmt: skip
    assert abs(found[1].p50_ms - 100.0) < 0.1


def test_answers_without_paths_count_under_no_variant() -> None:
    assert by_variant([an_answer(0)]) == ()
