"""Runs: how many queries in a row does ingress send to a worker, and does it wait for the rest?

Which length is best for which load, tables say (control/policies/ramsis/burst_lengths.py). Every
query of a run
tells how many follow, so that a worker knows a whole one, whatever ingress went by. Nothing is held
back: queries leave ingress as they come, and a worker begins without the rest in good time.
"""

from control.per_query.arrival_rate import OwnLoad
from control.per_query.routing import Turns, WeightedRoundRobin, spreads
from control.per_query.table_lookup import Selections, TableLookup
from control.policies.ramsis.burst_lengths import together
from schemas.pipeline import Pipeline
from schemas.records import Plan, Selection


class Runs:
    """Where an ingress sends the queries of a pipeline; one by one unless it is ``alone``.

    Runs of several ingress processes would meet at the same worker.
    """

    __slots__ = ("_alone", "_following", "_load", "_pipeline", "_run", "_selections", "_turns")

    def __init__(self, pipeline: Pipeline, alone: bool) -> None:
        self._pipeline = pipeline
        self._alone = alone
        self._turns = Turns(WeightedRoundRobin(()))
        self._selections = Selections()
        self._following: TableLookup | None = None
        self._load = OwnLoad(0.0)
        self._run = 1

    def __bool__(self) -> bool:
        """Whether there is anywhere to send to."""
        return bool(self._turns)

    def take(self, selection: Selection, plan: Plan | None, now: float) -> None:
        """Tables, of whatever task and policy; without any, those of earlier end."""
        root = self._pipeline.root
        if (selection.pipeline, selection.task) != (self._pipeline.name, root.name):
            return
        self._selections.take(selection, [variant.name for variant in root.variants])
        self._follow(plan, now)

    def change(self, plan: Plan, now: float) -> None:
        """A plan is in force; a run under way is cut short."""
        self._turns.change(
            spreads(plan.routes, "").get(self._pipeline.root.name, WeightedRoundRobin(()))
        )
        self._follow(plan, now)

    def _follow(self, plan: Plan | None, now: float) -> None:
        before = self._following
        policy = plan.settings.policy if plan and self._alone else ""
        self._following = found = self._selections.of(policy, self._pipeline.root.name)
        if found is not None and before is None:
            self._load = OwnLoad(now)

    def pick(self, now: float) -> tuple[int, int]:
        """The slot of the next query, and how many follow it there."""
        following = self._following
        if following is None:
            return self._turns.pick(1)
        self._load.arrived(1, now)
        if self._turns.left:
            return self._turns.pick(self._run)
        qps = self._load.qps(now)
        self._run = following.run(qps, self._run)
        return self._turns.pick(min(self._run, together(qps, following.selection.slo_s)))


class BurstBuffer:
    """What comes to a worker that follows tables, since ``began_s``: how much, and the newest run
    of it. What there is of that waits ``wait_s`` for the rest."""

    __slots__ = ("_have", "_left", "_load", "_since_s", "wait_s")

    def __init__(self, began_s: float) -> None:
        self.wait_s = 0.0
        self._load = OwnLoad(began_s)
        self._have = self._left = 0
        self._since_s = began_s

    def came(self, items: int, follow: int, now: float) -> None:
        """So many came together, and others follow them."""
        if follow >= self._left:
            self._have, self._since_s = 0, now
        self._have += items
        self._left = follow
        self._load.arrived(items, now)

    @property
    def run(self) -> int:
        """How many the newest run is when it is whole."""
        return self._have + self._left

    def qps(self, now: float) -> float:
        """Items per second, infinite until a window of them was seen."""
        return self._load.qps(now, self.run)

    @property
    def until_s(self) -> float:
        """Until when those of the run that are there wait for the rest."""
        return self._since_s + self.wait_s

    def ready(self, queued: int, now: float) -> int:
        """How many of a queue, whose last ones are the run's, wait for nobody."""
        if not self._left or now >= self.until_s:
            return queued
        return max(queued - self._have, 0)
