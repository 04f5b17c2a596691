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
        self._kept: dict[tuple[str, ...], Arrived] = {}
        self.end: int | None = None
        self.over = False

    def take(self, event: Arrived) -> None:
        """Read a record of the past; ``over`` once it was the last one."""
        key = self._key(event.record)
        before = self._kept.get(key)
        if key and (before is None or _epoch(event) >= _epoch(before)):
            self._kept[key] = event
        self.over = self.end is not None and event.offset + 1 >= self.end

    def newest(self) -> list[Arrived]:
        """The plan of the highest epoch, and each policy's newest tables, in their order."""
        return sorted(self._kept.values(), key=lambda event: event.offset)

    def _key(self, record: Record) -> tuple[str, ...]:
        """What a newer record takes the place of; empty for what concerns another pipeline."""
        if isinstance(record, Plan) and record.pipeline == self._pipeline:
            return (PLANS,)
        if isinstance(record, Selection) and record.pipeline == self._pipeline:
            return (record.policy, record.task)
        return ()


def _epoch(event: Arrived) -> int:
    return event.record.epoch if isinstance(event.record, Plan) else 0
