"""Detect nodes that have not received the plan in force in time.

If the plans topic was deleted or has lost its end, a node that starts finds no plan, or an outdated
one. A new plan then reaches every node.
"""

from schemas.records import Plan, Report

RECEIVED_S = 5.0  # enough for a connected node to read a full plans topic
FOLLOWERS = frozenset(("dispatcher", "egress", "ingress", "scorer", "worker"))

_Standing = tuple[float, int]  # a node's incarnation and the epoch it follows


class PlanReach:
    """The nodes that follow a plan older than the one in force, by name."""

    def __init__(self) -> None:
        self._behind: dict[str, tuple[_Standing, float]] = {}  # and since when
        self._told: dict[str, _Standing] = {}

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._behind.pop(node, None)
        self._told.pop(node, None)

    def missed(self, report: Report, plan: Plan, now: float) -> bool:
        """Return whether a node has missed a plan; True once for each epoch that it follows.

        A node that sends reports but receives no plans thus causes only one plan.
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
