"""Bursts (runs): consecutive queries that ingress sends to one worker, which serves them together.

The selection tables map a load to a burst length (control/policies/ramsis/burst_lengths.py). Every
query of a burst carries the number of queries that follow, so that the worker recognises a complete
burst whichever table ingress applied. Ingress never delays a query; the worker waits for the rest
of a burst up to a limit.

Without tables the SLO classes with a floor have turns of their own, as they go ahead in workers'
queues and wait only for each other (``control/per_query/class_precedence.py``). By common turns
their queries would get to the workers at random, and more of them would meet in a queue.
"""

from control.per_query.routing import Turns, WeightedRoundRobin, spreads
from control.per_query.run_admission import RunAdmission, admits_by_turn
from control.per_query.table_lookup import OwnLoad, Selections, TableLookup
from control.policies.ramsis.burst_lengths import gathered_arrivals
from schemas.pipeline import Pipeline
from schemas.records import Plan, Selection


class Runs:
    """Routing of a pipeline's queries to the root task's workers, in bursts.

    Bursts need a single ingress process (``alone``): those of several would collide at a worker.
    """

    __slots__ = (
        "_alone", "_begun", "_floor_turns", "_floored", "_following", "_load", "_pipeline",
        "_queues", "_run", "_selections", "_turns",
    )  # fmt: skip

    def __init__(self, pipeline: Pipeline, alone: bool) -> None:
        self._pipeline = pipeline
        self._alone = alone
        self._turns = Turns(WeightedRoundRobin(()))
        shares = pipeline.class_shares
        self._floored = frozenset([name for name, share in shares.items() if share.floor > 0])
        self._floor_turns = Turns(WeightedRoundRobin(()))
        self._selections = Selections()
        self._following: TableLookup | None = None
        self._load = OwnLoad(0.0)
        self._queues = RunAdmission()
        self._run = 1
        self._begun = False  # whether a query of the current burst was sent

    def __bool__(self) -> bool:
        """Return whether the root task has a worker."""
        return bool(self._turns)

    def take(self, selection: Selection, plan: Plan | None, now: float) -> None:
        """Apply a selection if it is the root task's; one without tables revokes the earlier."""
        root = self._pipeline.root
        if (selection.pipeline, selection.task) != (self._pipeline.name, root.name):
            return
        self._selections.take(selection, [variant.name for variant in root.variants])
        self._follow(plan, now)

    def change(self, plan: Plan, now: float) -> None:
        """Follow a new plan; a burst in progress is cut short."""
        root = self._pipeline.root.name
        for turns in (self._turns, self._floor_turns):
            turns.change(spreads(plan.routes, "").get(root, WeightedRoundRobin(())))
        self._follow(plan, now)

    def _follow(self, plan: Plan | None, now: float) -> None:
        before = self._following
        policy = plan.settings.policy if plan and self._alone else ""
        self._following = found = self._selections.of(policy, self._pipeline.root.name)
        if found is not None and before is None:
            self._load = OwnLoad(now)
        in_bursts = found is not None and found.in_runs and admits_by_turn(self._pipeline)
        self._queues.change(
            plan if in_bursts else None,
            self._pipeline.root.name,
            found.selection.slo_s if found is not None else 0.0,
        )

    def admits(self, now: float) -> bool:
        """Return whether the next query's worker has time for it, by the plan."""
        following = self._following
        if following is None:
            return True
        if not self._turns.left:
            self._begin(following, now)
        return self._begun or self._queues.admits(self._turns.slot, now)

    def pick(self, now: float, slo_class: str = "") -> tuple[int, int]:
        """Return the slot of the next query and the number of queries that follow it there."""
        following = self._following
        if following is None:
            turns = self._floor_turns if slo_class in self._floored else self._turns
            return turns.pick(1)
        self._load.arrived(1, now)
        if not self._turns.left:
            self._begin(following, now)
        self._begun = True
        self._queues.sent(self._turns.slot, now)
        return self._turns.pick(self._run)

    def _begin(self, following: TableLookup, now: float) -> None:
        qps = self._load.qps(now)
        self._run = following.run(qps, self._run)
        self._turns.begin(min(self._run, gathered_arrivals(qps, following.selection.slo_s)))
        self._begun = False


class BurstBuffer:
    """A table-driven worker's arrivals since ``began_s``: their rate and the newest burst.

    An incomplete burst waits ``wait_s`` for its remaining queries.
    """

    __slots__ = ("_have", "_left", "_load", "_since_s", "wait_s")

    def __init__(self, began_s: float) -> None:
        self.wait_s = 0.0
        self._load = OwnLoad(began_s)
        self._have = self._left = 0
        self._since_s = began_s

    def came(self, items: int, follow: int, now: float) -> None:
        """Record ``items`` items; ``follow`` more of their burst are still to come."""
        if follow >= self._left:
            self._have, self._since_s = 0, now
        self._have += items
        self._left = follow
        self._load.arrived(items, now)

    @property
    def run(self) -> int:
        """The size of the newest burst once complete."""
        return self._have + self._left

    def qps(self, now: float) -> float:
        """Return the arrival rate in items/s; infinite before the first full window."""
        return self._load.qps(now, self.run)

    @property
    def until_s(self) -> float:
        """The time until which an incomplete newest burst waits for the rest."""
        return self._since_s + self.wait_s

    def ready(self, queued: int, now: float) -> int:
        """Return how many of ``queued`` items may run now; the newest burst is the queue's tail."""
        if not self._left or now >= self.until_s:
            return queued
        return max(queued - self._have, 0)
