"""Make the tables of RAMSIS, one load at a time, and compact them for the plans topic.

A maker (``PolicySpec.choose``) takes one load and may start from the plan of a load close by.
``make`` solves an MDP; any other function of a ``TableProblem`` is valid too, as long as its table
has a decision in every state.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from control.policies.ramsis.tables import (
    Ask,
    Options,
    SelectionPlan,
    Table,
    solved,
    solved_within,
)
from schemas.records import SelectionTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """The input for one table.

    ``violation`` is the limit on the share of late queries (None: ``options`` has their price).
    ``start`` only initialises the search.
    """

    kind: str  # of the policy whose maker it is for
    ask: Ask
    options: Options
    violation: float | None = None
    start: SelectionPlan | None = field(default=None, compare=False)


def make(problem: TableProblem) -> SelectionPlan:
    """Return the table; raise ``SelectionError`` where none is possible."""
    if problem.violation is not None:
        return solved_within(problem.options, problem.ask, problem.violation)
    return solved(problem.options, problem.ask, problem.start)


def tabled_models(tables: Iterable[Table]) -> tuple[str, ...]:
    """Return every model that a table may choose, in order of first occurrence."""
    return tuple(dict.fromkeys(name for table in tables for name in table.models))


def table_for_wire(
    plan: SelectionPlan, variants: Sequence[str], levels_s: Sequence[float]
) -> SelectionTable:
    """Return a table for the wire: of neighbours in slack with equal decisions only the first.

    ``variants`` and ``levels_s`` are the selection's; those of the table are among them.
    """
    table = plan.table
    number = [variants.index(name) for name in table.models]
    level = {seconds: at for at, seconds in enumerate(levels_s)}
    levels = [level[seconds] for seconds in table.levels_s]
    full = len(table.model)
    rows = []
    for n, (models, batches) in enumerate(zip(table.model, table.batch, strict=True), start=1):
        # The full queue has no slack: only its first decision is reachable.
        cells = zip(levels, models, batches, strict=True)
        rows.append(tuple(_runs((at, number[m], b) for at, m, b in cells if n < full or at == 0)))
    return SelectionTable(
        qps=table.qps,
        rows=tuple(rows),
        expected_accuracy=plan.expected_accuracy,
        expected_violation=plan.expected_violation,
        run=table.run,
    )


def _runs(decisions: Iterable[tuple[int, int, int]]) -> Iterable[int]:
    last: tuple[int, int] | None = None
    for level, model, batch in decisions:
        if (model, batch) != last:
            yield from (level, model, batch)
            last = (model, batch)
