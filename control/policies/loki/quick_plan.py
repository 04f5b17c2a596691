"""The quick plan of ``loki``: a good plan within milliseconds, to serve until the MILP is solved.

Each task gets a part of its paths' compute budget, so that every choice of variants is in time.
Each variant then has one batch, and a task's variants form a chain from accurate to fast:

1. All tasks start at the accurate end.
2. While the plan needs too many devices, a tenth of a task's items moves to the next variant of its
   chain, for the task that saves most devices per point of accuracy lost.
3. Items move back to devices that rounding leaves free, also in exchange for up to half of another
   task's items.
4. If even the fast ends need too many devices, the plan serves the largest share of the demand.

A plan of the MILP is at least as accurate: it may mix any variants on any paths, with any batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, inf

from control.policies.option_fields import ACCURACY_LEAST
from control.problem.candidates import FITS_S, Choices, Config, Unit, choices, paths
from control.problem.problem import (
    ACCURACY,
    BEST_EFFORT,
    HARDWARE,
    Allocation,
    PathShare,
    Problem,
    Replicas,
)

PARTS = 10  # of a task's items, moved one by one along its chain
ROUNDING = 5e-6  # of a device
HALVINGS = 20  # in the search for the served share
SHORT = "devices: a quick plan serves {:.0%} of the demand; a better one is being solved"

Link = tuple[Unit, Config]  # a variant and its batch
Position = Mapping[str, int]  # task -> parts moved along its chain


def quick_plan(problem: Problem) -> Allocation | None:
    """Return a plan for the problem, or None if this method has none.

    It has none for untied branches, for several kinds of devices, for fewer devices than tasks, and
    if the budgets of tasks or ``accuracy_least`` cannot be kept. Raises ``PlanError`` for a task
    that no variant can serve.
    """
    every = choices(problem)
    if not every.tied or len(every.devices) != 1:
        return None
    chains = [_chains(every, limits) for limits in _limits(every)]
    searches = [
        _ChainSearch(every, each, problem.demand_qps) for each in chains if all(each.values())
    ]
    found = [plan for search in searches if (plan := search.best()) is not None]
    best = max(found, key=_worth, default=None)
    least = ACCURACY_LEAST.of(problem.policy)
    return None if best is None or (best.accuracy or 0.0) < least else best


def _worth(plan: Allocation) -> tuple[float, float, int]:
    return plan.served_share, plan.accuracy or 0.0, -plan.devices_used


def _limits(every: Choices) -> Iterator[dict[str, float]]:
    """Yield limits of a batch's seconds by task, whose sums keep the budget of every path: first in
    proportion to each task's fastest batch, then to that of its most accurate variant."""
    if not all(every.units.values()):
        return
    for units in (
        {name: min(u, key=_fastest_s) for name, u in every.units.items()},
        {name: max(u, key=lambda unit: unit.accuracy) for name, u in every.units.items()},
    ):
        took_s = {name: _fastest_s(unit) for name, unit in units.items()}
        ways = paths(every.tasks)
        room = {leaf: every.budget_s[leaf] / sum(took_s[t] for t in way)
                for leaf, way in ways.items()}  # fmt: skip
        yield {
            name: seconds * min(room[leaf] for leaf, way in ways.items() if name in way)
            for name, seconds in took_s.items()
        }


def _fastest_s(unit: Unit) -> float:
    return unit.configs[0].latency_s


def _chains(every: Choices, limit_s: Mapping[str, float]) -> dict[str, tuple[Link, ...]]:
    """Return each task's variants with their largest batch within the limit, most accurate first,
    without variants that another dominates in accuracy and speed."""
    found: dict[str, tuple[Link, ...]] = {}
    for name, units in every.units.items():
        kept: list[Link] = []
        for unit in sorted(units, key=lambda unit: -unit.accuracy):
            able = [c for c in unit.configs if c.latency_s <= limit_s[name] + FITS_S]
            if able and (not kept or able[-1].rate > kept[-1][1].rate):
                kept.append((unit, able[-1]))
        found[name] = tuple(kept)
    return found


@dataclass(frozen=True)
class _ChainSearch:
    """The search along the chains of all tasks. ``chains`` has a link for every task."""

    every: Choices
    chains: Mapping[str, Sequence[Link]]
    demand_qps: float

    def best(self) -> Allocation | None:
        """Return the plan where the search ends."""
        at: Position = dict.fromkeys(self.chains, 0)
        while not self._fits(at, 1.0):
            further = self._cheapest(at)
            if further is None:
                return self._best_effort(at)
            at = further
        at = self._back(at)
        others = (
            self._back(other, name) for name in self.chains for other in self._moved(at, name)
        )
        return self._plan(max((at, *others), key=self._accuracy), 1.0)

    def _back(self, at: Position, kept: str = "") -> Position:
        """Return the position with every task but ``kept`` moved back as far as it fits."""
        for name in self.chains:
            while name != kept and at[name]:
                back = {**at, name: at[name] - 1}
                if not self._fits(back, 1.0):
                    break
                at = back
        return at

    def _moved(self, at: Position, name: str) -> Iterator[Position]:
        """Yield the positions with up to half of a task's items moved on that fit."""
        last = PARTS * (len(self.chains[name]) - 1)
        for further in range(at[name] + 1, min(at[name] + PARTS // 2, last) + 1):
            if self._fits(other := {**at, name: further}, 1.0):
                yield other

    def _best_effort(self, at: Position) -> Allocation | None:
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._fits(at, middle) else (low, middle)
        return self._plan(at, low) if low > 0 else None

    def _cheapest(self, at: Position) -> Position | None:
        """Return the position one part further that saves most devices per accuracy lost."""
        devices, accuracy = self._devices(at), self._accuracy(at)
        best, most = None, 0.0
        for name, chain in self.chains.items():
            if at[name] == PARTS * (len(chain) - 1):
                continue
            other = {**at, name: at[name] + 1}
            saved = devices - self._devices(other)
            lost = accuracy - self._accuracy(other)
            worth = saved / lost if lost > 0 else saved * inf if saved > 0 else 0.0
            if worth > most:
                best, most = other, worth
        return best

    def _mix(self, at: Position, name: str) -> list[tuple[Link, float]]:
        """Return the links that a task uses, with their share of its items."""
        link, part = divmod(at[name], PARTS)
        pair = self.chains[name][link : link + 2]
        return [(x, s) for x, s in zip(pair, (1 - part / PARTS, part / PARTS), strict=False) if s]

    def _loads(self, at: Position) -> dict[str, list[tuple[Link, float]]]:
        """Return the items of one query at each link that is used, by task."""
        items = {self.every.tasks[0].name: 1.0}
        found: dict[str, list[tuple[Link, float]]] = {}
        for task in self.every.tasks:
            found[task.name] = [(x, items[task.name] * s) for x, s in self._mix(at, task.name)]
            for child in task.children:
                items[child] = sum(n * unit.items[child] for (unit, _), n in found[task.name])
        return found

    def _devices(self, at: Position) -> float:
        """Return the devices that the demand needs, fractions included."""
        loads = self._loads(at).values()
        return self.demand_qps * sum(n / config.rate for each in loads for (_, config), n in each)

    def _counts(self, at: Position, served: float) -> dict[str, list[tuple[Link, int]]]:
        qps = self.demand_qps * served
        return {
            name: [(link, max(1, ceil(qps * n / link[1].rate - ROUNDING))) for link, n in each]
            for name, each in self._loads(at).items()
        }

    def _fits(self, at: Position, served: float) -> bool:
        counts = {n: sum(c for _, c in each) for n, each in self._counts(at, served).items()}
        (there,) = self.every.devices.values()
        return sum(counts.values()) <= there and all(
            counts[task.name] <= task.slots for task in self.every.tasks
        )

    @cached_property
    def _ways(self) -> Mapping[str, tuple[str, ...]]:
        return paths(self.every.tasks)

    def _accuracy(self, at: Position) -> float:
        """Return the accuracy, taking that of a path as the product of its variants'."""
        mean = {n: sum(u.accuracy * s for (u, _), s in self._mix(at, n)) for n in self.chains}
        found = 0.0
        for leaf, way in self._ways.items():
            along = self.every.weight[leaf]
            for name in way:
                along *= mean[name]
            found += along
        return found

    def _plan(self, at: Position, served: float) -> Allocation:
        shares = list(self._shares(at, served))
        weight = self.every.weight
        right = sum(s * self.every.accuracy(way) * weight[way[-1].task] for way, s in shares)
        top = all(
            self.chains[n][0][0].accuracy == max(u.accuracy for u in self.every.units[n])
            and not at[n] for n in self.chains
        )  # fmt: skip
        mode = BEST_EFFORT if served < 1 else HARDWARE if top else ACCURACY
        return Allocation(
            tuple(
                Replicas(task=u.task, variant=u.variant, batch=config.batch, count=count)
                for each in self._counts(at, served).values()
                for (u, config), count in each
            ),
            feasible=served == 1,
            binding="" if served == 1 else SHORT.format(served),
            mode=mode,
            accuracy=right / served,
            served_share=served,
            shares=tuple(PathShare(tuple(u.key for u in way), share) for way, share in shares),
        )

    def _shares(self, at: Position, served: float) -> Iterator[tuple[tuple[Unit, ...], float]]:
        """Yield the paths to every leaf with their share of the queries."""
        for way in self._ways.values():
            for taken in product(*(self._mix(at, name) for name in way)):
                share = served
                for _, part in taken:
                    share *= part
                yield tuple(unit for (unit, _), _ in taken), share
