"""Accounts of a run, query by query and item by item."""

from typing import Any

import pytest

from schemas.effects import OUTPUTS, PLANS, RESULTS, Arrived, Inferred, Send, Woke
from schemas.records import DROPPED, FAILED, REFUSED, Answer, Hop, Item, Origin
from streams.observers.run_metrics import STRAGGLE_S, RunMetrics
from tests.builders import (
    SLO_S,
    a_hop,
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    an_answer,
    an_end,
    an_ended,
    inferred,
)

PIPELINE = a_pipeline({"locate": ["read", "sort"], "read": [], "sort": []})
ACCURACIES = {"locate/v": 0.9, "read/v": 0.8, "read/w": 0.5, "sort/v": 1.0}
READ, SORT = an_end("answered", "read"), an_end("answered", "sort")
GONE = an_end(DROPPED, "read", "would end 3 ms after the deadline")
ARRIVED_OFFSETS = iter(range(1000))


def a_path(task: str = "read", variant: str = "v", finished_s: float = 0.2) -> tuple[Hop, ...]:
    return (
        a_hop(task="locate", finished_s=0.1),
        a_hop(task=task, variant=variant, finished_s=finished_s),
    )


def counted(*answers: Answer, given_up: bool = False, now: float = 1.0) -> RunMetrics:
    account = RunMetrics(PIPELINE, ACCURACIES)
    event = Woke() if given_up else Arrived(a_work(), OUTPUTS, 0, 0, 0.0)
    for answer in answers:
        account.saw("egress", event, [Send(RESULTS, answer)], now)
    return account


def figures(account: RunMetrics) -> tuple[int, int]:
    return account.bad_items, account.leaves


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "answered"),
        ({"late": True}, "late"),
        ({"incomplete": True}, "dropped"),
        ({"incomplete": True, "late": True}, "dropped"),
        ({"outcome": DROPPED}, "dropped"),
        ({"outcome": FAILED}, "failed"),
        ({"outcome": REFUSED}, "refused"),
    ],
)
def test_a_query_has_one_outcome(changes: dict[str, Any], outcome: str) -> None:
    counts = counted(an_answer(**changes)).counts
    assert counts == {name: int(name == outcome) for name in counts}


def test_accuracy_is_the_mean_over_leaves_in_time_of_the_product_along_the_path() -> None:
    account = counted(
        an_answer(
            ends=(READ, READ, READ, SORT),
            paths=(a_path(), a_path(), a_path(variant="w"), a_path("sort")),
        )
    )
    assert account.accuracy == pytest.approx((0.72 + 0.72 + 0.45 + 0.9) / 4)
    assert account.accuracy_leaf_mean == pytest.approx(((0.72 + 0.72 + 0.45) / 3 + 0.9) / 2)
    assert (figures(account), account.branch_violation) == ((0, 4), 0.0)


def test_every_bad_item_counts_once() -> None:
    account = counted(
        an_answer(
            incomplete=True,
            ends=(READ, GONE, an_end(FAILED, "read", "x"), SORT),
            paths=(a_path(), a_path()[:1], a_path()[:1], a_path("sort")),
        )
    )
    assert (figures(account), account.branch_violation) == ((2, 2), 0.5)
    assert account.stage_queries == 1  # the dropped one; no run was observed


def test_a_refused_query_is_one_bad_item() -> None:
    assert figures(counted(an_answer(outcome=REFUSED, task="ingress"))) == (1, 0)


def test_a_combine_function_that_fails_spoils_its_query_once() -> None:
    failed = an_answer(outcome=FAILED, task="egress", ends=(READ,), paths=(a_path(),))
    account = counted(failed)
    assert (figures(account), account.bad) == ((1, 1), {("egress", "combine"): 1})


def test_a_leaf_behind_the_deadline_is_bad_and_counts_for_no_accuracy() -> None:
    late = a_path(variant="w", finished_s=SLO_S + 0.01)
    account = counted(an_answer(late=True, ends=(READ, READ), paths=(a_path(), late)))
    assert (figures(account), account.accuracy) == ((1, 1), pytest.approx(0.72))


def test_last_leaf_is_late_if_the_query_is_late_by_its_last_hop() -> None:
    paths = (a_path(variant="w", finished_s=SLO_S - 0.001), a_path(finished_s=0.3))
    account = counted(an_answer(late=True, ends=(READ, READ), paths=paths))
    assert (figures(account), account.accuracy) == ((1, 1), pytest.approx(0.72))


def test_an_item_without_children_is_no_leaf() -> None:
    empty = an_answer(ends=(an_end("answered", "locate"),), paths=(a_path()[:1],))
    account = counted(empty)
    assert (figures(account), account.counts["answered"]) == ((0, 0), 1)
    assert (account.accuracy, account.branch_violation) == (None, None)


def straggler(*items: Item) -> Arrived:
    work = a_work(0, *items, task="", deadline_s=SLO_S)
    return Arrived(work, OUTPUTS, 0, next(ARRIVED_OFFSETS), 2.0)


def test_what_comes_after_a_query_was_given_up_counts_as_it_comes() -> None:
    account = counted(an_answer(incomplete=True, ends=(READ,), paths=(a_path(),)), given_up=True)
    account.saw("egress", straggler(an_ended(branch=(0, 1)), an_ended(branch=(0, 2))), [], 2.0)
    account.close(1)
    assert figures(account) == (2, 1)


def test_one_item_is_lost_if_the_rest_of_a_query_never_arrives() -> None:
    account = counted(an_answer(outcome=DROPPED), given_up=True)
    account.close(1)
    assert figures(account) == (1, 0)


def test_queries_given_up_long_ago_are_forgotten() -> None:
    account = counted(an_answer(outcome=DROPPED), given_up=True)
    other = an_answer(1, outcome=DROPPED, origin=Origin(0, 1))
    account.saw("egress", Woke(), [Send(RESULTS, other)], 2.0 + STRAGGLE_S)
    assert (len(account._given_up), account.bad_items) == (1, 1)


def test_items_that_ran_count_where_they_ran() -> None:
    account = counted()
    account.saw("w0", inferred(1, "a", "b", "c"), [], 1.0)
    assert isinstance(inferred(1), Inferred)
    assert account.stage_queries == 3


def test_devices_are_averaged_over_time() -> None:
    account = counted()
    one, three = a_plan([a_lease("w0")]), a_plan([a_lease(f"w{i}") for i in range(3)])
    account.saw("control", Woke(), [Send(PLANS, one)], 0.0)
    account.begin(10.0)
    account.saw("control", Woke(), [Send(PLANS, three)], 15.0)
    assert account.devices_mean(20.0) == pytest.approx((1 * 5 + 3 * 5) / 10)


def test_queries_of_the_warm_up_are_not_counted() -> None:
    account = counted()
    early = an_answer(7, created_s=1.0, answered_s=2.0)
    account.saw("egress", Woke(), [Send(RESULTS, early)], 2.0)
    account.begin(5.0)
    for offset, created_s in enumerate((4.9, 5.0)):
        answer = an_answer(offset, created_s=created_s, answered_s=6.0)
        account.saw("egress", Woke(), [Send(RESULTS, answer)], 6.0)
    assert sum(account.counts.values()) == 1
