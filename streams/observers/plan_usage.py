"""Devices and replicas that the plans of a run used, averaged over time."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from schemas.records import Plan


class PlanUsage:
    """The workers that the plans in force lease, averaged over time."""

    def __init__(self) -> None:
        self._plans: list[tuple[float, Mapping[str, int]]] = []  # (from when on, by "task/variant")

    def plan(self, plan: Plan, at_s: float) -> None:
        """Take a plan that came into force; plans come in order."""
        serving = Counter([lease.key for lease in plan.leases])
        self._plans.append((at_s, serving))

    def forget(self) -> None:
        """Forget all plans but the one in force."""
        del self._plans[:-1]

    def replicas_mean(self, from_s: float, until_s: float) -> dict[str, float]:
        """Return the mean number of workers by "task/variant", sorted; {} if no time has passed."""
        seconds, spent_s = until_s - from_s, dict[str, float]()
        for (since_s, serving), (to_s, _) in pairwise([*self._plans, (until_s, {})]):
            for_s = min(to_s, until_s) - max(since_s, from_s)
            for name, count in serving.items() if for_s > 0 else ():
                spent_s[name] = spent_s.get(name, 0.0) + count * for_s
        return {name: s / seconds for name, s in sorted(spent_s.items())} if seconds > 0 else {}

    def devices_mean(self, from_s: float, until_s: float) -> float | None:
        """Return the mean number of workers; None without a plan."""
        if not self._plans:
            return None
        if until_s <= from_s:
            return float(sum(self._plans[-1][1].values()))
        return sum(self.replicas_mean(from_s, until_s).values())
