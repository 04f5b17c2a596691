"""Reference schedulers: the paper's greedy, first come first served, and the paper's ILP.

The integer program has a variable for each item size on each GPU (Compass, Appendix B, without
products of binaries: its inequality 4 as printed puts every plan on every tier).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from scipy import optimize, sparse

from control.policies.compass.schedule.greedy import Pair, cheapest_pairs, first_fit, greedy_pairs
from control.policies.compass.schedule.instance import (
    COST,
    Instance,
    demand,
)
from control.policies.compass.schedule.scheduling import Schedule, finished, schedule
from control.problem.problem import Meter, PlanError, SolverRun, unmetered

ILP_NODES = 100_000
ILP_VARIABLES = 1_000_000


def greedy(instance: Instance, objective: str, meter: Meter = unmetered) -> Schedule:
    """Return the paper's greedy schedule; in cost ``feasible`` is False if one is unserved."""
    return _metered(instance, objective, "greedy", meter, greedy_pairs)


def first_come(instance: Instance, objective: str, meter: Meter = unmetered) -> Schedule:
    """Serve sessions in order, each with its cheapest plan; skip those that do not fit."""
    return _metered(instance, objective, "first-come", meter, cheapest_pairs)


def _metered(
    instance: Instance,
    objective: str,
    name: str,
    meter: Meter,
    pairs: Callable[[Instance, str], Iterator[Pair]],
) -> Schedule:
    began = meter()
    plans = first_fit(instance, pairs(instance, objective))
    made = finished(instance, plans, objective, None)
    ended = meter()
    bound = schedule(instance, objective).bound
    run = SolverRun(name, None, ended[0] - began[0], ended[1] - began[1])
    return replace(made, bound=bound, run=run)


def integer_program(instance: Instance, objective: str, meter: Meter = unmetered) -> Schedule:
    """Return the schedule of an integer program over single GPUs; for small instances.

    ``x[s, p]``: session s has plan p; ``y[g, k]``: items of k quarters on GPU g; ``z[g]``: GPU g
    is used. Raises ``PlanError`` for unlimited tiers, partly used GPUs, pooled items, or a
    program that is too large.
    """
    began = meter()
    plans, gap = _Ilp(instance, objective).solved()
    ended = meter()
    made = finished(instance, plans, objective, schedule(instance, objective).bound)
    run = SolverRun("ilp", gap, ended[0] - began[0], ended[1] - began[1])
    return replace(made, run=run)


class _Ilp:
    """The integer program over single GPUs."""

    def __init__(self, instance: Instance, objective: str) -> None:
        self.instance, self.cost = instance, objective == COST
        self.pairs = [(i, j) for i, s in enumerate(instance.sessions) for j in range(len(s.plans))]
        unlimited = any(tier.gpus is None for tier in instance.tiers.values())
        pooled = any(item.pool for s in instance.sessions for p in s.plans for item in p.items)
        if unlimited or pooled or any(map(any, instance.free.values())):
            raise PlanError(
                "the integer program over single GPUs takes limited, empty tiers without pools; "
                "use the policy compass"
            )
        gpus = sum(tier.gpus or 0 for tier in instance.tiers.values())
        self.variables = len(self.pairs) + 5 * gpus
        if self.variables > ILP_VARIABLES:
            raise PlanError(
                f"the integer program over single GPUs would have {self.variables} variables, "
                f"more than {ILP_VARIABLES}; use the policy compass"
            )
        self.gpus = [name for name, tier in instance.tiers.items() for _ in range(tier.gpus or 0)]

    def solved(self) -> tuple[tuple[int | None, ...], float | None]:
        """Return the plan of every session, and the proven gap."""
        if not self.variables:
            return (None,) * len(self.instance.sessions), 0.0
        found = optimize.milp(
            self._objective(),
            integrality=np.ones(self.variables, dtype=np.int64),
            bounds=optimize.Bounds(0, self._upper()),
            constraints=[self._one_plan(), self._room(), *self._placed()],
            options={"node_limit": ILP_NODES, "mip_rel_gap": 1e-9},
        )
        plans: list[int | None] = [None] * len(self.instance.sessions)
        if found.x is None:
            return tuple(plans), None
        for (session, plan), taken in zip(self.pairs, np.asarray(found.x), strict=False):
            if taken > 0.5:
                plans[session] = plan
        return tuple(plans), float(found.mip_gap or 0.0)

    def _objective(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        if not self.cost:
            worth = [-self.instance.sessions[i].weight for i, _ in self.pairs]
            return np.array(worth + [0.0] * (5 * len(self.gpus)))
        prices = [self.instance.tiers[name].price for name in self.gpus]
        return np.array([0.0] * (self.variables - len(self.gpus)) + prices)

    def _upper(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        items = 4 * len(self.gpus)
        return np.array([1.0] * len(self.pairs) + [4.0] * items + [1.0] * len(self.gpus))

    def _one_plan(self) -> optimize.LinearConstraint:
        """Return the constraint of one plan per session: at most in goodput, exactly in cost."""
        rows = [session for session, _ in self.pairs]
        matrix = sparse.csr_array(
            (np.ones(len(rows)), (rows, range(len(rows)))),
            shape=(len(self.instance.sessions), self.variables),
        )
        return optimize.LinearConstraint(matrix, lb=1.0 if self.cost else 0.0, ub=1.0)

    def _room(self) -> optimize.LinearConstraint:
        """Return the constraint of four quarters per used GPU, and none per unused GPU."""
        matrix = sparse.lil_array((max(len(self.gpus), 1), self.variables))
        for g in range(len(self.gpus)):
            for k in range(4):
                matrix[g, self._item(g, k)] = k + 1
            matrix[g, self.variables - len(self.gpus) + g] = -4
        return optimize.LinearConstraint(sparse.csr_array(matrix), ub=0.0)

    def _placed(self) -> Iterator[optimize.LinearConstraint]:
        """Yield the constraints that place the chosen plans' items on GPUs of their tiers."""
        for tier in self.instance.tiers:
            matrix = sparse.lil_array((4, self.variables))
            for column, (session, plan) in enumerate(self.pairs):
                for k, count in enumerate(self._sizes(session, plan).get(tier, (0, 0, 0, 0))):
                    if count:
                        matrix[k, column] = count
            for g, name in enumerate(self.gpus):
                for k in range(4) if name == tier else ():
                    matrix[k, self._item(g, k)] = -1
            yield optimize.LinearConstraint(sparse.csr_array(matrix), ub=0.0)

    def _item(self, gpu: int, size: int) -> int:
        return len(self.pairs) + 4 * gpu + size

    def _sizes(self, session: int, plan: int) -> Mapping[str, tuple[int, ...]]:
        items = self.instance.sessions[session].plans[plan].items
        return {bin[0]: sizes for bin, sizes in demand(items)}


SCHEDULERS: Mapping[str, Callable[[Instance, str, Meter], Schedule]] = {
    "compass": schedule,
    "compass-paper": greedy,
    "compass-ilp": integer_program,
    "first-come": first_come,
}
