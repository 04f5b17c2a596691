"""Following the plans topic: keep the newest plan, reject older ones."""

from schemas.effects import PLANS, Arrived, Assign, Effect
from schemas.records import Plan, Record, Selection


class PlanFollower:
    """The plan in force at one node. Invariant: its epoch never goes back."""

    __slots__ = ("_pipeline", "plan", "started")

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.plan: Plan | None = None
        self.started = False

    @property
    def epoch(self) -> int:
        """The epoch of the plan in force; 0 before the first."""
        return self.plan.epoch if self.plan else 0

    def start(self) -> list[Effect]:
        """Start reading the plans topic."""
        self.started = True
        return [Assign(PLANS, (0,))]

    def accept(self, plan: Plan) -> bool:
        """Adopt a plan; return False if it is another pipeline's or not newer."""
        if plan.pipeline != self._pipeline or plan.epoch <= self.epoch:
            return False
        self.plan = plan
        return True


class CatchUp:
    """Replay of the plans topic's history, reduced to the newest plan and tables.

    The topic retains hundreds of plans; a node that followed each would load each one's models.
    ``end`` is the topic's end offset when reading began.
    """

    __slots__ = ("_kept", "_pipeline", "end", "over")

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._kept: dict[bytes, Arrived] = {}  # by the record's key, as compaction keeps them
        self.end: int | None = None
        self.over = False

    def take(self, event: Arrived, key: bytes | None = None) -> None:
        """Take a historical record; sets ``over`` with the last one."""
        if self._concerns(event.record):
            # A record without a key is never replaced or deleted.
            name = key or b"offset %d" % event.offset
            kept = self._kept.get(name)
            if kept is None or not _contests(kept, event):
                self._kept[name] = event
        self._passed(event.offset)

    def forget(self, key: bytes | None, offset: int) -> None:
        """Apply a tombstone: delete the record under its key, whether compacted yet or not."""
        self._kept.pop(key or b"", None)
        self._passed(offset)

    def newest(self) -> list[Arrived]:
        """Return the plan of the highest epoch and each policy's newest tables, in offset order."""
        newest: dict[tuple[str, ...], Arrived] = {}
        for event in sorted(self._kept.values(), key=lambda event: event.offset):
            what = self._replaces(event.record)
            before = newest.get(what)
            older = before is not None and _epoch(event) < _epoch(before)
            if before is None or not (older or _contests(before, event)):
                newest[what] = event
        return sorted(newest.values(), key=lambda event: event.offset)

    def _passed(self, offset: int) -> None:
        self.over = self.end is not None and offset + 1 >= self.end

    def _concerns(self, record: Record) -> bool:
        return isinstance(record, (Plan, Selection)) and record.pipeline == self._pipeline

    def _replaces(self, record: Record) -> tuple[str, ...]:
        """Return the identity under which a newer record replaces this one."""
        return (record.policy, record.task) if isinstance(record, Selection) else (PLANS,)


def _contests(first: Arrived, event: Arrived) -> bool:
    """Return whether a plan has the epoch of an earlier one: a control app that was cut off wrote
    it, and its followers keep the earlier plan."""
    return isinstance(first.record, Plan) and _epoch(first) == _epoch(event)


def _epoch(event: Arrived) -> int:
    return event.record.epoch if isinstance(event.record, Plan) else 0
