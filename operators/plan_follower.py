"""Following the plans topic: keep the newest plan, reject older ones."""

from schemas.effects import PLANS, Assign, Effect
from schemas.records import Plan


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
