"""The difference between two views, so that every viewer gets only the changes.

A view maps each pipeline to sections. Sections in ``SERIES`` are lists of rows that never change
and whose first cell (a time, or a number) grows from row to row: for these a delta has the new
rows, and the first cell of the oldest row that is kept. Any other section that differs is sent
whole. ``static/view.js`` applies deltas, as ``tests/applied_deltas.py`` does.
"""

from collections.abc import Mapping
from typing import Any

SERIES = ("rates", "queues", "plans", "events")
Sections = Mapping[str, Any]
View = Mapping[str, Sections]


def delta(before: View, after: View) -> dict[str, Any]:
    """Return the delta from ``before`` to ``after``, by pipeline; both have the same pipelines."""
    return {name: _section_delta(before[name], after[name]) for name in after}


def _section_delta(before: Sections, after: Sections) -> dict[str, Any]:
    changed = {
        name: value
        for name, value in after.items()
        if name not in SERIES and value != before.get(name)
    }
    rows = {name: _new_rows(before[name], after[name]) for name in SERIES}
    starts = {name: after[name][0][0] if after[name] else None for name in SERIES}
    return {"set": changed, "rows": rows, "since": starts}


def _new_rows(before: list[list[Any]], after: list[list[Any]]) -> list[list[Any]]:
    last = before[-1][0] if before else float("-inf")
    return [row for row in after if row[0] > last]
