"""Admission of runs: ingress refuses a query if its worker is planned to have no time for it.

Workers take turns to get runs of queries. By the plan each worker serves C_k of the C queries per
second, in batches of b. From the queries that it sent, ingress computes until when worker k is
planned to be busy:

    f_k <- max(f_k, now) + 1 / C_k                          with every query sent
    a run begins where f_k <= now + w,    w = budget - b / C_k - (b - 1) / C

w is the budget less the time of a batch and of gathering its run. Without this rule a worker with a
backlog drops the first queries of a run and serves the rest in a smaller batch, which takes more
time per query. With it, batches stay whole in overload. An idle worker takes a whole run at once,
so ingress admits as much of a burst as can be served in time.

If classes share the capacity, only their buckets admit queries: a rule that ignores classes would
undo their shares.
"""

from math import inf

from schemas.pipeline import Pipeline
from schemas.records import Plan


def admits_by_turn(pipeline: Pipeline) -> bool:
    """Return whether ingress refuses by the planned queue of the worker whose turn it is."""
    return pipeline.admission and not pipeline.slo_classes


def wait_s(budget_s: float, batch: int, batch_s: float, qps: float) -> float:
    """Return how long a batch may wait for its worker: w of the module's formula."""
    return max(0.0, budget_s - batch_s - (batch - 1) / qps)


class RunAdmission:
    """Until when each slot's worker is planned to be busy; without a plan admit everything."""

    __slots__ = ("_free_s", "_query_s", "_wait_s")

    def __init__(self) -> None:
        self._free_s: dict[int, float] = {}
        self._query_s: dict[int, float] = {}
        self._wait_s: dict[int, float] = {}

    def change(self, plan: Plan | None, task: str, budget_s: float) -> None:
        """Follow a plan's capacity, shares and batches; None, or no capacity: admit everything."""
        self._query_s, self._wait_s = {}, {}
        capacity_qps = plan.capacity_qps if plan is not None else None
        if plan is None or not capacity_qps:
            self._free_s = {}
            return
        batches = {lease.open_slot: lease.batch for lease in plan.leases if lease.task == task}
        for route in plan.routes:
            if route.task != task or route.share <= 0:
                continue
            query_s = 1 / (route.share * capacity_qps)
            batch = batches.get(route.slot, 1)
            self._query_s[route.slot] = query_s
            self._wait_s[route.slot] = wait_s(budget_s, batch, batch * query_s, capacity_qps)
        self._free_s = {slot: self._free_s.get(slot, 0.0) for slot in self._query_s}

    def admits(self, slot: int, now: float) -> bool:
        """Return whether a run that begins now is planned to be served in time."""
        return self._free_s.get(slot, 0.0) <= now + self._wait_s.get(slot, inf)

    def sent(self, slot: int, now: float) -> None:
        """Count a query that was sent to a slot."""
        query_s = self._query_s.get(slot)
        if query_s is not None:
            self._free_s[slot] = max(self._free_s[slot], now) + query_s
