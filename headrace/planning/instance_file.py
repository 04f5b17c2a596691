"""Read a scheduling instance from JSON; render its schedule as JSON and text.

    {"tiers": {NAME: {"gpus": N, "price": USD_PER_H}},
     "queries": [{"id": ID, "weight": W, "plans": [{"cost": C, "items": [[TIER, QUARTERS], ...]}]}]}

An item ``[TIER, QUARTERS, POOL]`` shares its GPU with items of that pool only. ``cost`` ranks a
query's plans with the same items. Keys other than ``tiers`` and ``queries`` are ignored.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from control.policies.compass.schedule.instance import (
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.schedule.reference_schedulers import SCHEDULERS
from control.policies.compass.schedule.scheduling import Schedule
from control.problem.problem import PlanError
from schemas.unique_keys import unique_keys
from streams.cpu_seconds import spent

ANY = "any"


class _Tier(msgspec.Struct, forbid_unknown_fields=True):
    price: float
    gpus: int | None = None


class _Plan(msgspec.Struct, forbid_unknown_fields=True):
    items: list[tuple[Any, ...]]
    cost: float = 0.0


class _InstanceQuery(msgspec.Struct, forbid_unknown_fields=True):
    id: str | int
    plans: list[_Plan]
    weight: float = 1.0


class _Instance(msgspec.Struct):
    tiers: dict[str, _Tier]
    queries: list[_InstanceQuery]


def read_instance(path: Path, gpus: str) -> Instance:
    """Read the instance in a JSON file; ``gpus`` "any" lifts the limit of every tier.

    Raises ``PlanError`` naming the fault in the file and its place.
    """
    try:
        content = path.read_bytes()
        read = msgspec.json.decode(content, type=_Instance)
        json.loads(content, object_pairs_hook=unique_keys)
    except OSError as error:
        raise PlanError(f"the instance {path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is no scheduling instance: {error}") from error
    for name, number in Counter(query.id for query in read.queries).items():
        if number > 1:
            raise PlanError(f"{path}: {number} queries have the id {name!r}; rename them")
    return Instance(
        tiers={name: _tier(path, name, tier, gpus) for name, tier in read.tiers.items()},
        sessions=tuple(
            Candidate(query.id, query.weight, tuple(_choice(path, query, p) for p in query.plans))
            for query in read.queries
        ),
    )


def _tier(path: Path, name: str, tier: _Tier, gpus: str) -> Tier:
    if gpus == ANY:
        return Tier(None, tier.price)
    if tier.gpus is None:
        raise PlanError(f"{path}: tier {name!r} has no gpus; give their number or --gpus any")
    return Tier(tier.gpus, tier.price)


def _choice(path: Path, query: _InstanceQuery, plan: _Plan) -> PlanOption:
    for item in plan.items:
        kinds = tuple(type(part) for part in item)
        if kinds not in ((str, int), (str, int, str)):
            raise PlanError(
                f"{path}: query {query.id!r} has the item {list(item)}; write [TIER, QUARTERS]"
            )
    return PlanOption(tuple(PlanItem(*item) for item in plan.items), plan.cost)


def schedule_by(instance: Instance, objective: str, policy: str) -> Schedule:
    """Return the policy's schedule of an instance; raise ``PlanError`` for an unknown policy."""
    try:
        scheduler = SCHEDULERS[policy]
    except KeyError as error:
        raise PlanError(f"no policy {policy!r} schedules; there are {', '.join(SCHEDULERS)}") from (
            error
        )
    return scheduler(instance, objective, spent)


def as_json(instance: Instance, made: Schedule) -> dict[str, Any]:
    """Return the object that ``headrace schedule --json`` prints."""
    return {
        "objective": made.objective,
        "sessions": len(instance.sessions),
        "served": made.served,
        "weight": made.weight,
        "bound": made.bound,
        "ratio": made.ratio,
        "usd_per_h": made.usd_per_h,
        "feasible": made.feasible,
        "tiers": [
            {"tier": name, "used": used, "of": instance.tiers[name].gpus}
            for name, used in made.opened.items()
        ],
        "assignments": [
            {"session": session.id, "plan": plan}
            for session, plan in zip(instance.sessions, made.plans, strict=True)
            if plan is not None
        ],
        "solver": {"name": made.run.solver, "seconds": made.run.cpu_s, "gap": made.run.gap},
    }


def as_text(instance: Instance, made: Schedule) -> str:
    """Return the schedule as text."""
    lines = [
        f"{made.objective}: {made.served} of {len(instance.sessions)} sessions served, "
        f"weight {made.weight:g}, {made.usd_per_h:.2f} $/h",
        *_bound(made),
        *(_tier_line(name, used, instance.tiers[name].gpus) for name, used in made.opened.items()),
        *_unserved(instance, made),
    ]
    return "\n".join(lines)


def _tier_line(name: str, used: int, limit: int | None) -> str:
    return f"  {name}: {used} GPUs" if limit is None else f"  {name}: {used} of {limit} GPUs"


def _bound(made: Schedule) -> Sequence[str]:
    if made.bound is None or made.ratio is None:
        return ["  no schedule found that serves every session; this one serves the most weight"]
    unit = "$/h" if made.objective == "cost" else "weight"
    return [
        f"  {made.ratio:.5f} of the bound of {made.bound:.2f} {unit}; "
        f"{made.run.solver}, {made.run.cpu_s:.2f} CPU s"
    ]


def _unserved(instance: Instance, made: Schedule) -> Sequence[str]:
    left = [s.id for s, plan in zip(instance.sessions, made.plans, strict=True) if plan is None]
    if not left:
        return []
    shown = ", ".join(map(str, left[:10])) + (", ..." if len(left) > 10 else "")
    return [f"  not served: {shown}"]
