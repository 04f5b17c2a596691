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
        """Of the plan in force; 0 before the first."""
        return self.plan.epoch if self.plan else 0

    def start(self) -> list[Effect]:
        """Begin to read the plans topic."""
        self.started = True
        return [Assign(PLANS, (0,))]

    def accept(self, plan: Plan) -> bool:
        """Take a plan into force; False if it is another pipeline's or not newer."""
        if plan.pipeline != self._pipeline or plan.epoch <= self.epoch:
            return False
        self.plan = plan
        return True


class CatchUp:
    """What of a plans topic's past still counts for the nodes that begin to read it.

    The topic keeps hundreds of plans. Followed one by one, each would have its models loaded.
    ``end`` is the offset behind the last record that the topic had when reading began.
    """

    __slots__ = ("_kept", "_pipeline", "end", "over")

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._kept: dict[bytes, Arrived] = {}  # by the record's key, as compaction keeps them
        self.end: int | None = None
        self.over = False

    def take(self, event: Arrived, key: bytes | None = None) -> None:
        """Read a record of the past; ``over`` once it was the last one."""
        if self._concerns(event.record):
            # Without a key nothing replaces or deletes it.
            self._kept[key or b"offset %d" % event.offset] = event
        self._passed(event.offset)

    def forget(self, key: bytes | None, offset: int) -> None:
        """Read a tombstone: what was kept under its key is deleted, compacted away or not."""
        self._kept.pop(key or b"", None)
        self._passed(offset)

    def newest(self) -> list[Arrived]:
        """The plan of the highest epoch, and each policy's newest tables, in their order."""
        newest: dict[tuple[str, ...], Arrived] = {}
        for event in sorted(self._kept.values(), key=lambda event: event.offset):
            what = self._replaces(event.record)
            before = newest.get(what)
            if before is None or _epoch(event) >= _epoch(before):
                newest[what] = event
        return sorted(newest.values(), key=lambda event: event.offset)

    def _passed(self, offset: int) -> None:
        self.over = self.end is not None and offset + 1 >= self.end

    def _concerns(self, record: Record) -> bool:
        return isinstance(record, (Plan, Selection)) and record.pipeline == self._pipeline

    def _replaces(self, record: Record) -> tuple[str, ...]:
        """What a newer record takes the place of."""
        return (record.policy, record.task) if isinstance(record, Selection) else (PLANS,)


def _epoch(event: Arrived) -> int:
    return event.record.epoch if isinstance(event.record, Plan) else 0
