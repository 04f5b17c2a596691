"""Tables on the wire: compact, and with unchanged decisions on arrival."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.per_query.table_lookup import TableLookup, faults
from control.policies import POLICIES, choosing_kinds
from control.policies.ramsis.table_builder import TableProblem, make, table_for_wire, tabled_models
from control.policies.ramsis.tables import OPTIONS, Ask, Table, options_for, with_price
from control.problem.problem import SelectionError
from schemas.codec.single_object import decode, encode
from schemas.records import Selection
from tests.property_examples import at_most
from tests.selection_world import BEST, FAST, GOOD, SLO_S

ASK = Ask(models=(FAST, GOOD, BEST), slo_s=SLO_S, workers=2, qps=30.0)


def test_every_built_in_kind_that_chooses_has_options_for_its_tables() -> None:
    assert sorted(choosing_kinds()) == sorted(OPTIONS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_received_table_makes_the_same_decisions(kind: str) -> None:
    plan = make(TableProblem(kind=kind, ask=ASK, options=OPTIONS[kind]))
    table = plan.table
    variants = tabled_models([table])
    made = Selection(
        pipeline="p", task="read", policy="ramsis", issued_s=0.0, slo_s=SLO_S, workers=2,
        variants=variants, levels_s=table.levels_s,
        tables=(table_for_wire(plan, variants, table.levels_s),),
    )  # fmt: skip
    assert faults(made, variants) == ""
    arrived = decode(encode(made))
    assert isinstance(arrived, Selection)
    following = TableLookup(arrived)
    for queue in range(1, len(table.model) + 3):
        for slack_s in (-1.0, *table.levels_s, SLO_S + 1):
            choice = table.choose(queue, slack_s)
            expected = (f"read/{choice.model}", min(choice.batch, queue))
            assert following.choose(queue, slack_s, 1.0) == expected


def test_a_dearer_late_query_is_rarer() -> None:
    cheap, dear = (
        make(TableProblem(kind="ramsis", ask=ASK, options=with_price(OPTIONS["ramsis"], price)))
        for price in (0.0, 9.0)
    )
    assert dear.expected_violation <= cheap.expected_violation
    assert dear.expected_accuracy <= cheap.expected_accuracy


ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=3, max_size=3),
    min_size=2,
    max_size=5,
)


@settings(max_examples=at_most(60))
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
    plan = make(TableProblem(kind="ramsis", ask=ASK, options=OPTIONS["ramsis"]))
    object.__setattr__(plan, "table", table)
    made = Selection(
        pipeline="p", task="t", policy="q", issued_s=0.0, slo_s=0.2, workers=1,
        variants=table.models, levels_s=table.levels_s,
        tables=(table_for_wire(plan, table.models, table.levels_s),),
    )  # fmt: skip
    following = TableLookup(made)
    for queue in range(1, full + 2):
        for slack_s in (-0.1, 0.05, 0.1, 0.3):
            choice = table.choose(queue, slack_s)
            assert following.choose(queue, slack_s, 0.0) == (f"t/{choice.model}", choice.batch)


def test_the_pipeline_files_options_reach_the_tables() -> None:
    spec = POLICIES["ramsis"]
    given = {"discretisation": "model-based", "price": 2.0, "steps": 7}
    options = options_for("ramsis", spec.policy("ours", given))
    assert (options.discretisation, options.steps, options.objective.price) == (
        "model-based", 7, 2.0,
    )  # fmt: skip
    assert options_for("ramsis", spec.usual) == OPTIONS["ramsis"]
    assert options_for("a kind of another package", spec.usual) == OPTIONS["ramsis"]


def test_a_table_keeps_to_the_share_of_late_queries_that_is_asked_for() -> None:
    busy = replace(ASK, qps=70.0)
    free = make(TableProblem(kind="ramsis", ask=busy, options=OPTIONS["ramsis"]))
    most = free.expected_violation / 2
    kept = make(TableProblem(kind="ramsis", ask=busy, options=OPTIONS["ramsis"], violation=most))
    assert 0 < kept.expected_violation <= most
    assert kept.expected_accuracy <= free.expected_accuracy


def test_burstier_arrivals_are_answered_with_faster_models() -> None:
    busy = replace(ASK, qps=40.0)
    plans = [
        make(
            TableProblem(kind="ramsis", ask=replace(busy, dispersion=d), options=OPTIONS["ramsis"])
        )
        for d in (1.0, 4.0)
    ]
    assert plans[1].expected_accuracy < plans[0].expected_accuracy


def test_variable_batching_is_for_poisson_arrivals() -> None:
    gamma = POLICIES["ramsis-variable"].policy("ours", {"dispersion": 2.0})
    with pytest.raises(SelectionError, match="dispersion is 2; use ramsis, or a dispersion of 1"):
        options_for("ramsis-variable", gamma)
