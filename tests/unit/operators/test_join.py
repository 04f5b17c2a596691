import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.join import (
    MOST_CRASHES,
    MOST_PATHS,
    Combine,
    Join,
    OpenQuery,
    as_list,
    path_accuracy,
    refused_answer,
)
from operators.record_size import MOST_BYTES
from schemas.codec.single_object import encode
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    FULL_CREDIT,
    REFUSED,
    Answer,
    Item,
    Origin,
    Value,
)
from streams.live.crash_journal import CrashJournal
from tests.builders import SLO_S, a_hop, a_noticed, a_pipeline, a_work, an_answer, an_end, an_ended

ONE = a_pipeline()
TREE = a_pipeline({"locate": ["read", "sort"], "read": [], "sort": []})
HALF = FULL_CREDIT // 2
HOP = a_hop()
LOCATED = a_hop(task="locate")
NONE_KNOWN: Mapping[str, float] = {}


def a_query(*items: Item) -> OpenQuery:
    """Return an open query with these branches."""
    query = OpenQuery("q0", Origin(0, 0), 0.0, SLO_S)
    for item in items:
        query.take(a_work(0, item, task=""))
    return query


def closed(
    query: OpenQuery,
    pipeline: Pipeline = TREE,
    combine: Combine = as_list,
    accuracies: Mapping[str, float] = NONE_KNOWN,
    now: float = 0.2,
) -> Answer:
    return Join(pipeline, combine, accuracies).answer(query, now)


def half(value: Value = None, branch: tuple[int, ...] = (0, 0), **changes: Any) -> Item:
    return an_ended(value, branch, **{"credit": HALF, **changes})


def test_a_query_is_complete_when_all_its_credit_has_come() -> None:
    query = OpenQuery("q0", Origin(0, 0), 0.0, SLO_S)
    assert not query.take(a_work(0, half("a", (0, 0)), task=""))
    assert query.take(a_work(0, half("b", (0, 1)), task="", epoch=4))
    assert (query.credit, query.epoch) == (FULL_CREDIT, 4)


def test_an_answer_names_the_newest_plan_of_its_branches_in_whatever_order_they_come() -> None:
    query = OpenQuery("q0", Origin(0, 0), 0.0, SLO_S)
    for epoch, branch in ((2, (0, 0)), (4, (0, 1)), (3, (0, 2))):
        query.take(a_work(0, half(branch=branch), task="", epoch=epoch))
    assert query.epoch == 4


def test_a_branch_that_comes_twice_counts_once() -> None:
    query = a_query(half("a", (0, 0)))
    assert not query.take(a_work(0, half("again", (0, 0)), task=""))
    assert query.branches[(0, 0)].value == "a"


def test_the_only_output_of_a_single_stage_is_the_list_of_it() -> None:
    assert closed(a_query(an_ended("seven")), ONE) == an_answer(
        result=["seven"], paths=((HOP,),), ends=(an_end(ANSWERED, "read"),)
    )


def test_branches_are_combined_in_the_order_in_which_operators_made_them() -> None:
    a, b = half("a", (0, 10), path=(LOCATED,)), half("b", (0, 9))
    assert closed(a_query(a, b)) == an_answer(
        result=["b", "a"], paths=((HOP,), (LOCATED,)), ends=(b.end, a.end)
    )


def test_an_item_without_children_has_no_place_in_the_result() -> None:
    empty = an_ended(branch=(), task="locate")
    assert closed(a_query(empty)) == an_answer(result=[], paths=((HOP,),), ends=(empty.end,))


def test_an_answer_behind_the_deadline_is_late_and_one_at_it_is_not() -> None:
    assert closed(a_query(an_ended("a")), ONE, now=SLO_S).late is False
    assert closed(a_query(an_ended("a")), ONE, now=SLO_S + 0.001).late is True


@pytest.mark.parametrize(("outcome", "reason"), [(DROPPED, "late"), (FAILED, "smudged")])
def test_an_answer_with_a_branch_missing_is_incomplete(outcome: str, reason: str) -> None:
    good, bad = half("a", (0, 0)), half(None, (0, 1), outcome=outcome, reason=reason)
    assert closed(a_query(good, bad)) == an_answer(
        incomplete=True, reason=reason, task="read", result=["a", None],
        paths=((HOP,), (HOP,)), ends=(good.end, bad.end),
    )  # fmt: skip


def test_an_incomplete_answer_is_dropped_where_it_is_worthless() -> None:
    pipeline = a_pipeline({"locate": ["read"], "read": []}, incomplete="dropped")
    good, bad = half("a", (0, 0)), half(None, (0, 1), outcome=DROPPED, reason="late")
    assert closed(a_query(good, bad), pipeline) == an_answer(
        outcome=DROPPED,
        reason="late",
        task="read",
        paths=((HOP,), (HOP,)),
        ends=(good.end, bad.end),
    )
    failed = half(None, (0, 1), outcome=FAILED, reason="smudged")
    assert closed(a_query(good, failed), pipeline).outcome == FAILED
    assert closed(a_query(good, half("b", (0, 1))), pipeline).outcome == ANSWERED


def test_query_without_answered_branches_ends_as_its_first_failed_else_first_bad_branch() -> None:
    dropped = half(None, (0, 0), outcome=DROPPED, reason="late")
    failed = half(None, (0, 1), outcome=FAILED, reason="smudged", task="sort")
    assert closed(a_query(dropped, failed)) == an_answer(
        outcome=FAILED, reason="smudged", task="sort", paths=((HOP,), (HOP,)),
        ends=(dropped.end, failed.end),
    )  # fmt: skip


def test_of_several_dropped_branches_the_first_is_the_reason() -> None:
    first = half(None, (0, 0), outcome=DROPPED, reason="late")
    second = half(None, (0, 1), outcome=DROPPED, reason="later")
    assert closed(a_query(second, first)).reason == "late"


def test_query_without_any_branch_is_dropped_with_the_time_waited() -> None:
    assert closed(a_query()) == an_answer(
        outcome=DROPPED, reason="incomplete 750 ms after its creation", epoch=0
    )


def test_the_time_waited_counts_from_the_querys_creation() -> None:
    query = OpenQuery("q0", Origin(0, 0), 100.0, 100.0 + SLO_S)
    assert closed(query, now=101.0).reason == "incomplete 750 ms after its creation"


def test_a_dropped_branch_is_the_reason_though_another_never_came() -> None:
    good = half("a", (0, 0), credit=HALF // 2)
    dropped = half(None, (0, 1), credit=HALF // 2, outcome=DROPPED, reason="late")
    assert closed(a_query(good, dropped)).reason == "late"


def test_a_query_of_which_a_branch_never_came_is_incomplete() -> None:
    good = half("a")
    found = closed(a_query(good), now=0.75)
    assert found == an_answer(
        incomplete=True, late=True, reason="incomplete 750 ms after its creation", result=["a"],
        answered_s=0.75, paths=((HOP,),), ends=(good.end,),
    )  # fmt: skip


def test_a_combine_function_that_raises_fails_the_query() -> None:
    def combine(values: list[Value], tasks: list[str]) -> Value:
        raise ValueError("no digits")

    pipeline = a_pipeline(combine="postcode:join")
    item = an_ended("a")
    found = closed(a_query(item), pipeline, combine=combine)
    reason = "postcode:join raised ValueError: no digits (at test_join.py:"
    assert found.reason.startswith(reason)
    assert found == an_answer(
        outcome=FAILED, reason=found.reason, task="egress", paths=((HOP,),), ends=(item.end,),
    )  # fmt: skip


@pytest.mark.parametrize(
    "result", [object(), {1: 2}, 1 << 70, "\ud800", ["\ud800", b""], [0.5, object()]]
)
def test_a_combined_result_that_cannot_be_sent_fails_the_query(result: Any) -> None:
    pipeline = a_pipeline(combine="postcode:join")
    found = closed(a_query(an_ended("a")), pipeline, combine=lambda values, tasks: result)
    assert (found.outcome, found.task, found.result) == (FAILED, "egress", None)
    assert "postcode:join raised CodecError" in found.reason


def test_a_combined_result_that_is_too_large_for_a_record_fails_the_query() -> None:
    found = closed(a_query(an_ended("a")), combine=lambda values, tasks: b"x" * (MOST_BYTES + 1))
    assert (found.outcome, found.task) == (FAILED, "egress")
    assert "a value of 7.0 MiB fits no record (at most 7)" in found.reason


TEXTS = st.text(max_size=3) | st.just("\ud800")
VALUES = st.recursive(
    st.none() | st.floats() | st.integers() | TEXTS | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(VALUES)
def test_a_combined_result_that_counts_as_sendable_can_be_encoded(result: Any) -> None:
    """Otherwise egress could not close the query and would crash with it repeatedly."""
    pipeline = a_pipeline(combine="postcode:join")
    found = closed(a_query(an_ended("a")), pipeline, combine=lambda values, tasks: result)
    assert encode(found)


def test_without_combine_arrays_within_an_output_become_lists() -> None:
    item = an_ended({"v": np.arange(3), "deep": [{"w": np.ones((1, 2))}]})
    found = closed(a_query(item), ONE)
    assert found.outcome == ANSWERED
    assert found.result == [{"v": [0, 1, 2], "deep": [{"w": [[1.0, 1.0]]}]}]


def test_without_combine_outputs_that_cannot_be_sent_blame_no_combine() -> None:
    found = closed(a_query(an_ended({"v": {"w": float("nan")}})), ONE)
    assert found.outcome == FAILED
    assert found.reason.startswith("the outputs of the leaf tasks cannot be sent as a list: Codec")


@pytest.mark.parametrize("error", [SystemExit, BaseException])
def test_a_combine_that_calls_exit_fails_its_query(error: type[BaseException]) -> None:
    def combine(values: list[Value], tasks: list[str]) -> Value:
        raise error(3)

    found = closed(a_query(an_ended("a")), a_pipeline(combine="postcode:join"), combine=combine)
    assert (found.outcome, found.task) == (FAILED, "egress")
    assert found.reason.startswith(f"postcode:join raised {error.__name__}: 3")


def test_a_query_whose_combine_raised_is_not_blamed_for_a_later_crash(tmp_path: Path) -> None:
    def combine(values: list[Any], tasks: list[str]) -> Any:
        raise ValueError("no")

    path = tmp_path / "egress-0.running.json"
    join = Join(a_pipeline(combine="postcode:join"), combine, {}, CrashJournal(path))
    assert join.answer(a_query(an_ended("a")), 0.2).outcome == FAILED
    assert CrashJournal(path).strikes == {}


def test_a_combine_that_reuses_its_result_gives_each_query_its_own() -> None:
    board: list[Value] = []

    def combine(values: list[Value], tasks: list[str]) -> Value:
        board[:] = values
        return board

    join = Join(a_pipeline(combine="postcode:join"), combine, {})
    found = [join.answer(a_query(an_ended(value)), now=1.0) for value in ("a", "b")]
    assert [each.result for each in found] == [["a"], ["b"]]


def test_a_query_whose_combine_ends_the_process_twice_fails_without_it(tmp_path: Path) -> None:
    pipeline = a_pipeline(combine="postcode:join")

    def combine(values: list[Value], tasks: list[str]) -> Value:
        if "a" in values:
            raise KeyboardInterrupt  # ends the process as a kill does: the journal stays
        return "joined"

    def a_life() -> Join:
        return Join(pipeline, combine, {}, CrashJournal(tmp_path / "egress-0.running.json"))

    for _ in range(MOST_CRASHES):
        with pytest.raises(KeyboardInterrupt):
            a_life().answer(a_query(an_ended("a")), 0.2)
    join = a_life()
    found = join.answer(a_query(an_ended("a")), 0.2)
    assert (found.outcome, found.task, found.reason) == (
        FAILED, "egress",
        "postcode:join ended the process of egress 2 times with this query: it crashed or took "
        "too long",
    )  # fmt: skip
    other = OpenQuery("q1", Origin(0, 1), 0.0, SLO_S)
    other.take(a_work(1, an_ended("b"), task=""))
    assert join.answer(other, 0.2).result == "joined"
    assert CrashJournal(tmp_path / "egress-0.running.json").strikes.keys() == {"0/0/0.0"}


@pytest.mark.parametrize("value", [math.nan, np.array([1.0, math.inf])])
def test_a_result_that_json_cannot_represent_fails_where_answers_are_json(value: Value) -> None:
    assert closed(a_query(an_ended(value)), ONE).outcome == ANSWERED
    found = closed(a_query(an_ended(value)), replace(ONE, results="json"))
    assert (found.outcome, found.task, found.reason_code) == (FAILED, "egress", ReasonCode.COMBINE)
    assert found.reason.endswith("the value holds NaN or an infinity, which JSON cannot say")


def test_combine_sees_a_dropped_root_nowhere_and_a_dropped_child_as_none() -> None:
    seen: list[tuple[list[Value], list[str]]] = []

    def combine(values: list[Value], tasks: list[str]) -> Value:
        seen.append((values, tasks))
        return "done"

    good, bad = half("a", (0, 1)), half(None, (0, 0), outcome=DROPPED)
    assert closed(a_query(good, bad), combine=combine).result == "done"
    root = Item(end=an_end(DROPPED, "locate", "late"))
    assert closed(a_query(root), combine=combine).outcome == DROPPED
    assert seen == [([None, "a"], ["read", "read"])]


def test_a_child_that_is_dropped_at_an_inner_task_is_none_in_the_result() -> None:
    chain = a_pipeline({"locate": ["scan"], "scan": ["read"], "read": []})
    gone = half(None, (0, 0), outcome=DROPPED, task="scan")
    assert closed(a_query(gone, half("b", (0, 1))), chain).result == [None, "b"]


def test_an_answer_of_a_task_that_the_pipeline_no_longer_has_counts_as_a_leafs() -> None:
    assert closed(a_query(an_ended("a", task="gone"))).result == ["a"]


def test_the_expected_accuracy_is_the_mean_over_leaves_of_the_product_along_the_path() -> None:
    accuracies = {"locate/v": 0.9, "read/v": 0.8, "sort/v": 0.6}
    path = (LOCATED, a_hop())
    a, b = half("a", (0, 0), path=path), half("b", (1, 0), path=(LOCATED, a_hop(task="sort")))
    found = closed(a_query(a, b), accuracies=accuracies).expected_accuracy
    assert found == pytest.approx((0.9 * 0.8 + 0.9 * 0.6) / 2)


def test_missing_and_unmeasured_leaves_have_no_expected_accuracy() -> None:
    accuracies = {"read/v": 0.8}
    a = half("a", (0, 0), path=(a_hop(),), credit=1)
    unmeasured = half("b", (0, 1), path=(a_hop(variant="w"),))
    dropped = half(None, (0, 2), path=(a_hop(variant="x"),), outcome=DROPPED)
    found = closed(a_query(a, unmeasured, dropped), accuracies={**accuracies, "read/x": 0.1})
    assert found.expected_accuracy == 0.8
    assert closed(a_query(unmeasured), accuracies=accuracies).expected_accuracy is None


def test_accuracies_of_paths_are_kept_up_to_a_number() -> None:
    asked = []

    class Asked(dict[str, float]):
        def get(self, key: str, default: Any = None) -> Any:
            asked.append(key)
            return super().get(key, default)

    accuracy = path_accuracy(Asked({"read/small": 0.5}))
    assert [accuracy((("read", "small"),)) for _ in range(2)] == [0.5, 0.5]
    first = len(asked)
    for number in range(MOST_PATHS):
        accuracy((("read", f"gone-{number}"),))
    others = len(asked)
    assert accuracy((("read", "small"),)) == 0.5
    assert (first, len(asked) - others) == (1, 1)


def test_a_refusal_says_why() -> None:
    noticed = a_noticed(refused="over capacity")
    assert refused_answer(noticed, Origin(0, 0), 0.1) == an_answer(
        outcome=REFUSED, reason="over capacity", task="ingress", answered_s=0.1, epoch=0
    )
