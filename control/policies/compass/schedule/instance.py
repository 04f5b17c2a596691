"""Scheduling instances: tiers of GPUs, and sessions with candidate plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from control.policies.compass.packing import QUARTERS, Sizes
from control.problem.problem import PlanError
from control.problem.session_space import MOST_WEIGHT

GOODPUT, COST = "goodput", "cost"
OBJECTIVES = (GOODPUT, COST)
MOST_USD = MOST_GPUS = 1e9  # solvers take numbers from 1e20 on as infinite


class PlanItem(NamedTuple):  # a tuple, because scheduling hashes tens of thousands
    """A share of one GPU of a tier: ``quarters`` of it, shared within the same ``pool`` only."""

    tier: str
    quarters: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class PlanOption:
    """A plan of a session: its items, and a cost that ranks it among the session's plans."""

    items: tuple[PlanItem, ...]
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session to schedule. ``weight`` is its contribution to goodput."""

    id: str | int
    weight: float
    plans: tuple[PlanOption, ...]


@dataclass(frozen=True, slots=True)
class Tier:
    """GPUs of one kind: their number (None: no limit), and $ an hour for each."""

    gpus: int | None
    price: float


Bin = tuple[str, str]  # tier, pool: items that may share a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The input of scheduling. ``free`` counts, per tier and pool, the partly used GPUs with 1, 2
    and 3 quarters free; ``Tier.gpus`` counts the empty GPUs in addition."""

    tiers: Mapping[str, Tier]
    sessions: tuple[Candidate, ...]
    free: Mapping[Bin, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ``PlanError`` for an invalid instance."""
        for name, tier in self.tiers.items():
            if not (0 <= tier.price <= MOST_USD and 0 <= (tier.gpus or 0) <= MOST_GPUS):
                raise PlanError(
                    f"tier {name!r} has {tier.gpus} GPUs at {tier.price:g} $/h; "
                    f"give 0 to {MOST_GPUS:g} of both"
                )
        seen: set[str | int] = set()
        for session in self.sessions:
            if session.id in seen:
                raise PlanError(f"session {session.id!r} is listed twice; give each its own id")
            seen.add(session.id)
            self._check(session)

    def _check(self, session: Candidate) -> None:
        if not 0 <= session.weight <= MOST_WEIGHT:
            raise PlanError(
                f"session {session.id!r} has the weight {session.weight:g}; it must be 0 to "
                f"{MOST_WEIGHT:g}"
            )
        for number, plan in enumerate(session.plans):
            for item in plan.items:
                if item.tier not in self.tiers:
                    raise PlanError(
                        f"plan {number} of session {session.id!r} wants the tier {item.tier!r}; "
                        f"the tiers are {', '.join(self.tiers) or 'none'}"
                    )
                if not 1 <= item.quarters <= QUARTERS:
                    raise PlanError(
                        f"plan {number} of session {session.id!r} wants {item.quarters} quarters "
                        f"of one GPU of {item.tier!r}; an item takes 1 to 4"
                    )


Demand = tuple[tuple[Bin, Sizes], ...]  # of one plan, sorted by bin


def demand(items: tuple[PlanItem, ...]) -> Demand:
    """Count a plan's items by tier, pool and size."""
    counts: dict[Bin, list[int]] = {}
    for item in items:
        counts.setdefault((item.tier, item.pool), [0] * QUARTERS)[item.quarters - 1] += 1
    return tuple((bin, (n[0], n[1], n[2], n[3])) for bin, n in sorted(counts.items()))
