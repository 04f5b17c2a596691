"""``headrace capacity``: search each policy's highest rate that keeps the SLO, in virtual time.

file = read_pipeline_file(Path("rank.yaml"))
found = capacity(CapacityRequest(file=file, policy="kairos", seed=0))
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from control.policies import policy_named, spec_of
from control.policies.kairos.device_mixes import Floats
from control.policies.kairos.query_sizes import SizeDistribution
from control.problem.problem import PlanError
from headrace.arrivals.arrival_processes import Recorded
from headrace.cells import columns
from headrace.config.pipeline_file import PipelineFile
from headrace.config.policy_options import with_policies
from headrace.config.profile_files import planning_profile
from headrace.config.sizes_file import read_sizes, size_distribution
from headrace.errors import ArrivalsError
from headrace.planning.device_mix import (
    MixRequest,
    Simulate,
    check_largest_size,
    ranking_policy,
    with_mix,
    with_workers,
)
from headrace.roles.dispatching import per_query
from headrace.roles.heap import collect_seldom
from headrace.simulation.batch_runs import distinct
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from headrace.terminal import counting
from profiles.measurements import ProfileError
from streams.control_app.solver_pool import follow_parent
from streams.observers.run_metrics import RunMetrics

SHORTEST_SLOS = 2  # a trial lasts longer: within one SLO any rate is answered in time
WITHIN = 1.01  # the search ends once the lowest failing rate is this close to the highest kept
FIRST_STEP = 1.12
PICK_QUERIES = 5_000  # per trial where ten mixes are compared, all with the same arrivals
LIKELY = 0.94  # typical capacity of a good mix, as a share of its bound
LIKELY_STEP = 1.04
APART = 100  # SLOs between two queries: a lower rate than that answers no more of them
# Policies that follow measured demand start with a plan for none: their first seconds are excluded.
WARM_UP_S = 10.0

Gaps = Callable[[int, int, float], Floats]  # seed, count, queries/s -> gaps with a mean of 1


def exponential_gaps(seed: int, count: int, qps: float) -> Floats:
    """Return the gaps of a Poisson process, the same ones at every rate."""
    return np.random.default_rng(seed).exponential(size=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """Policies x seeds to search, and their settings (``CapacityRequest``).

    ``mix`` replaces the file's devices, by type; ``sizes`` is a CSV of size,probability.
    """

    policies: Sequence[str] = ()
    seeds: Sequence[int] = ()
    mix: Mapping[str, int] | None = None
    attainment: float = 0.99
    queries: int = 10_000
    warm_up_s: float | None = None
    sizes: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """The pipeline file and policy of a capacity search, and its settings.

    ``attainment`` is the share of all queries that must be answered in time: late, dropped,
    refused and lost ones count against it. ``queries`` are counted in each trial, after
    ``warm_up_s`` (None: 10 s, or 0 s for policies that plan without demand).
    """

    file: PipelineFile
    policy: str
    seed: int = 0
    attainment: float = 0.99
    queries: int = 10_000
    warm_up_s: float | None = None
    sizes: SizeDistribution | None = None
    start_qps: float | None = None  # the search's first rate; None: estimated from the profile
    first_step: float = FIRST_STEP  # factor between the first two rates
    gaps: Gaps = exponential_gaps
    dilate: float = 1.0  # as ``Run.dilate``: hops shrink by this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rate, with the SLO attainment and p99 latency of its queries."""

    qps: float
    attainment: float
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The result of a search: ``best`` is the highest rate that kept the SLO, None if none did."""

    asked: CapacityRequest
    best: Trial | None
    runs: int

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``headrace capacity --json`` prints."""
        best, asked = self.best, self.asked
        return {
            "policy": asked.policy,
            "seed": asked.seed,
            "mix": dict(asked.file.cluster.devices),
            "capacity_qps": 0.0 if best is None else best.qps,
            "attainment": None if best is None else round(best.attainment, 6),
            "p99_ms": None if best is None or best.p99_s is None else round(best.p99_s * 1e3, 3),
            "runs": self.runs,
            "queries": asked.queries,
            "warm_up_s": warm_up_s(asked),
        }


def capacity(asked: CapacityRequest, advance: Callable[[int], None] = lambda _: None) -> Capacity:
    """Search the rate by bisection to 1 %; all trials share sizes and gaps, scaled to the rate.

    No rate is tried at which queries come ``APART`` SLOs apart. ``advance`` is called with the
    number of trials so far. Raises what ``simulated`` raises, and
    ``ArrivalsError`` if the trials have too few queries for the SLO.
    """
    runs = 0
    best: Trial | None = None
    low, high = 0.0, float("inf")
    lowest_qps = 1 / (APART * asked.file.pipeline.slo_s)
    qps = max(asked.start_qps or _expected_qps(asked), 2 * lowest_qps)
    step = asked.first_step
    while high > low * WITHIN and qps > lowest_qps:
        _check_length(asked, qps)
        found = trial(asked, qps)
        runs += 1
        advance(runs)
        if found.attainment >= asked.attainment:
            low, best = qps, found
        else:
            high = qps
        if low and high < float("inf"):
            qps = (low + high) / 2
        else:
            qps, step = (low * step if low else high / step), step**1.5
    return Capacity(asked=asked, best=best, runs=runs)


def _check_length(asked: CapacityRequest, qps: float) -> None:
    slo_s, lasts_s = asked.file.pipeline.slo_s, asked.queries / qps
    if lasts_s < SHORTEST_SLOS * slo_s:
        raise ArrivalsError(
            f"{asked.queries} queries at {qps:.6g}/s last {lasts_s:.3g} s, and within an SLO of "
            f"{slo_s:g} s any rate is answered in time; play at least "
            f"{math.ceil(10 * slo_s * qps)} (--queries)"
        )


class _Hopeless(Exception):
    """Ends a trial in which too many queries have failed."""


def trial(asked: CapacityRequest, qps: float) -> Trial:
    """Play the queries at a rate; stop with attainment 0 once the SLO cannot be kept."""
    warm_s = warm_up_s(asked)
    gaps = asked.gaps(asked.seed, 4 * asked.queries, qps)
    times = _times(gaps / qps, warm_s, asked.queries)
    allowed = (1 - asked.attainment) * asked.queries
    played: list[RunMetrics] = []

    def look(sent: int) -> None:
        counts = played[0].counts
        if sum(counts.values()) - counts["answered"] > allowed + 1:
            raise _Hopeless

    run = Run(
        file=asked.file, policy=asked.policy, seed=asked.seed, arrivals=Recorded(times),
        sizes=asked.sizes or size_distribution(asked.file), warm_up_s=warm_s,
        hops=asked.file.pipeline.comm_s > 0, dilate=asked.dilate,
    )  # fmt: skip
    try:
        ended = simulated(run, look, watch=_keeper(played))
    except _Hopeless:
        return Trial(qps=qps, attainment=0.0, p99_s=None)
    answered = ended.metrics.counts["answered"]
    return Trial(
        qps=qps, attainment=answered / max(ended.queries, 1), p99_s=ended.metrics.latency.at(0.99)
    )


class _Unwatched:
    """An observer that does nothing; ``watch`` needs one to get at the metrics."""

    def saw(self, *_: Any) -> None:
        """Ignore an event."""


def _keeper(played: list[RunMetrics]) -> Callable[[RunMetrics], Any]:
    def keep(metrics: RunMetrics) -> Any:
        played.append(metrics)
        return _Unwatched()

    return keep


def _times(gaps_s: Floats, warm_s: float, queries: int) -> Any:
    """Return arrival times: those of the warm-up, then ``queries``; gaps repeat if they run out."""
    rate = 1 / gaps_s.mean()
    count = queries + int(warm_s * rate * 2)
    times = np.cumsum(np.resize(gaps_s, count))
    first = int(np.searchsorted(times, warm_s)) if warm_s else 0
    return times[: first + queries]


def warm_up_s(asked: CapacityRequest) -> float:
    """Return the seconds at the beginning of a trial that are not counted."""
    if asked.warm_up_s is not None:
        return asked.warm_up_s
    policy = policy_named(asked.file.pipeline, asked.policy)
    return WARM_UP_S if policy is None or spec_of(policy.kind).follows_demand else 0.0


def _expected_qps(asked: CapacityRequest) -> float:
    """Return the search's first rate: half the devices' profiled throughput at the root, over the
    number of tasks."""
    file = asked.file
    table = per_query(file, planning_profile(file), asked.sizes)
    root, total = file.pipeline.root, 0.0
    for device, count in file.cluster.devices:
        for variant in root.variants[:1]:
            batch = 1 if file.pipeline.size else variant.batch
            try:
                total += count * table.throughput(root.name, variant.name, device, batch)
            except ProfileError:
                continue
    return max(total / 2 / len(file.pipeline.tasks), 1.0)


def mix_simulator(file: PipelineFile, asked: MixRequest) -> Simulate:
    """Return a function that searches the capacities of mixes under the request's policy, in
    parallel on all cores."""
    policy = ranking_policy(file, asked.policy).name
    sizes = read_sizes(file, asked.sizes)[0] if file.pipeline.size else None
    if asked.slo_s is not None:
        file = replace(file, pipeline=replace(file.pipeline, slo_s=asked.slo_s))
    named = with_policies(file, (policy,))

    def carried(mixes: Sequence[tuple[PipelineFile, float]]) -> list[float]:
        wanted = [
            CapacityRequest(
                file=replace(named, cluster=mix.cluster), policy=policy, sizes=sizes,
                queries=PICK_QUERIES, start_qps=LIKELY * bound_qps, first_step=LIKELY_STEP,
            )
            for mix, bound_qps in mixes
        ]  # fmt: skip
        return [found.best.qps if found.best else 0.0 for found in searched_capacities(wanted)]

    return carried


def requests(file: PipelineFile, asked: CapacityOptions) -> list[CapacityRequest]:
    """Return the searches of the options, by policy, then seed.

    Raises ``PipelineError``, ``PlanError`` or ``SizesError`` before anything has run.
    """
    policies = distinct("policy", asked.policies or (file.pipeline.policy,))
    seeds = distinct("seed", asked.seeds or (0,))
    file = with_policies(file, policies)
    for policy in policies:
        _check_serves_queries(file, policy)
    file = with_mix(file, dict(asked.mix)) if asked.mix else with_workers(file)
    sizes = _sizes(file, asked.sizes)
    return [
        CapacityRequest(
            file=file, policy=policy, seed=seed, attainment=asked.attainment,
            queries=asked.queries, warm_up_s=asked.warm_up_s, sizes=sizes,
        )
        for policy in policies
        for seed in seeds
    ]  # fmt: skip


def _sizes(file: PipelineFile, named: Path | None) -> SizeDistribution | None:
    """Return the sizes of the queries, none of which ingress refuses."""
    if file.pipeline.size is None:
        return None
    sizes, source = read_sizes(file, named)
    check_largest_size(sizes, source, file.pipeline.size.largest)
    return sizes


def _check_serves_queries(file: PipelineFile, name: str) -> None:
    policy = policy_named(file.pipeline, name)
    if policy is not None and spec_of(policy.kind).sessions:
        raise PlanError(
            f"policy {name!r} serves sessions, and a capacity is a rate of queries; `headrace "
            "schedule` says which sessions a cluster takes"
        )


def searched_capacities(asked: Sequence[CapacityRequest]) -> list[Capacity]:
    """Return the capacities, in order, searched in parallel on all cores."""
    with counting("searching capacity", len(asked)) as advance:
        if len(asked) == 1:
            found = [capacity(asked[0])]
            advance(1, "")
            return found
        most = min(len(asked), os.cpu_count() or 1)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(most, context, _begin) as pool:
            futures = [pool.submit(capacity, each) for each in asked]
            for at, future in enumerate(futures, 1):
                future.result()
                advance(at, f"{at} of {len(asked)} searches done")
            return [future.result() for future in futures]


def _begin() -> None:
    """Prepare a process of the pool."""
    follow_parent()
    collect_seldom()


def capacity_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the capacities as a text table, with a sentence for each that is 0."""
    lines = [["policy", "seed", "capacity/s", "in time", "p99 ms", "trials"]]
    lines += [
        [
            str(row["policy"]), str(row["seed"]), f"{row['capacity_qps']:.1f}",
            "-" if row["attainment"] is None else f"{row['attainment']:.2%}",
            "-" if row["p99_ms"] is None else f"{row['p99_ms']:.1f}", str(row["runs"]),
        ]
        for row in rows
    ]  # fmt: skip
    nothing = [
        f"{name} keeps the SLO at no rate: too few queries are in time even one at a time; take "
        "devices that serve every size in time, or raise the SLO"
        for name in dict.fromkeys(row["policy"] for row in rows if not row["capacity_qps"])
    ]
    return "\n".join([columns(lines), *nothing])
