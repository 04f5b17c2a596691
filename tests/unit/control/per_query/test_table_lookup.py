"""Table lookups by workers."""

from math import inf

import pytest
from msgspec.structs import replace

from control.per_query.table_lookup import TableLookup, faults, for_runs, lasting
from schemas.records import Selection, SelectionTable

CALM = SelectionTable(qps=100.0, rows=((0, 0, 1, 2, 1, 1), (0, 0, 2, 1, 1, 1), (0, 0, 3)))
BUSY = SelectionTable(qps=200.0, rows=((0, 0, 1), (0, 0, 1)))
MADE = Selection(
    pipeline="p", task="read", policy="ramsis", issued_s=1.0, slo_s=0.2, workers=4,
    variants=("v", "w"), levels_s=(0.0, 0.1, 0.2), tables=(CALM, BUSY),
)  # fmt: skip


@pytest.mark.parametrize(
    ("queue", "slack_s", "choice"),
    [
        (1, 0.3, ("read/w", 1)),
        (1, 0.2, ("read/w", 1)),
        (1, 0.2 - 1e-12, ("read/w", 1)),
        (1, 0.19, ("read/v", 1)),
        (1, -5.0, ("read/v", 1)),
        (2, 0.15, ("read/w", 1)),
        (2, 0.05, ("read/v", 2)),
        (3, 0.2, ("read/v", 3)),
        (40, 0.2, ("read/v", 40)),
    ],
)
def test_a_decision_is_by_queue_and_slack(
    queue: int, slack_s: float, choice: tuple[str, int]
) -> None:
    assert TableLookup(MADE).choose(queue, slack_s, 25.0) == choice


def test_batch_below_the_full_queue_is_used_unchanged_for_any_queue_length() -> None:
    assert TableLookup(MADE).choose(9, 0.2, 50.0) == ("read/v", 1)


@pytest.mark.parametrize(
    ("own_qps", "variant"),
    [(0.0, "w"), (25.0, "w"), (25.0 + 1e-12, "w"), (26.0, "v"), (900.0, "v"), (inf, "v")],
)
def test_the_table_is_that_of_the_next_larger_load_else_the_largest(
    own_qps: float, variant: str
) -> None:
    assert TableLookup(MADE).choose(1, 0.2, own_qps)[0] == f"read/{variant}"


def test_a_sound_selection_has_no_fault() -> None:
    assert faults(MADE, ("w", "v", "x")) == ""


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (replace(MADE, variants=("v", "gone")), "'gone', which is no variant"),
        (replace(MADE, tables=()), "not in the order of their loads"),
        (replace(MADE, tables=(BUSY, CALM)), "not in the order of their loads"),
        (replace(MADE, workers=0), "not in the order of their loads"),
        *(
            (replace(MADE, tables=(replace(BUSY, rows=rows),)), "a row that says nothing")
            for rows in (
                (),
                ((),),
                ((0, 0),),
                ((1, 0, 1),),
                ((0, 0, 1, 3, 0, 1),),
                ((0, 2, 1),),
                ((0, -1, 1),),
                ((0, 0, 0),),
                ((0, 0, 1, 1, 2, 1),),
                ((0, 0, 1, 1, 0, 0),),
                ((0, 0, 1, 1),),
                ((0, 0, 1), (0, 0, 0)),
            )
        ),
    ],
)
def test_selection_that_cannot_be_followed_is_reported(changed: Selection, sentence: str) -> None:
    assert sentence in faults(changed, ("v", "w"))


@pytest.mark.parametrize(
    ("at", "run", "other"),
    [(0, 1, 0), (0, 2, 1), (2, 1, 3), (3, 2, 2), (0, 9, 0), (3, 9, 3)],
)
def test_queries_in_other_run_lengths_use_the_next_table_for_that_length(
    at: int, run: int, other: int
) -> None:
    assert for_runs([1, 2, 2, 1], at, run) == other


def test_runs_stay_as_they_are_while_a_load_close_by_is_for_them() -> None:
    loads, runs = [100.0, 200.0, 210.0, 300.0], [1, 2, 4, 3]
    assert lasting(loads, runs, 150.0, 1) == 2
    assert lasting(loads, runs, 207.0, 2) == 2
    assert lasting(loads, runs, 207.0, 3) == 3
    assert lasting(loads, runs, 190.0, 4) == 2
    assert lasting(loads, runs, 250.0, 4) == 3
    # Unknown yet, or beyond the planned range.
    assert lasting(loads, runs, inf, 1) == 3
