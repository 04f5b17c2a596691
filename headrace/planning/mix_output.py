"""Planned mixes of device types as JSON and as text."""

from collections.abc import Sequence
from typing import Any

from control.policies.kairos.provisioning import (
    NearestPool,
    Pool,
    Ranked,
    base_of,
    nearest_pool,
)
from headrace.config.cluster_cost import cost_text, per_thousand
from headrace.planning.device_mix import CheapestMix, PlannedMix, counts_by_type


def mix_as_json(planned: PlannedMix) -> dict[str, Any]:
    """Return the object that ``headrace plan --budget --json`` prints."""
    pool = planned.pool
    return {
        "policy": planned.policy,
        "budget": planned.budget,
        **_pool_as_json(pool, planned.source),
        "spaces": {"mixes": planned.ranking.mixes, "with_base": planned.ranking.with_base},
        "mixes": [
            {
                "rank": at,
                **_as_json(pool, each, _carried_qps(planned, each)),
                "simulated_qps": planned.simulated.get(each.counts),
            }
            for at, each in enumerate(planned.ranking.best, 1)
        ],
        "picked": None
        if planned.picked is None
        else {
            **_as_json(pool, planned.picked, _carried_qps(planned, planned.picked)),
            "rule": planned.rule,
        },
        "reason": planned.binding,
        "seconds": {"rank": round(planned.rank_s, 6), "simulate": round(planned.simulate_s, 6)},
        "nearest": nearest_as_json(nearest_pool(pool)),
    }


def cheapest_as_json(found: CheapestMix) -> dict[str, Any]:
    """Return the object that ``headrace plan --demand Q --cheapest --json`` prints."""
    pool = found.pool
    mixes = [] if found.found is None else [found.found]
    return {
        "policy": found.policy,
        "demand": found.demand_qps,
        "headroom": found.headroom,
        **_pool_as_json(pool, found.source),
        "mixes": [
            {"rank": at, **_as_json(pool, each, found.demand_qps), "simulated_qps": None}
            for at, each in enumerate(mixes, 1)
        ],
        "picked": None
        if not mixes
        else {**_as_json(pool, mixes[0], found.demand_qps), "rule": "cheapest"},
        "reason": found.binding,
        "near": [
            {"demand": demand, **({} if each is None else _as_json(pool, each, demand))}
            for demand, each in found.near
        ],
        "seconds": {"rank": round(found.rank_s, 6), "simulate": 0.0},
        "nearest": nearest_as_json(nearest_pool(pool)),
    }


def nearest_as_json(near: NearestPool) -> dict[str, Any]:
    """Return the nearest feasible SLO (ms), size and budget ($/h), each changed alone."""
    return {
        "slo_ms": None if near.slo_s is None else round(near.slo_s * 1e3, 6),
        "size": near.size,
        "budget": near.budget,
    }


def _pool_as_json(pool: Pool, source: str) -> dict[str, Any]:
    base, names = base_of(pool), [each.name for each in pool.types]
    return {
        "base": None if base is None else names[base],
        "sizes": {
            "source": source, "queries": None, "mean": pool.sizes.mean,
            "p99": pool.sizes.quantile(0.99),
        },
        "coefficients": dict(zip(names, pool.coefficients, strict=True)),
        "largest": pool.largest,
    }  # fmt: skip


def _carried_qps(planned: PlannedMix, each: Ranked) -> float:
    """Return what a mix carries: as simulated, else its bound."""
    return planned.simulated.get(each.counts, each.bound_qps)


def _as_json(pool: Pool, each: Ranked, answers_qps: float) -> dict[str, Any]:
    thousand = per_thousand(each.cost, answers_qps)
    return {
        "counts": counts_by_type(pool, each.counts),
        "cost": round(each.cost, 9),
        "bound_qps": each.bound_qps,
        "usd_per_1000_answers": None if thousand is None else round(thousand, 9),
    }


def mix_text(planned: PlannedMix) -> str:
    """Return the ranking as text."""
    lines = [
        f"{planned.ranking.mixes} mixes within {planned.budget:g} $/h, "
        f"{planned.ranking.with_base} of them with {_base_text(planned.pool)}"
    ]
    lines += [
        f"{at:3}  {_mix_text(planned.pool, each.counts)}  {each.cost:.4f} $/h  "
        f"bound {each.bound_qps:.1f} queries/s{_simulated_text(planned, each)}"
        for at, each in enumerate(planned.ranking.best, 1)
    ]
    if planned.picked is None:
        return planned.binding
    lines.append(
        f"picked ({planned.rule}): {_mix_text(planned.pool, planned.picked.counts)} for "
        f"{cost_text(planned.picked.cost, _carried_qps(planned, planned.picked))}"
    )
    return "\n".join(lines)


def cheapest_text(found: CheapestMix) -> str:
    """Return the cheapest mix as text, or why there is none."""
    every = found.near if found.binding else ((found.demand_qps, found.found), *found.near)
    lines = [
        f"{demand:g} queries/s: no mix reaches it"
        if each is None
        else f"{demand:g} queries/s: {_mix_text(found.pool, each.counts)} for "
        f"{cost_text(each.cost, demand)}, bound {each.bound_qps:.1f} queries/s"
        for demand, each in every
    ]
    return "\n".join([found.binding, *lines] if found.binding else lines)


def _base_text(pool: Pool) -> str:
    base = base_of(pool)
    return "a base device" if base is None else f"base {pool.types[base].name}"


def _mix_text(pool: Pool, counts: Sequence[int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts_by_type(pool, counts).items() if n)


def _simulated_text(planned: PlannedMix, each: Ranked) -> str:
    qps = planned.simulated.get(each.counts)
    return "" if qps is None else f", simulated {qps:.1f}"
