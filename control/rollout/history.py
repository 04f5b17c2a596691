"""The plans so far, and the epochs, slots and settings that the next plan takes from them."""

from msgspec.structs import replace

from control.policies import policy_named
from control.rollout.leases import Slots, after
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan, Settings

REMEMBERED_PLANS = 500
UNREAD_S = 1.0  # the plans topic delivers any plan that a node follows within this time
ROUTES = "routes"  # the shared version of plans that change only routes


class History:
    """The plans on the topic, our own and others'.

    ``plans`` are by epoch and ``epoch`` is the highest of them; ``highest`` includes plans that the
    topic has lost. ``slots`` has the highest slot of each task that was ever open. Like the
    compacted topic, the history keeps the newest plan of each version. The versions in ``outdated``
    exceed ``REMEMBERED_PLANS`` and may be deleted from the topic as well.
    """

    __slots__ = (
        "_ahead",
        "_followed",
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
        self._followed = 0  # the highest epoch that a node has reported
        self._ahead = (0, 0.0)  # the highest epoch that nodes follow and the topic lacks; since
        self.outdated: list[str] = []
        self._routes = 0  # epoch of the plan that is remembered as ``ROUTES``
        self.slots = {task.name: Slots(task.slots) for task in pipeline.tasks}

    @property
    def newest(self) -> Plan | None:
        """The plan that nodes follow: the first one of the highest epoch."""
        return self.plans.get(self.epoch)

    def has(self, plan: Plan) -> bool:
        """Return whether this plan is in the history, not another one of its epoch."""
        known = self.plans.get(plan.epoch)
        return known is not None and known.issued_s == plan.issued_s

    def version(self, plan: Plan) -> str:
        """Return the version under which to keep a plan that follows the newest.

        Each plan has its own version, except that plans that change only routes, one every two
        seconds, share ``ROUTES``.
        """
        before = self.newest
        if before and (before.leases, before.settings) == (plan.leases, plan.settings):
            return ROUTES
        return f"{plan.epoch:08d}"

    def add(self, plan: Plan) -> None:
        """Add a plan to the history."""
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

    @property
    def next_epoch(self) -> int:
        """The epoch of the next plan, above those of all plans on the topic and at nodes."""
        return max(self.highest, self._followed) + 1

    def lost(self, epoch: int, now: float) -> bool:
        """Return whether the topic has lost a plan that a node follows; True once per epoch.

        Nodes may follow different ones: those that the last of the lost plans has not reached.
        """
        self._followed = max(self._followed, epoch)
        if epoch <= self.highest:
            return False
        if epoch > self._ahead[0]:
            self._ahead = (epoch, now)
        if now - self._ahead[1] < UNREAD_S:
            return False
        self.highest = self._ahead[0]
        return True

    def settings(self) -> Settings:
        """Return the settings at start-up: those of the newest plan, set by commands.

        A value that has changed in the pipeline file since that plan takes precedence.
        """
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
            reloads=before.reloads,
            prices=before.prices,
            budget=before.budget,
        )

    def fitting(self, plan: Plan) -> tuple[Lease, ...]:
        """Return a plan's leases that are valid under the current pipeline file."""
        return tuple(
            lease
            for lease in plan.leases
            if lease.key in self._variants
            and all(0 <= slot < self.slots[lease.task].count for slot in lease.slots)
        )
