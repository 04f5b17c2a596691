"""Rules of a worker under a plan: drop, batch and route items as the plan's policy prescribes.

A worker builds a new ``WorkerRules`` for every plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields
from math import inf

from msgspec.structs import replace

from control.per_query.batching import BATCHERS, HELD_S, batcher_of, most_held
from control.per_query.dropping import BUDGETS, RULES, TaskTiming
from control.per_query.rerouting import NOWHERE, WAYS, Junction, Way, junctions, least_behind
from control.per_query.routing import spreads
from control.policies import policy_named
from control.policies.kairos.dispatch_options import LATE, SERVE
from control.problem.lazy_references import rule_named
from operators.drop_reasons import (
    Reason,
    dropped,
    no_way_on,
    past_saving,
    rerouted,
    too_late_for_rest,
    would_overrun,
)
from operators.serving.outbox import BY_TURN, Onward, packed
from schemas.effects import Effect
from schemas.pipeline import Pipeline, Policy
from schemas.records import Item, Lease, Plan, Settings, Work

# (variant as "task/variant", batch size) -> latency in seconds; 0 if not measured.
LatencyOf = Callable[[str, int], float]

# The rules before the first plan: no lease, no routes.
UNSTEERED = Plan(
    pipeline="", epoch=0, issued_s=0.0, reason="", settings=Settings(policy="static", slo_s=0.0)
)


class WorkerRules:
    """The rules for one worker's items; ``lease`` None: the worker is idle."""

    def __init__(
        self, plan: Plan, pipeline: Pipeline, lease: Lease | None, latency: LatencyOf, now: float
    ) -> None:
        policy = policy_named(pipeline, plan.settings.policy) or Policy(name="")
        self._rule = rule_named(RULES, _dropping(policy, pipeline, lease))
        self.batching = batcher_of(policy)
        self._delay_s = inf if policy.batch_delay_s is None else policy.batch_delay_s
        # ``largest``: of a batch, by "task/variant", in place of the variants' own
        self.capped, self.paced, self.largest = policy.capped, policy.paced, policy.batch
        self._begin_s = rule_named(BATCHERS, self.batching)
        self.epoch = plan.epoch
        self._partitions = pipeline.egress_partitions
        self._dispatchers = {task.name: pipeline.dispatchers for task in pipeline.dispatched}
        self._variant = lease.key if lease else ""
        self._spreads = spreads(plan.routes, self._variant)
        self._stage = self._crowded = TaskTiming(0.0, 0.0, last=True)
        self._hops_s = self._behind_s = 0.0
        self.most = 0  # items that the worker may hold
        self._way = WAYS.get(self._rule.reroutes)
        self._junctions: dict[str, Junction] = {}
        if lease is not None:
            latency_s = _planned_s(plan, lease) or latency(self._variant, lease.batch)
            # Only a held item can be overtaken by one with an earlier deadline.
            held_s = max((HELD_S, *pipeline.slo_classes.values()))
            self.most = most_held(lease.batch, latency_s, held_s)
            self._stand(lease, plan, pipeline, policy.budget, latency_s)
            if self._way is not None:
                senders = sum(x.task == lease.task and x.open_slot >= 0 for x in plan.leases)
                slo_s = plan.settings.slo_s
                self._junctions = junctions(
                    plan.routes, self._variant, pipeline, slo_s, senders, now
                )

    def follow(self, before: "WorkerRules", now: float) -> None:
        """Continue from the rules of an earlier plan: turns and spare capacity."""
        for task, spread in self._spreads.items():
            if task in before._spreads:
                spread.follow(before._spreads[task])
        for task, junction in self._junctions.items():
            if task in before._junctions:
                junction.follow(before._junctions[task], now)

    def _stand(
        self, lease: Lease, plan: Plan, pipeline: Pipeline, budget: str, latency_s: float
    ) -> None:
        """Set the lease's stage: the task's budget and the least time of the tasks after it."""
        rest_s, hops = least_behind(plan.routes, pipeline, lease.task)
        last = not pipeline.task(lease.task).children
        hops_s = pipeline.comm_s * (2 if lease.task == pipeline.root.name else 1)
        self._hops_s, self._behind_s = hops_s, rest_s + hops * pipeline.comm_s
        self._stage = TaskTiming(
            rule_named(BUDGETS, budget)(latency_s, pipeline.compute_share, hops_s),
            0.0 if last else self._behind_s,
            last,
            plan.tightest_slo_s,
            bool(pipeline.slo_classes),
        )
        # For when more items wait than a batch takes: counts batches' time beyond the plan.
        seen_s = max(0.0, plan.to_egress_s.get(lease.task, 0.0) - latency_s)
        self._crowded = with_fields(self._stage, seen_s=seen_s)

    @property
    def behind_s(self) -> float:
        """The least time from the end of the lease's task to the answer, in seconds."""
        return self._behind_s

    def overrun_s(self, work: Work, item: Item, ends_s: float, *, crowded: bool = False) -> float:
        """Return by how many seconds a batch ending at ``ends_s`` is too late for an item (0 or
        less: in time). ``crowded``: more items wait than the batch takes."""
        entered_s = item.path[-1].finished_s if item.path else work.created_s
        stage = self._crowded if crowded else self._stage
        return ends_s - self._rule.must_end(stage, work.created_s, entered_s, work.deadline_s)

    def slack_s(self, work: Work, item: Item, budget_s: float, now: float) -> float:
        """Return the seconds until an item's batch must end, both within the task's ``budget_s``
        and in time for the tasks after it."""
        entered_s = item.path[-1].finished_s if item.path else work.created_s
        return min(work.deadline_s - self._behind_s, entered_s + self._hops_s + budget_s) - now

    def begin_s(
        self, queued: int, largest: int, head: tuple[Work, Item, float], latency_s: float
    ) -> float:
        """Return the time to begin a batch; a full one takes ``latency_s``.

        ``head`` is the first item with its record and the time the worker received it.
        """
        work, item, received_s = head
        entered_s = item.path[-1].finished_s if item.path else work.created_s
        must_end_s = self._rule.must_end(self._stage, work.created_s, entered_s, work.deadline_s)
        end_s = min(must_end_s, entered_s + self._stage.budget_s)
        return self._begin_s(queued, largest, min(end_s - latency_s, received_s + self._delay_s))

    def why(self, variant: str, work: Work, item: Item, ends_s: float) -> Reason:
        """Return the reason to drop an item whose batch would end too late, at ``ends_s``."""
        if ends_s > work.deadline_s:
            return past_saving(variant, ends_s - work.deadline_s)
        short_s = self.overrun_s(work, item, ends_s, crowded=True)
        if self._rule.budgets:
            return would_overrun(variant, short_s)
        return too_late_for_rest(variant, short_s)

    def onward(self, pieces: Sequence[Onward], now: float) -> list[Effect]:
        """Return the sends of ``pieces``; late ones are rerouted or end if the rule says so."""
        chosen: Sequence[int] = ()
        if self._junctions and self._way is not None:
            pieces, chosen = self._steered(pieces, self._way, now)
        return packed(
            pieces, self._spreads, self.epoch, self._partitions, chosen, self._dispatchers
        )

    def _steered(
        self, pieces: Sequence[Onward], way: Way, now: float
    ) -> tuple[list[Onward], list[int]]:
        steered: list[Onward] = []
        chosen: list[int] = []
        for piece in pieces:
            work, task, item = piece
            junction = None if task in self._dispatchers else self._junctions.get(task)
            slot = turn = BY_TURN
            if junction is not None and junction.spread and work.session is None:
                hop = item.path[-1]
                entered_s = item.path[-2].finished_s if len(item.path) > 1 else work.created_s
                late_s = hop.finished_s - entered_s - self._stage.budget_s
                left_s = work.deadline_s - hop.finished_s
                turn, slot = way(junction, late_s, left_s, now)
                if slot == NOWHERE:
                    piece = (work, "", _ended(item, task, late_s, left_s))
                elif slot != turn:
                    piece = (work, task, _marked(item, rerouted(turn, slot, late_s)))
            steered.append(piece)
            chosen.append(slot)
        return steered, chosen


def _marked(item: Item, mark: str) -> Item:
    path = (*item.path[:-1], replace(item.path[-1], rerouted=mark))
    return replace(item, path=path)


def _dropping(policy: Policy, pipeline: Pipeline, lease: Lease | None) -> str:
    """Return the drop rule: ``none`` where late items are served, else that of the plan's policy.

    The policy of the lease's dispatcher decides, as a dispatcher sends late items on purpose.
    """
    dispatch = pipeline.task(lease.task).dispatch if lease is not None else ""
    sends = policy_named(pipeline, dispatch) if dispatch else policy
    return "none" if sends is not None and LATE.of(sends) == SERVE else policy.dropping


def _planned_s(plan: Plan, lease: Lease) -> float:
    """Return the plan's latency of the worker's batch in seconds; 0 if the plan has none."""
    for route in plan.routes:
        if route.slot == lease.open_slot and route.task == lease.task:
            return route.latency_s
    return 0.0


def _ended(item: Item, child: str, late_s: float, left_s: float) -> Item:
    hop = item.path[-1]
    end = dropped(hop.task, no_way_on(hop.key, child, late_s, left_s))
    return Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
