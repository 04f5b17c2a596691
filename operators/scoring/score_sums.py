"""A scorer's measurements: sums by path, class and hour, and the newest of each path."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from msgspec import structs

from control.estimation.accuracy.accuracy_drift import Expected, sums_of
from control.estimation.accuracy.accuracy_sums import AccuracySums
from control.estimation.accuracy.recent_accuracy import RecentAccuracy
from schemas.records import AccuracyRow, MeasuredAccuracy

RowKey = tuple[str, str, float]  # path, class, start of the hour
ShadowKey = tuple[str, str, float, str]  # the same, and the path of the shadows
RecentKey = tuple[str, str]  # path, and that of the shadows ("": labels)
# A path's text to its accuracy by the profile.
ExpectedOf = Callable[[str], Expected | None]

HOUR_S = 3600.0
MOST_PATHS = 50  # further paths count together under ``OTHER``
UNUSED_S = 6 * HOUR_S  # a path without an answer for this long makes room for another
MOST_ROWS = 1000  # beyond it the oldest hour goes, but the newest one stays
OTHER = "other"


_Key = TypeVar("_Key", RowKey, ShadowKey)


def _bounded(rows: dict[_Key, AccuracySums]) -> dict[_Key, AccuracySums]:
    """Return the rows without those of the oldest hour if they are too many and of several."""
    if len(rows) <= MOST_ROWS:
        return rows
    hours = [key[2] for key in rows]
    oldest = min(hours)
    if oldest == max(hours):
        return rows
    return {key: sums for key, sums in rows.items() if key[2] > oldest}


def unknown(path: str) -> Expected | None:
    """Expect nothing: there is no profile."""
    return None


class Measurements:
    """Sums over labelled answers, and over answers compared with their shadows; in bounded memory.

    ``expected`` gives the profile's accuracy of a path's text.
    """

    def __init__(self, expected: ExpectedOf = unknown) -> None:
        self._expected = lru_cache(2 * MOST_PATHS)(expected)
        self._rows: dict[RowKey, AccuracySums] = {}
        self._agreed: dict[ShadowKey, AccuracySums] = {}
        self._references: dict[str, float | None] = {}  # the profile's accuracy of shadows' paths
        self._recent: dict[RecentKey, RecentAccuracy] = {}
        self._paths: dict[str, float] = {}  # time of each path's newest answer

    def resume(self, earlier: MeasuredAccuracy) -> None:
        """Continue with the sums of an earlier incarnation."""
        for row in earlier.rows:
            self._rows[row.path, row.slo_class, row.hour_s] = sums_of(row)
        for row in earlier.shadows:
            self._agreed[row.path, row.slo_class, row.hour_s, row.reference] = sums_of(row)
            self._references[row.reference] = row.reference_accuracy
        for path, _, hour_s in sorted(self._rows, key=lambda row: -row[2]):
            if path != OTHER:
                self._known(path, hour_s)

    def labelled(
        self, path: str, slo_class: str, answered_s: float, right: float, of: float
    ) -> None:
        """Count an answer, ``right`` of ``of`` parts of which are right by its label."""
        path = self._known(path, answered_s)
        key = (path, slo_class, hour(answered_s))
        self._rows[key] = self._rows.get(key, AccuracySums()).plus(right, of)
        self._rows = _bounded(self._rows)
        self._note(path, "", answered_s, right, of)

    def compared(
        self,
        path: str,
        slo_class: str,
        answered_s: float,
        right: float,
        of: float,
        reference: str,
        accuracy: float | None,
    ) -> None:
        """Count an answer with ``right`` of ``of`` parts equal to those of its shadow. The shadow
        ran along ``reference``, a path of this ``accuracy`` by its profile."""
        path, reference = self._known(path, answered_s), self._known(reference, answered_s)
        key = (path, slo_class, hour(answered_s), reference)
        self._agreed[key] = self._agreed.get(key, AccuracySums()).plus(right, of)
        self._references[reference] = accuracy
        self._agreed = _bounded(self._agreed)
        self._note(path, reference, answered_s, right, of)

    def note(self, path: str, answered_s: float, right: float, of: float) -> None:
        """Count a query by its label among the newest of its path only."""
        self._note(self._known(path, answered_s), "", answered_s, right, of)

    def _note(self, path: str, reference: str, answered_s: float, right: float, of: float) -> None:
        self._recent.setdefault((path, reference), RecentAccuracy()).add(right, of, answered_s)

    def _known(self, path: str, answered_s: float) -> str:
        """Return the path if it is one of the ``MOST_PATHS`` that are counted, else ``OTHER``."""
        if path not in self._paths and len(self._paths) == MOST_PATHS:
            self._make_room(answered_s)
        if path not in self._paths and len(self._paths) == MOST_PATHS:
            return OTHER
        self._paths[path] = max(answered_s, self._paths.get(path, answered_s))
        return path

    def _make_room(self, now: float) -> None:
        """Stop counting paths that are not in use, such as those of replaced variants. Their rows
        stay."""
        unused = [path for path, at_s in self._paths.items() if now - at_s > UNUSED_S]
        if not unused:
            return
        for path in unused:
            del self._paths[path]
        kept, shown = {OTHER, "", *self._paths}, {key[3] for key in self._agreed}
        self._recent = {key: each for key, each in self._recent.items() if kept.issuperset(key)}
        self._references = {
            path: each for path, each in self._references.items() if path in kept | shown
        }

    # ------------------------------------------------------------------ rows

    def rows(self) -> tuple[AccuracyRow, ...]:
        """Return the rows of labelled answers."""
        return tuple([row_of(key, self._rows[key]) for key in sorted(self._rows)])

    def shadows(self) -> tuple[AccuracyRow, ...]:
        """Return the rows of answers compared with their shadows."""
        return tuple([
            row_of(key[:3], self._agreed[key], key[3], self._references.get(key[3]))
            for key in sorted(self._agreed)
        ])  # fmt: skip

    def recent(self, now: float) -> tuple[AccuracyRow, ...]:
        """Return the newest measurements of each path that has any, with the profile's accuracy."""
        for recent in self._recent.values():
            recent.forget(now)
        rows = [self._recent_row(key) for key in sorted(self._recent)]
        return tuple([row for row in rows if row.queries])

    def _recent_row(self, key: RecentKey) -> AccuracyRow:
        recent, (path, reference) = self._recent[key], key
        since_s, accuracy = recent.since_s, self._references.get(reference)
        row = row_of((path, "", since_s), recent.sums(), reference, accuracy)
        found = self._expected(path)
        if found is None:
            return row
        return structs.replace(
            row, expected=found.accuracy, expected_low=found.low, expected_high=found.high
        )


def hour(at_s: float) -> float:
    """Return the start of the hour of a time, in seconds since the epoch."""
    return at_s // HOUR_S * HOUR_S


def row_of(
    key: RowKey, sums: AccuracySums, reference: str = "", expected: float | None = None
) -> AccuracyRow:
    """Return the row of a path, class and hour; ``expected`` belongs to the path ``reference``."""
    low, high = sums.interval()
    return AccuracyRow(
        path=key[0], slo_class=key[1], hour_s=key[2], queries=sums.queries, right=sums.right,
        of=sums.of, right_right=sums.right_right, right_of=sums.right_of, of_of=sums.of_of,
        accuracy=sums.accuracy or 0.0, low=low, high=high, reference=reference,
        reference_accuracy=expected,
    )  # fmt: skip
