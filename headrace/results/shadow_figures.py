"""Agreement of answers with their shadows, by path, and the accuracy that follows."""

from collections.abc import Iterable
from dataclasses import dataclass

from control.estimation.accuracy.accuracy_drift import sums_of
from control.estimation.accuracy.accuracy_sums import AccuracySums, merged_sums
from control.estimation.accuracy.shadow_accuracy import ShadowAccuracy, shadow_accuracy
from headrace.cells import percent
from schemas.records import AccuracyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFigure:
    """The answers of ``path``, compared with ``queries`` shadows along ``reference``."""

    path: str
    reference: str
    queries: int
    found: ShadowAccuracy


def shadow_figures(rows: Iterable[AccuracyRow]) -> tuple[ShadowFigure, ...]:
    """Return the agreement over all classes and hours, by path and reference path."""
    groups: dict[tuple[str, str], list[AccuracySums]] = {}
    expected: dict[str, float | None] = {}
    for row in rows:
        groups.setdefault((row.path, row.reference), []).append(sums_of(row))
        expected[row.reference] = row.reference_accuracy
    made = []
    for (path, reference), parts in sorted(groups.items()):
        sums = merged_sums(parts)
        found = shadow_accuracy(sums, expected[reference])
        if found is not None:
            made.append(
                ShadowFigure(path=path, reference=reference, queries=sums.queries, found=found)
            )
    return tuple(made)


def shadow_text(figure: ShadowFigure) -> str:
    """Return a figure as a sentence."""
    found = figure.found
    agreed = (
        f"{figure.path} equals {figure.reference} in {percent(found.agreement, 2)} "
        f"({percent(found.low, 2)} to {percent(found.high, 2)}, {figure.queries:,} shadows)"
    )
    if found.accuracy is None:
        return agreed
    return (
        f"{agreed}: accuracy about {percent(found.accuracy, 2)} "
        f"({percent(found.accuracy_low, 2)} to {percent(found.accuracy_high, 2)}; "
        f"{percent(found.least, 2)} to {percent(found.most, 2)} for any correlation of errors)"
    )
