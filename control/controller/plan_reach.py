"""Which nodes have not received the plan in force, though they have had time to.

A topic of plans that was deleted, or has lost its end, holds no plan for a node that starts, or not
the newest one; another plan reaches every node.
"""

from schemas.records import Plan, Report

RECEIVED_S = 5.0  # a node that hears of plans at all has read a topic full of them by then
FOLLOWERS = frozenset(("dispatcher", "egress", "ingress", "scorer", "worker"))

_Standing = tuple[float, int]  # a node's incarnation, and the epoch that it follows


class PlanReach:
    """The nodes that follow an older plan than the one in force, by name."""

    def __init__(self) -> None:
        self._behind: dict[str, tuple[_Standing, float]] = {}  # with the time since when
        self._told: dict[str, _Standing] = {}

    def missed(self, report: Report, plan: Plan, now: float) -> bool:
        """Return whether a node has missed a plan; True once for each plan that it stays at.

        So a node that can send reports and receives no plans costs one plan.
        """
        name, standing = report.node, (report.incarnation, report.epoch)
        if report.role not in FOLLOWERS or report.epoch >= plan.epoch:
            self._behind.pop(name, None)
            return False
        known, since_s = self._behind.get(name, (None, now))
        if known != standing:
            self._behind[name] = standing, now
            return False
        if now - max(since_s, plan.issued_s) < RECEIVED_S or self._told.get(name) == standing:
            return False
        self._told[name] = standing
        return True
