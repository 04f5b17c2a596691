"""benchmarks/chaos: equal seeds give equal faults, and every broken promise is detected."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from benchmarks import network_faults
from benchmarks.chaos import Recovery, Suffered, missed
from benchmarks.chaos_account import Record, broken
from benchmarks.chaos_kinds import KINDS, chosen, drawn
from benchmarks.rig import Asked
from benchmarks.squares import right
from schemas.records import ANSWERED, FAILED, Answer, CommandResult, DeadLetter, Origin
from tests.builders import a_lease, a_plan

ROLES = ("control", "control-2", "egress-0", "cpu-0", "cpu-1", "cpu-2", "ingress-0")


def an_answer(name: str, offset: int, **changes: Any) -> Answer:
    fields = {"outcome": ANSWERED, "result": right(5), "created_s": 1.0, "deadline_s": 2.0}
    return Answer(id=name, origin=Origin(0, offset), **{**fields, "answered_s": 1.5, **changes})


def a_letter(offset: int, **changes: Any) -> DeadLetter:
    fields = {"topic": "queries", "partition": 0, "reason": "empty", "value": b"", "at_s": 1.0}
    return DeadLetter(offset=offset, **{**fields, **changes})


def a_result(name: str) -> CommandResult:
    return CommandResult(
        id=name, pipeline="p", action="replan", ok=True, message="", epoch=1, finished_s=1.0
    )


WHOLE = Record(
    asked={"a": Asked(b"5", Origin(0, 0)), "b": Asked(b"raise", Origin(0, 1)), "c": Asked(b"5")},
    garbage=[Asked(b"", Origin(0, 2))],
    answers=[
        an_answer("a", 0),
        an_answer("b", 1, outcome=FAILED, result=None),
        an_answer("0-2", 2, outcome="refused", result=None),
    ],
    letters=[a_letter(2), a_letter(2)],
    plans=[a_plan([], epoch=1), a_plan([a_lease("w0", slots=(0, 1))], epoch=4)],
    followed={("egress-0", 1.0): [1, 4], ("egress-0", 2.0): [4]},
    results=[a_result("x"), a_result("y")],
    readers={(4, "read", 0): {"w0"}, (4, "read", 1): {"w0"}, (9, "read", 0): {"w1"}},
    commits={("ingress", 0): [0, 5, 9], ("egress", 0): [3]},
    memory={"ingress-0": 80_000_000},
)


def test_run_that_holds_every_promise_has_no_violations() -> None:
    assert broken(WHOLE) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"plans": [a_plan([a_lease("w0", slots=(0, 1)), a_lease("w1", slots=(1,))], epoch=5)]},
         "a plan gives each open slot one reader: epoch 5 leases slot 1 of read 2 times"),
        ({"plans": [a_plan([a_lease("w0", slots=(0,), open_slot=2)], epoch=5)]},
         "a plan gives each open slot one reader: epoch 5 opens slot 2 of read unread"),
        ({"readers": {(4, "read", 0): {"w0", "w1"}}},
         "nodes of one epoch follow the same plan: slot 0 of read is w0's by epoch 4, and w0, "
         "w1 read it"),
        ({"readers": {(4, "read", 7): {"w1"}}},
         "nodes of one epoch follow the same plan: slot 7 of read is nobody's by epoch 4, and "
         "w1 read it"),
        ({"commits": {("egress", 2): [3, 8, 7]}},
         "commits only grow: egress committed 7 of partition 2 after 8"),
        ({"memory": {"cpu-0": 400_000_000}},
         "memory is bounded: cpu-0 had 400 MB resident; 300 MB are the bound"),
    ],
)  # fmt: skip
def test_reads_commits_and_holdings_of_nodes_are_judged(
    changes: dict[str, Any], sentence: str
) -> None:
    assert broken(replace(WHOLE, **changes)) == [sentence]


def test_nodes_may_follow_either_of_two_plans_with_the_same_epoch() -> None:
    plans = [a_plan([a_lease("w0", slots=(0,))], epoch=4), a_plan([], epoch=4), a_plan([], epoch=5)]
    assert broken(replace(WHOLE, plans=plans, readers={(4, "read", 0): {"w1"}})) == []


def test_partial_sum_is_correct_only_for_an_incomplete_answer() -> None:
    part = an_answer("a", 0, result=25 + 49, incomplete=True)
    others = WHOLE.answers[1:]
    assert broken(replace(WHOLE, answers=[part, *others])) == []
    (found,) = broken(replace(WHOLE, answers=[structs.replace(part, incomplete=False), *others]))
    assert found.startswith("a result is right: a answered, made at 1.000")
    assert found.endswith("to b'5' has 74")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"answers": WHOLE.answers[1:]},
         ["every acknowledged query is answered: a at 0/0 was acknowledged and has no answer"]),
        ({"answers": [*WHOLE.answers, an_answer("a", 0, late=True, answered_s=2.5)]}, [
         "no query is answered twice: 0/0 has 2: "
         "a answered, made at 1.000, answered at 1.500; "
         "a late, made at 1.000, answered at 2.500",
         "no query is answered twice: a has 2",
         ]),
        ({"answers": [*WHOLE.answers, an_answer("z", 9)]}, [
         "no answer without a query: nobody asked for "
         "z answered, made at 1.000, answered at 1.500 of 0/9"
         ]),
        ({"plans": [a_plan([], epoch=2), a_plan([], epoch=2, reason="again")]},
         ["a contested plan is outbid: epoch 2 (again) has two plans and was not outbid"]),
        ({"followed": {("cpu-0", 1.0): [3, 2]}},
         ["no node goes back an epoch: cpu-0, started at 1.000, went from epoch 3 to 2"]),
        ({"results": [a_result("x"), a_result("x")]}, ["a command has one result: x has 2"]),
        ({"letters": []}, ["dead letters are the garbage: garbage at 0/2 was not kept"]),
        ({"letters": [a_letter(2), a_letter(0)]},
         ["dead letters are the garbage: 0/0 was kept and is no garbage"]),
        ({"letters": [a_letter(2), a_letter(7, topic="outputs", reason="odd")]},
         ["dead letters are the garbage: of outputs: odd"]),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)  # fmt: skip
def test_each_broken_promise_is_reported(changes: dict[str, Any], found: list[str]) -> None:
    assert broken(replace(WHOLE, **changes)) == found


def test_many_violations_are_reported_by_examples_and_a_count() -> None:
    found = broken(replace(WHOLE, letters=[a_letter(2), *(a_letter(i) for i in range(50, 65))]))
    assert (len(found), found[-1]) == (11, "dead letters are the garbage: 5 more")


def test_equal_seeds_give_equal_faults_and_different_seeds_different_ones() -> None:
    one, again, other = (
        list(islice(drawn(np.random.default_rng(seed), ROLES), 40)) for seed in (7, 7, 8)
    )
    assert one == again
    assert one != other


DISPATCHED = (*ROLES, "dispatcher-square-0")


def test_every_round_has_every_kind_of_fault_with_a_target_that_exists() -> None:
    faults = list(islice(drawn(np.random.default_rng(3), DISPATCHED), 3 * len(chosen(1))))
    for i in range(3):
        one_round = faults[i * len(chosen(1)) : (i + 1) * len(chosen(1))]
        assert sorted(fault.kind for fault in one_round) == sorted(chosen(1))
    wrong = [
        f
        for f in faults
        if not set(f.targets) <= set(DISPATCHED) or (chosen(1)[f.kind].of and not f.targets)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_that_stays_away_misses_the_bound_of_every_kind(kind: str) -> None:
    away = Recovery(
        faults=1, hurt=1, recovered_p50_s=60.0, recovered_max_s=60.0, whole_p50_s=60.0,
        whole_max_s=60.0,
    )  # fmt: skip
    assert missed({kind: away}, KINDS)
    assert not missed({kind: replace(away, recovered_p50_s=0.0, recovered_max_s=0.0)}, KINDS)


def test_plans_of_a_control_app_that_was_cut_off_break_nothing_once_they_are_outbid() -> None:
    epochs = (3, 4, 4, 3, 5)
    assert broken(replace(WHOLE, plans=[a_plan([], epoch=epoch) for epoch in epochs])) == []


def test_a_query_counts_from_the_loss_of_a_node_or_from_its_return() -> None:
    fault = next(drawn(np.random.default_rng(1), DISPATCHED, chosen(3, names=("kill node",))))
    one = Suffered(fault, before_s=8.0, began_s=10.0, whole_s=30.0, returns_s=(17.0,))
    assert [one.after_s(at_s) for at_s in (9.0, 13.0, 17.0, 18.5)] == [0.0, 3.0, 0.0, 1.5]


def test_the_dispatcher_of_an_inner_task_is_killed_once_a_round_where_there_is_one() -> None:
    kinds = chosen(1)
    for roles, count in ((ROLES, 0), (DISPATCHED, 2)):
        faults = islice(drawn(np.random.default_rng(3), roles), 2 * len(kinds) - 2 + count)
        killed = [fault.targets for fault in faults if fault.kind == "kill dispatcher"]
        assert killed == [("dispatcher-square-0",)] * count


def test_fault_kinds_without_a_possible_target_are_reported() -> None:
    with pytest.raises(ValueError, match="no role of the pipeline may suffer kill dispatcher"):
        next(drawn(np.random.default_rng(0), ROLES, chosen(1, names=("kill dispatcher",))))


def test_faults_of_the_network_are_drawn_for_one_node_only() -> None:
    """A broker of three nodes has no proxies."""
    perform = {name: kind.perform for name, kind in KINDS.items()}
    of_network = {
        name for name, each in perform.items() if each.__module__ == network_faults.__name__
    }
    assert of_network
    assert not of_network & chosen(3, longest_s=90.0).keys()
