"""The decisions of a worker that follows tables: look up the table in force.

Tables are sorted by load. The table in force is the first whose load is not below the estimated
load, else the last and fastest one. The worker looks it up for every batch, so that a change of
load needs no message. Ingress has its own estimate: if it sends runs of another length than the
table's, the next table for that length applies.

A worker observes only its own part of the load (``OwnLoad``). Round robin makes its gaps so even
that they are more precise than the count in a short window. With t0 the last arrival that is at
least a window old, and n arrivals since, the newest at tn,

    qps = min(n / (tn - t0), (n + 1) / (now - t0))

where 1 is replaced by the length of a burst if queries come in bursts. The rate is causal. Until a
whole window has been observed it is infinite, which selects the table of the highest load: a model
that is too fast costs accuracy for half a second, one that is too slow leaves a backlog.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Sequence

from schemas.records import Selection
from schemas.variant_id import variant_key

ROUNDING_S = 1e-9  # times are sums of floats
NEAR = 0.05  # relative; loads that differ by less cannot be distinguished in half a second
STEP = 3  # entries per decision in a row: level, variant, batch

# The decisions for one queue length: the least slack of each (seconds, growing), and (variant,
# batch).
Row = tuple[list[float], list[tuple[str, int]]]


class TableLookup:
    """A selection prepared for lookups; variants are named "task/variant" as on a device."""

    __slots__ = ("_loads", "_ready", "_runs", "selection", "variants")

    def __init__(self, selection: Selection) -> None:
        """``selection`` must have passed ``faults``."""
        self.selection = selection
        self.variants = tuple(variant_key(selection.task, name) for name in selection.variants)
        self._loads = [table.qps for table in selection.tables]
        self._runs = [table.run for table in selection.tables]
        self._ready: list[list[Row] | None] = [None] * len(self._loads)

    @property
    def in_runs(self) -> bool:
        """Whether a table is for runs of several queries."""
        return max(self._runs) > 1

    def choose(self, queue: int, slack_s: float, own_qps: float, run: int = 0) -> tuple[str, int]:
        """Return the variant and the batch for a queue (from 1) and the slack of its head.

        ``own_qps`` is the worker's own load, infinite while unknown. If queries come in runs of
        ``run``, the next table for that length applies.
        """
        at = for_runs(self._runs, in_force(self._loads, own_qps * self.selection.workers), run)
        rows = self._ready[at] or self._made(at)
        levels_s, choices = rows[min(queue, len(rows)) - 1]
        variant, batch = choices[max(bisect_right(levels_s, slack_s + ROUNDING_S) - 1, 0)]
        return variant, queue if batch >= len(rows) else min(batch, queue)

    def run(self, qps: float, before: int) -> int:
        """Return the length of the runs that a worker gets at a load (infinite: unknown).

        The length ``before`` stays while a table for a similar load has it.
        """
        return lasting(self._loads, self._runs, qps, before)

    def _made(self, at: int) -> list[Row]:
        # Built on first use: a worker may need only five of fifty tables.
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
    """The selections that a node follows, by policy and task."""

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: dict[tuple[str, str], TableLookup] = {}

    def take(self, selection: Selection, known: Collection[str]) -> bool:
        """Keep the newest selection; one without tables removes the earlier ones.

        Return False and change nothing for an unfit selection (``faults``).
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
        """Return the tables of a policy for a task, or None."""
        return self._ready.get((policy, task))


def in_force(loads: Sequence[float], qps: float) -> int:
    """Return the index of the table in force, given the tables' growing loads."""
    return min(bisect_left(loads, qps * (1 - ROUNDING_S)), len(loads) - 1)


def for_runs(runs: Sequence[int], at: int, run: int) -> int:
    """Return the index of the table for runs of ``run``: the next one from ``at`` on for that
    length, else the closest before, else ``at``. ``runs`` are the tables' lengths."""
    if runs[at] == run:
        return at
    ways = (*range(at + 1, len(runs)), *range(at - 1, -1, -1))
    return next((other for other in ways if runs[other] == run), at)


def lasting(loads: Sequence[float], runs: Sequence[int], qps: float, before: int) -> int:
    """Return the table's run length, or ``before`` if a load within ``NEAR`` has that length.

    The length is kept because mixed run lengths make uneven gaps.
    """
    near = range(in_force(loads, qps * (1 - NEAR)), in_force(loads, qps * (1 + NEAR)) + 1)
    return before if any(runs[at] == before for at in near) else runs[in_force(loads, qps)]


def faults(selection: Selection, known: Collection[str]) -> str:
    """Return why a selection is unfit for use, or "".

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


WINDOW_S = 0.5  # the paper's, section 6


class OwnLoad:
    """The arrival rate at one worker, counted since ``began_s``."""

    __slots__ = ("_times", "_window_s")

    def __init__(self, began_s: float, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._times = deque((began_s,))

    def arrived(self, items: int, now: float) -> None:
        """Record ``items`` arrivals at ``now``."""
        self._times.extend([now] * items)

    def qps(self, now: float, run: int = 1) -> float:
        """Return items per second, infinite until a whole window was observed; ``run`` is the
        length of the next burst."""
        times, since_s = self._times, now - self._window_s
        if times[0] > since_s:
            return math.inf
        while len(times) > 1 and times[1] <= since_s:
            times.popleft()
        came, before_s = len(times) - 1, times[0]
        bound = (came + run) / (now - before_s)
        return min(came / (times[-1] - before_s), bound) if came else bound
