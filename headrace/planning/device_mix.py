"""``headrace plan --budget``: choose the mix of device types to rent, without running anything.

file = read_pipeline_file(Path("rank.yaml"))
print(mix_as_json(planned_mix(file, MixRequest(budget=2.5))))
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from control.policies import known_kinds, policy_named, spec_of
from control.policies.kairos.device_mixes import PricedType
from control.policies.kairos.dispatch_options import BOUND, PICK, SIMULATE
from control.policies.kairos.provisioning import (
    GUARD,
    PICK_AMONG,
    PICKS,
    Pool,
    Ranked,
    Ranking,
    base_of,
    cheapest,
    nearest_pool,
    rank,
)
from control.policies.kairos.query_sizes import SizeDistribution
from control.problem.problem import PlanError
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.config.sizes_file import read_sizes
from headrace.errors import PipelineError, Unfeasible
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Policy, Variant

DEFAULT = "kairos"
NEAR = (0.9, 1.1)  # factors of the demand whose cost is shown beside its own

# Files with their mixes, and bounds in queries/s -> simulated capacity of each, queries/s.
Simulate = Callable[[Sequence[tuple[PipelineFile, float]]], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixRequest:
    """The demand, budget and limits to plan for; None: the pipeline file's value."""

    budget: float | None = None
    sizes: Path | None = None
    bound: str | None = None
    pick: str | None = None
    top: int = 10
    slo_s: float | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMix:
    """The ranking of mixes and the mix that was picked."""

    policy: str
    budget: float
    pool: Pool
    source: str  # of the sizes
    ranking: Ranking
    picked: Ranked | None
    rule: str
    binding: str = ""  # reason why no mix is picked
    simulated: dict[tuple[int, ...], float] = field(default_factory=dict)
    rank_s: float = 0.0
    simulate_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestMix:
    """The cheapest mix whose bound reaches a demand, and what nearby demands cost."""

    policy: str
    demand_qps: float
    headroom: float
    pool: Pool
    source: str
    found: Ranked | None
    near: tuple[tuple[float, Ranked | None], ...]
    binding: str = ""  # reason why no mix is found
    rank_s: float = 0.0


def planned_mix(
    file: PipelineFile, asked: MixRequest, simulate: Simulate | None = None
) -> PlannedMix:
    """Rank the mixes within the budget and pick one.

    Pick none, with the reason in ``binding``, if no type meets the SLO at the largest size or the
    budget affords none that does. Raises ``PlanError`` for a request that cannot be planned.
    """
    policy = ranking_policy(file, asked.policy)
    budget = file.cluster.budget if asked.budget is None else asked.budget
    if budget is None:
        raise PlanError("no budget is given; add --budget, $ per hour, or cluster.budget")
    pool, source = pool_of(file, asked)
    rule = asked.pick or PICK.of(policy)
    begin_s = time.perf_counter()
    ranking, binding = _ranked(pool, budget, asked.bound or BOUND.of(policy), asked.top)
    rank_s = time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    simulated: dict[tuple[int, ...], float] = {}
    picked: Ranked | None = None
    if rule == SIMULATE and simulate is None:
        rule = "first"
    if rule == SIMULATE and simulate is not None and not binding:
        simulated = simulated_best(file, pool, ranking, simulate)
        picked = max(ranking.best, key=lambda each: simulated.get(each.counts, -1.0))
    elif not binding:
        picked = PICKS[rule](ranking.best, base_of(pool))
    return PlannedMix(
        policy=policy.name, budget=budget, pool=pool, source=source,
        ranking=replace(ranking, best=ranking.best[: asked.top]), picked=picked, rule=rule,
        binding=binding, simulated=simulated, rank_s=rank_s,
        simulate_s=time.perf_counter() - begin_s,
    )  # fmt: skip


def _ranked(pool: Pool, budget: float, bound: str, top: int) -> tuple[Ranking, str]:
    """Return the ranking, and the reason if no mix serves every size in time, else ""."""
    binding = _unmet(pool)
    if binding:
        return Ranking((), 0, 0), binding
    cheapest_type = min((t for t in pool.types if t.most != 0), key=lambda t: t.price, default=None)
    if cheapest_type is not None and cheapest_type.price > budget:
        return Ranking((), 0, 0), (
            f"the budget of {budget:g} $/h is below the cheapest device, {cheapest_type.name} at "
            f"{cheapest_type.price:g} $/h; {_nearest_text(pool)}"
        )
    ranking = rank(pool, budget, bound, max(top, PICK_AMONG))
    if ranking.best[0].bound_qps > 0:
        return ranking, ""
    return ranking, (
        f"no mix within {budget:g} $/h serves every size within the SLO; {_nearest_text(pool)}"
    )


def simulated_best(
    file: PipelineFile, pool: Pool, ranking: Ranking, simulate: Simulate
) -> dict[tuple[int, ...], float]:
    """Return the simulated capacity of each of the best ten mixes, queries/s."""
    best = ranking.best[:PICK_AMONG]
    mixes = [(with_mix(file, counts_by_type(pool, x.counts)), x.bound_qps) for x in best]
    carried = simulate(mixes)
    return {each.counts: qps for each, qps in zip(best, carried, strict=True)}


def cheapest_mix(file: PipelineFile, asked: MixRequest, demand_qps: float) -> CheapestMix:
    """Return the cheapest mix whose fluid bound reaches the demand times the policy's headroom.

    Find none, with the reason in ``binding``, if no type meets the SLO or the types' limits do not
    reach the demand. Raises ``PlanError`` as ``planned_mix`` does.
    """
    policy = ranking_policy(file, asked.policy)
    pool, source = pool_of(file, asked)
    binding = _unmet(pool)
    begin_s = time.perf_counter()
    wanted = demand_qps * policy.headroom
    found, *near = (None if binding else cheapest(pool, wanted * f) for f in (1.0, *NEAR))
    if found is None and not binding:
        binding = (
            f"no mix within the types' limits carries {demand_qps:g} queries/s with a headroom of "
            f"{policy.headroom:g}; raise the most of a type, or lower the demand"
        )
    return CheapestMix(
        policy=policy.name, demand_qps=demand_qps, headroom=policy.headroom, pool=pool,
        source=source, found=found,
        near=tuple((demand_qps * f, each) for f, each in zip(NEAR, near, strict=True)),
        binding=binding, rank_s=time.perf_counter() - begin_s,
    )  # fmt: skip


def with_workers(file: PipelineFile) -> PipelineFile:
    """Return the file with workers: if it only names types, the best mix within its budget.

    The best mix is the first by the policy's bound. A file that has workers is returned as it is.
    Raises ``Unfeasible`` if no mix can be picked.
    """
    if not file.cluster.unplanned:
        return file
    policy = policy_named(file.pipeline, file.pipeline.policy)
    dispatching = policy is not None and bool(spec_of(policy.kind).dispatch)
    name = policy.name if policy is not None and dispatching else DEFAULT
    planned = planned_mix(file, MixRequest(policy=name, pick="first"))
    if planned.picked is None:
        raise Unfeasible(planned.binding)
    return with_mix(file, counts_by_type(planned.pool, planned.picked.counts))


def with_mix(file: PipelineFile, mix: dict[str, int]) -> PipelineFile:
    """Return the file with ``mix`` workers of each type; devices that it owns stay.

    Raises ``PipelineError`` for an unknown type, a mix without devices, or more devices than the
    tasks have slots.
    """
    cluster = file.cluster
    unknown = [name for name in mix if cluster.type_of(name) is None]
    if unknown:
        known = ", ".join(each.name for each in cluster.types) or "none"
        raise PipelineError(f"{unknown[0]!r} is no type of the cluster; its types are {known}")
    owned = tuple(each for each in cluster.devices if cluster.type_of(each[0]) is None)
    rented = tuple((name, count) for name, count in mix.items() if count)
    if not owned and not rented:
        raise PipelineError("a mix of no devices runs nothing; give one type a count above 0")
    count, slots = sum(n for _, n in (*owned, *rented)), sum(t.slots for t in file.pipeline.tasks)
    if count > slots:
        raise PipelineError(
            f"{count} devices, but the tasks have {slots} slots, so that the others would have "
            "nothing to read; raise slots of a task, or take fewer devices"
        )
    return replace(file, cluster=replace(cluster, devices=(*owned, *rented)))


def counts_by_type(pool: Pool, counts: Sequence[int]) -> dict[str, int]:
    """Return a mix's counts by type name, zero counts included."""
    return {each.name: count for each, count in zip(pool.types, counts, strict=True)}


# ---------------------------------------------------------------------- the pool of a file


def pool_of(file: PipelineFile, asked: MixRequest) -> tuple[Pool, str]:
    """Return the pool of a pipeline file and the source of its sizes.

    Raises ``PlanError`` for a pipeline of several tasks, without types, or with a type that was
    not profiled up to the largest size.
    """
    variant = only_variant(file)
    if not file.cluster.types:
        raise PlanError(
            "the cluster names no types to rent; add cluster.types with a price for each"
        )
    sizes, source = read_sizes(file, asked.sizes)
    most = file.pipeline.size.most if file.pipeline.size else 1
    check_largest_size(sizes, source, most)
    table = planning_profile(file)
    names = [each.name for each in file.cluster.types]
    pool = Pool(
        types=tuple(PricedType(t.name, t.price, t.most) for t in file.cluster.types),
        sizes=sizes,
        latency_s=by_size(table, variant, names, sizes, "mean"),
        worst_s=by_size(table, variant, names, sizes, "p95"),
        largest_s=tuple(profiled_s(table, variant, name, most, "mean") for name in names),
        largest_size=most,
        slo_s=file.pipeline.slo_s if asked.slo_s is None else asked.slo_s,
        base=file.cluster.base,
    )
    return pool, source


def check_largest_size(sizes: SizeDistribution, source: str, most: int) -> None:
    """Raise ``PlanError`` for sizes above ``most``."""
    if sizes.sizes[-1] > most:
        raise PlanError(
            f"{source} has queries of size {sizes.sizes[-1]}, above size.most, which is {most}; "
            "raise size.most or remove the size"
        )


def ranking_policy(file: PipelineFile, name: str | None) -> Policy:
    """Return the named policy, else the file's if it ranks mixes, else ``kairos``.

    Raises ``PlanError`` if the named policy ranks no mixes.
    """
    found = policy_named(file.pipeline, name or file.pipeline.policy)
    if found is not None and spec_of(found.kind).dispatch:
        return found
    if name is not None:
        able = [kind for kind in known_kinds() if spec_of(kind).dispatch]
        raise PlanError(f"policy {name!r} ranks no mixes; name one that does: {', '.join(able)}")
    usual = policy_named(file.pipeline, DEFAULT)
    assert usual is not None
    return usual


def only_variant(file: PipelineFile) -> Variant:
    """Return the variant of the only task; raises ``PlanError`` if there are several."""
    tasks = file.pipeline.tasks
    if len(tasks) > 1 or len(tasks[0].variants) > 1:
        raise PlanError(
            "a mix is planned for pipelines of one task with one variant; this one has "
            f"{len(tasks)} tasks and {sum(len(t.variants) for t in tasks)} variants"
        )
    return tasks[0].variants[0]


def by_size(
    table: ProfileTable,
    variant: Variant,
    names: Sequence[str],
    sizes: SizeDistribution,
    quantile: str,
) -> tuple[tuple[float, ...], ...]:
    """Return the latencies of all sizes, by device type; raises as ``profiled_s`` does."""
    return tuple(
        tuple(profiled_s(table, variant, name, size, quantile) for size in sizes.sizes)
        for name in names
    )


def profiled_s(
    table: ProfileTable, variant: Variant, device: str, size: int, quantile: str
) -> float:
    """Return the latency of a size on a device type, its mean or a quantile; raises ``PlanError``
    if it is not profiled."""
    try:
        return table.latency_s(variant.task, variant.name, device, size, quantile)
    except ProfileError as error:
        raise PlanError(str(error)) from error


def _unmet(pool: Pool) -> str:
    """Return the reason why no type can be the base, or ""."""
    if base_of(replace(pool, base="")) is not None:
        return ""
    return (
        f"no type meets the SLO of {pool.slo_s * 1e3:g} ms at size {pool.largest_size}, with "
        f"{GUARD:.0%} to spare; {_nearest_text(pool)}"
    )


def _nearest_text(pool: Pool) -> str:
    near = nearest_pool(pool)
    limits = [f"an SLO of {near.slo_s * 1e3:.1f} ms"] if near.slo_s else []
    limits += [f"size.most of {near.size}"] if near.size else []
    limits += [f"a budget of {near.budget:g} $/h"] if near.budget else []
    return f"nearest feasible limits: {', '.join(limits)}"
