"""What does a worker that follows tables run now? The decision of the table in force.

Tables come by growing load. The one in force is the first whose load is not below the estimate,
else the last: beyond what was planned for, the fastest that there is. It is looked up anew for
every batch, so that a change of load needs no message. Ingress has an estimate of its own: what it
sends in runs of another length than that table's takes the next table for such runs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from schemas.records import Selection
from schemas.variant_id import variant_key

ROUNDING_S = 1e-9  # times are sums of floats
NEAR = 0.05  # relative; loads that differ by less are hardly told apart in half a second
STEP = 3  # numbers of a row that belong together: level, variant, batch

# A queue length's decisions: from which slack on (seconds, growing), and what: (variant, batch).
Row = tuple[list[float], list[tuple[str, int]]]


class TableLookup:
    """A selection ready to be asked; variants are named "task/variant" as on a device."""

    __slots__ = ("_loads", "_ready", "_runs", "selection", "variants")

    def __init__(self, selection: Selection) -> None:
        """``selection`` is one in which ``faults`` found nothing."""
        self.selection = selection
        self.variants = tuple(variant_key(selection.task, name) for name in selection.variants)
        self._loads = [table.qps for table in selection.tables]
        self._runs = [table.run for table in selection.tables]
        self._ready: list[list[Row] | None] = [None] * len(self._loads)

    def choose(self, queue: int, slack_s: float, own_qps: float, run: int = 0) -> tuple[str, int]:
        """What to run for a queue (from 1) and its head's slack: the variant and the batch.

        ``own_qps`` is the worker's own load, infinite where it is not known yet. Where queries come
        in runs of ``run``, that takes the next table for such.
        """
        at = for_runs(self._runs, in_force(self._loads, own_qps * self.selection.workers), run)
        rows = self._ready[at] or self._made(at)
        levels_s, choices = rows[min(queue, len(rows)) - 1]
        variant, batch = choices[max(bisect_right(levels_s, slack_s + ROUNDING_S) - 1, 0)]
        return variant, queue if batch >= len(rows) else min(batch, queue)

    def run(self, qps: float, before: int) -> int:
        """How many queries in a row a worker gets at a load, infinite where it is not known yet.

        They stay as many as ``before`` while a table for a load close by is for those.
        """
        return lasting(self._loads, self._runs, qps, before)

    def _made(self, at: int) -> list[Row]:
        # When it is first in force: of fifty tables a worker may ever need five.
        levels_s = self.selection.levels_s
        rows: list[Row] = [
            (
                [levels_s[level] for level in row[::STEP]],
                [(self.variants[v], b) for v, b in zip(row[1::STEP], row[2::STEP], strict=True)],
            )
            for row in self.selection.tables[at].rows
        ]
        self._ready[at] = rows
        return rows


class Selections:
    """What a node was told to follow, by policy and task."""

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: dict[tuple[str, str], TableLookup] = {}

    def take(self, selection: Selection, known: Collection[str]) -> bool:
        """Keep the newest; without tables, as none can be made any more, those of earlier end.

        False where it is unfit (``faults``), and nothing has changed.
        """
        at = (selection.policy, selection.task)
        if not selection.tables:
            self._ready.pop(at, None)
        elif faults(selection, known):
            return False
        else:
            self._ready[at] = TableLookup(selection)
        return True

    def of(self, policy: str, task: str) -> TableLookup | None:
        """Those of a policy for a task, where there are any."""
        return self._ready.get((policy, task))


def in_force(loads: Sequence[float], qps: float) -> int:
    """Which of growing loads' tables is in force."""
    return min(bisect_left(loads, qps * (1 - ROUNDING_S)), len(loads) - 1)


def for_runs(runs: Sequence[int], at: int, run: int) -> int:
    """The table in place of number ``at`` where queries come in runs of ``run``: the next one for
    such, else the last, else that one. ``runs`` are the tables'."""
    if runs[at] == run:
        return at
    ways = (*range(at + 1, len(runs)), *range(at - 1, -1, -1))
    return next((other for other in ways if runs[other] == run), at)


def lasting(loads: Sequence[float], runs: Sequence[int], qps: float, before: int) -> int:
    """The run of the table in force, or that ``before`` while a load within ``NEAR`` has it.

    Runs of several lengths, one after the other, make gaps of several lengths.
    """
    near = range(in_force(loads, qps * (1 - NEAR)), in_force(loads, qps * (1 + NEAR)) + 1)
    return before if any(runs[at] == before for at in near) else runs[in_force(loads, qps)]


def faults(selection: Selection, known: Collection[str]) -> str:
    """What makes a selection unfit to be followed, "" where nothing does.

    ``known`` are the task's variants; a pipeline file may have changed since the tables were made.
    """
    unknown = [name for name in selection.variants if name not in known]
    if unknown:
        return f"the tables of {selection.task} choose {unknown[0]!r}, which is no variant of it"
    loads = [table.qps for table in selection.tables]
    if not loads or loads != sorted(loads) or selection.workers < 1:
        return f"the tables of {selection.task} are not in the order of their loads"
    levels, variants = len(selection.levels_s), len(selection.variants)
    rows = [row for table in selection.tables for row in table.rows or ((),)]
    sound = all(_is_sound(row, levels, variants) for row in rows)
    sound = sound and all(table.run >= 1 for table in selection.tables)
    return "" if sound else f"a table of {selection.task} has a row that says nothing"


def _is_sound(row: Sequence[int], levels: int, variants: int) -> bool:
    return (
        len(row) >= STEP
        and len(row) % STEP == 0
        and row[0] == 0
        and all(0 <= level < levels for level in row[::STEP])
        and all(0 <= variant < variants for variant in row[1::STEP])
        and all(batch >= 1 for batch in row[2::STEP])
    )
