"""Which plans have there been, and what do they bind the next one to?"""

from msgspec.structs import replace

from control.policies import policy_named
from control.rollout.leases import Slots, after
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan, Settings

REMEMBERED_PLANS = 500
UNREAD_S = 1.0  # a plan that a node follows is read here within it, where the topic has it
ROUTES = "routes"  # the version of every plan that only shares traffic anew


class History:
    """The plans on the topic, our own and others'.

    ``plans`` are by epoch, ``epoch`` is the highest of them, ``highest`` the highest that any node
    is known to follow, ``slots`` tells which slots of
    each task were ever open. As the compacted topic does, it keeps the newest plan of each
    version; the versions in ``outdated`` are one too many and may go from the topic, too.
    """

    __slots__ = (
        "_ahead",
        "_pipeline",
        "_routes",
        "_variants",
        "epoch",
        "highest",
        "outdated",
        "plans",
        "slots",
    )

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._variants = {v.key for task in pipeline.tasks for v in task.variants}
        self.plans: dict[int, Plan] = {}
        self.epoch = self.highest = 0
        self._ahead = (0, 0.0)  # the epoch that a node follows and is not here; since when
        self.outdated: list[str] = []
        self._routes = 0  # epoch of the plan that is remembered as ``ROUTES``
        self.slots = {task.name: Slots(task.slots) for task in pipeline.tasks}

    @property
    def newest(self) -> Plan | None:
        """The plan that its readers follow: the first one of the highest epoch."""
        return self.plans.get(self.epoch)

    def has(self, plan: Plan) -> bool:
        """Whether just this plan is remembered, and not another one of its epoch."""
        known = self.plans.get(plan.epoch)
        return known is not None and known.issued_s == plan.issued_s

    def version(self, plan: Plan) -> str:
        """Under which name a plan is kept that is to follow the newest: its own, but for plans
        that only share traffic anew, of which there is one every two seconds."""
        before = self.newest
        if before and (before.leases, before.settings) == (plan.leases, plan.settings):
            return ROUTES
        return f"{plan.epoch:08d}"

    def add(self, plan: Plan) -> None:
        """Remember a plan."""
        if plan.epoch > self.epoch and self.version(plan) == ROUTES:
            self.plans.pop(self._routes, None)
            self._routes = plan.epoch
        self.plans.setdefault(plan.epoch, plan)
        if len(self.plans) > REMEMBERED_PLANS:
            oldest = min(self.plans)
            del self.plans[oldest]
            self.outdated.append(f"{oldest:08d}")
        self.epoch = max(self.epoch, plan.epoch)
        self.highest = max(self.highest, self.epoch)
        self.slots = after(self.slots, self.fitting(plan))

    def lost(self, epoch: int, now: float) -> bool:
        """Whether a plan that a node follows is not on the topic: true once, and the next plan's
        epoch is above it."""
        if epoch <= self.highest:
            return False
        if epoch != self._ahead[0]:
            self._ahead = (epoch, now)
        if now - self._ahead[1] < UNREAD_S:
            return False
        self.highest = epoch
        return True

    def settings(self) -> Settings:
        """What holds at a start: what commands have set outlives a control app, but what the
        pipeline file says otherwise than at the time is what its author wants now."""
        pipeline = self._pipeline
        filed = Settings(
            policy=pipeline.policy,
            slo_s=pipeline.slo_s,
            filed_policy=pipeline.policy,
            filed_slo_s=pipeline.slo_s,
        )
        if self.newest is None:
            return filed
        before = self.newest.settings
        kept = before.filed_policy in ("", filed.policy) and policy_named(pipeline, before.policy)
        return replace(
            filed,
            policy=before.policy if kept else filed.policy,
            slo_s=before.slo_s if before.filed_slo_s in (0.0, filed.slo_s) else filed.slo_s,
            demand_qps=before.demand_qps,
            drained=before.drained,
            paused=before.paused,
        )

    def fitting(self, plan: Plan) -> tuple[Lease, ...]:
        """A plan's leases as far as they fit the pipeline file of today."""
        return tuple(
            lease
            for lease in plan.leases
            if lease.key in self._variants
            and all(0 <= slot < self.slots[lease.task].count for slot in lease.slots)
        )
