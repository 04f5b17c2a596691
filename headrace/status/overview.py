"""What do all pipelines on a broker do right now? A board for each that plans or reports name."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.status.snapshot import Board, Snapshot
from schemas.records import Plan, Report


@dataclass(slots=True)
class Boards:
    """Told the plans and reports of every pipeline on a broker."""

    _boards: dict[str, Board] = field(default_factory=dict)

    def see(self, records: Iterable[object]) -> None:
        """Take records in; what is neither plan nor report is passed over."""
        for record in records:
            if isinstance(record, (Plan, Report)):
                board = self._boards.setdefault(record.pipeline, Board(record.pipeline))
                board.see((record,))

    def snapshots(self, now: float) -> list[Snapshot]:
        """Every pipeline at ``now`` by name, also those of which only plans are left."""
        return [board.snapshot(now) for _, board in sorted(self._boards.items())]
