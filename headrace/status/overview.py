"""Track the state of all pipelines on a broker, a board for each named by plans or reports."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.status.snapshot import Board, Snapshot
from schemas.records import Plan, Report


@dataclass(slots=True)
class Boards:
    """The boards of all pipelines on a broker, fed with plans and reports."""

    _boards: dict[str, Board] = field(default_factory=dict)

    def see(self, records: Iterable[object]) -> None:
        """Add plans and reports to their pipelines' boards; ignore other records."""
        for record in records:
            if isinstance(record, (Plan, Report)):
                board = self._boards.setdefault(record.pipeline, Board(record.pipeline))
                board.see((record,))

    def snapshots(self, now: float) -> list[Snapshot]:
        """Return a snapshot per pipeline at ``now``, by name, including pipelines without nodes."""
        return [board.snapshot(now) for _, board in sorted(self._boards.items())]
