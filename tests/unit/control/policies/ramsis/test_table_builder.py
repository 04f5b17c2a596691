"""Tables on their way to workers: compact, and the same decisions when they have arrived."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.per_query.table_lookup import Following, faults
from control.policies import choosing_kinds
from control.policies.ramsis.table_builder import TableProblem, compact, make, names
from control.policies.ramsis.tables import OPTIONS, Ask, Table
from schemas.codec.single_object import decode, encode
from schemas.records import Selection
from tests.selection_world import BEST, FAST, GOOD, SLO_S

ASK = Ask(models=(FAST, GOOD, BEST), slo_s=SLO_S, workers=2, qps=30.0)


def test_every_built_in_kind_that_chooses_has_options_for_its_tables() -> None:
    assert sorted(choosing_kinds()) == sorted(OPTIONS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_what_arrives_decides_as_the_table_did(kind: str) -> None:
    plan = make(TableProblem(kind=kind, ask=ASK))
    table = plan.table
    variants = names([table])
    made = Selection(
        pipeline="p", task="read", policy="ramsis", issued_s=0.0, slo_s=SLO_S, workers=2,
        variants=variants, levels_s=table.levels_s,
        tables=(compact(plan, variants, table.levels_s),),
    )  # fmt: skip
    assert faults(made, variants) == ""
    arrived = decode(encode(made))
    assert isinstance(arrived, Selection)
    following = Following(arrived)
    for queue in range(1, len(table.model) + 3):
        for slack_s in (-1.0, *table.levels_s, SLO_S + 1):
            choice = table.choose(queue, slack_s)
            expected = (f"read/{choice.model}", min(choice.batch, queue))
            assert following.choose(queue, slack_s, 1.0) == expected


def test_a_dearer_late_query_is_rarer() -> None:
    cheap, dear = (make(TableProblem(kind="ramsis", ask=ASK, price=price)) for price in (0.0, 9.0))
    assert dear.expected_violation <= cheap.expected_violation
    assert dear.expected_accuracy <= cheap.expected_accuracy


ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=3, max_size=3),
    min_size=2,
    max_size=5,
)


@settings(max_examples=60)
@given(ROWS)
def test_any_table_is_followed_as_it_was_meant(rows: list[list[tuple[int, int]]]) -> None:
    full = len(rows)
    batches = [
        [min(batch, n) for _, batch in row] if n < full else [full] * 3
        for n, row in enumerate(rows, start=1)
    ]
    table = Table(
        qps=5.0,
        models=("a", "b", "c"),
        levels_s=(0.0, 0.1, 0.2),
        model=tuple(tuple(model for model, _ in row) for row in rows),
        batch=tuple(tuple(row) for row in batches),
    )
    plan = make(TableProblem(kind="ramsis", ask=ASK))
    object.__setattr__(plan, "table", table)
    made = Selection(
        pipeline="p", task="t", policy="q", issued_s=0.0, slo_s=0.2, workers=1,
        variants=table.models, levels_s=table.levels_s,
        tables=(compact(plan, table.models, table.levels_s),),
    )  # fmt: skip
    following = Following(made)
    for queue in range(1, full + 2):
        for slack_s in (-0.1, 0.05, 0.1, 0.3):
            choice = table.choose(queue, slack_s)
            assert following.choose(queue, slack_s, 0.0) == (f"t/{choice.model}", choice.batch)
