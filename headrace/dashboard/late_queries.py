"""The newest queries that were not answered in time, with the waterfall of each."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.results.waterfall import explained
from operators.outcomes import LATE, outcome_of
from schemas.records import DROPPED, FAILED, Answer

SHOWN = 8
WANTED = (LATE, DROPPED, FAILED)


@dataclass(slots=True)
class LateQueries:
    """Keeps the newest ``SHOWN`` of the queries that were late, dropped or failed."""

    _kept: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))

    def see(self, answers: Iterable[Answer]) -> None:
        """Add the answers that were not in time."""
        self._kept.extend(_row(each) for each in answers if outcome_of(each) in WANTED)

    def rows(self) -> list[dict[str, Any]]:
        """Return the waterfalls, the newest query first; results are left out."""
        return list(reversed(self._kept))


def _row(answer: Answer) -> dict[str, Any]:
    """Return a waterfall without the query's result, which viewers may not be allowed to see."""
    story = explained(answer).as_json()
    row = {name: story[name] for name in ("latency_ms", "deadline_ms", "stages", "last", "notes")}
    return {
        "id": answer.id[:80],
        "outcome": outcome_of(answer),
        "task": answer.task,
        "reason": answer.reason[:200],
        "answered_s": answer.answered_s,
        "epoch": answer.epoch,
        **row,
    }
