"""Admission of runs: a query is refused where its worker is planned to have no time for it.

Queries go to workers in runs by turns, and the plan says how many queries per second each worker
serves, C_k of C, in batches of b. Ingress knows what it sent, so it knows until when worker k is
planned to be busy:

    f_k <- max(f_k, now) + 1 / C_k                          with every query sent
    a run begins where f_k <= now + w,    w = budget - b / C_k - (b - 1) / C

w is what a batch and the gathering of its run leave of the budget. Without this rule a worker that
is behind drops the first queries of a run and serves the rest in a smaller batch, which takes more
time per query; with it batches stay whole in overload. An idle worker takes a whole run at once, so
that a burst is admitted as far as it can be served in time.

Where classes share the capacity their buckets alone admit: a rule that knows no class would undo
their shares.
"""

from math import inf

from schemas.pipeline import Pipeline
from schemas.records import Plan


def admits_by_turn(pipeline: Pipeline) -> bool:
    """Return whether ingress refuses by the planned queue of the worker whose turn it is."""
    return pipeline.admission and not pipeline.slo_classes


def wait_s(budget_s: float, batch: int, batch_s: float, qps: float) -> float:
    """Return how long a batch may wait for its worker: less its time and its run's gathering."""
    return max(0.0, budget_s - batch_s - (batch - 1) / qps)


class RunAdmission:
    """Until when each slot's worker is planned to be busy; without a plan all is admitted."""

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
        """Return whether a run that begins now is served in time, as planned."""
        return self._free_s.get(slot, 0.0) <= now + self._wait_s.get(slot, inf)

    def sent(self, slot: int, now: float) -> None:
        """Count a query that was sent to a slot."""
        query_s = self._query_s.get(slot)
        if query_s is not None:
            self._free_s[slot] = max(self._free_s[slot], now) + query_s
