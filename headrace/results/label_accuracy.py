"""Accuracy of labelled answers: of all, by path, by class and by hour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from control.estimation.accuracy.accuracy_drift import sums_of
from control.estimation.accuracy.accuracy_sums import AccuracySums, merged_sums
from operators.outcomes import outcome_of
from operators.scoring.score_sums import RowKey, hour
from operators.scoring.scorer import Judge, path_of, score
from schemas.records import ANSWERED, AccuracyRow, Answer, Label

NO_CLASS = "(none)"
NO_PATH = "(not recorded)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyFigure:
    """The accuracy of ``queries`` labelled answers, with its 95 % interval; 0 to 1."""

    name: str
    queries: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAccuracy:
    """The measured accuracy of a pipeline. ``hours`` are in UTC, the latest last."""

    overall: AccuracyFigure
    paths: tuple[AccuracyFigure, ...]
    classes: tuple[AccuracyFigure, ...]
    hours: tuple[AccuracyFigure, ...]


def label_accuracy(rows: Mapping[RowKey, AccuracySums]) -> LabelAccuracy | None:
    """Return the accuracy of the rows; None if no answer has a label."""
    if not rows:
        return None
    return LabelAccuracy(
        overall=_figure("all", rows.values()),
        paths=_grouped(rows, 0),
        classes=_grouped(rows, 1),
        hours=_grouped(rows, 2),
    )


def of_rows(rows: Iterable[AccuracyRow]) -> dict[RowKey, AccuracySums]:
    """Return the sums of a record's rows by path, class and hour."""
    return {(row.path, row.slo_class, row.hour_s): sums_of(row) for row in rows}


def scored(
    answers: Iterable[Answer], labels: Mapping[str, Label], judge: Judge
) -> dict[RowKey, AccuracySums]:
    """Return the sums over the answers that have a label; answers that cannot be judged are left
    out, as the scorer does."""
    rows: dict[RowKey, AccuracySums] = {}
    for answer in answers:
        label = labels.get(answer.id)
        if label is None or outcome_of(answer) != ANSWERED:
            continue
        try:
            right, of = score(answer.result, label, judge)
        except (Exception, SystemExit):  # noqa: BLE001 - a user's function; the scorer reports it
            continue
        key = (path_of(answer), answer.slo_class, hour(answer.answered_s))
        rows[key] = rows.get(key, AccuracySums()).plus(right, of)
    return rows


def _grouped(rows: Mapping[RowKey, AccuracySums], at: int) -> tuple[AccuracyFigure, ...]:
    groups: dict[str | float, list[AccuracySums]] = {}
    for key, sums in rows.items():
        groups.setdefault(key[at], []).append(sums)
    named = {_name(key, at): parts for key, parts in groups.items()}
    return tuple(_figure(name, named[name]) for name in sorted(named))


def _name(key: str | float, at: int) -> str:
    if isinstance(key, float):
        return datetime.fromtimestamp(key, UTC).strftime("%Y-%m-%d %H:00Z")
    return key or (NO_PATH, NO_CLASS)[at]


def _figure(name: str, parts: Iterable[AccuracySums]) -> AccuracyFigure:
    sums = merged_sums(parts)
    low, high = sums.interval()
    return AccuracyFigure(
        name=name, queries=sums.queries, accuracy=sums.accuracy or 0.0, low=low, high=high
    )
