"""Compare RAMSIS, its baselines and our policies by accuracy and violation.

All policies run on the bare queues of ``ramsis_queues``, with the same arrivals per seed. Each
policy is a table for a load, or one for each load of a grid: RAMSIS's and ours by round robin,
single queries or runs; policies that choose by load alone use a central queue, as in the artifact.
The tuned static choice also gets what ours have beside a table: dropping, and runs with admission.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.ramsis_baselines import Fixed, held, jellyfish, model_switching
from benchmarks.papers.ramsis_queues import (
    Decide,
    InForce,
    Planned,
    Rescue,
    Seen,
    always,
    as_decided,
    as_ingress,
    by_recent_load,
    central,
    decided,
    in_runs,
    round_robin,
)
from benchmarks.papers.ramsis_trials import (
    LENGTHS,
    OURS,
    STATIC_TRIAL_S,
    Cluster,
    Serve,
    Trials,
    ask_of,
    by_turn,
    from_one_queue,
    sent_in_runs,
    tuned,
    tuned_dropping,
)
from control.policies.ramsis import central_queue
from control.policies.ramsis.central_trial import TrialQuality
from control.policies.ramsis.mdp import fixed_levels
from control.policies.ramsis.tables import (
    APART,
    OPTIONS,
    Ask,
    Options,
    SelectionPlan,
    Table,
    close_to,
    joined,
    next_load,
    setting_for,
    solved,
)
from control.problem.problem import SelectionError
from headrace.arrivals.arrival_processes import Times, from_rates, poisson

LOADS = tuple(range(400, 4001, 400))
GRID = tuple(
    float(qps) for qps in range(200, 4001, 200)
)  # the artifact's grid, for a changing load
CONSTANT_S = 30.0
SWITCHING_TRIAL_S = 300.0
EMPTY = -1  # before half a second: count as if no query had arrived earlier
# A choice shipped with the artifact. Our own trial would decide it by chance: mobilenet at batch 3
# has 0.6 % more throughput than the load, so five minutes end below 1 % or not.
SHIPPED = {(60, 2800.0): Fixed("mobilenet_v3_large", 3)}

# The paper's setting: no dropping; policies that choose by load alone have a central queue.
PAPER, JELLYFISH, SWITCHING, STATIC = "ramsis-paper", "jellyfish", "model-switching", "tuned static"
# Ours run the lease's batch if the table's would be late, and drop queries that are still late.
RUNS, VARIABLE, CENTRAL = "ramsis", "ramsis-variable", "ramsis, central queue"
ONE_BY_ONE, STATIC_BY_TURN = "ramsis, one by one", "tuned static, round robin"
# The tuned static choice with our dropping, by a central queue, round robin, and runs as ours.
DROPPING = "tuned static, dropping"
DROPPING_BY_TURN, DROPPING_IN_RUNS = f"{DROPPING}, round robin", f"{DROPPING}, in runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result of a policy with a seed; ``at`` is the load, or on the trace the workers."""

    on: str
    at: int
    seed: int
    policy: str
    queries: int
    accuracy: float  # 0..1, over queries in time
    violation: float  # 0..1
    cpu_s: float = 0.0  # of the simulation, if measured


Discipline = Callable[[Sequence[float], int, Decide, float, Rescue | None], Seen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Tables for loads; ``before`` is the index of the table for the first half second.

    ``rescue`` replaces late batches and ``drops`` serves only what is in time; queries come in the
    runs of the tables ``bursts``, as ``planned`` admits.
    """

    tables: tuple[Table, ...]
    discipline: Discipline
    before: int
    rescue: Rescue | None = None
    drops: bool = False
    bursts: tuple[Table, ...] = ()
    planned: Planned | None = None

    def play(self, cluster: Cluster, times_s: Sequence[float]) -> Seen:
        """Simulate these arrivals; return the counts."""
        slo_s = cluster.slo_s
        decide = decided(self.tables, cluster.models, _in_force(times_s, self.tables, self.before))
        rescue = as_decided(decide, slo_s) if self.drops else self.rescue
        if self.bursts:
            in_force = _in_force(times_s, self.bursts, len(self.bursts) - 1)
            run_at = as_ingress(self.bursts, in_force)
            return in_runs(
                times_s, cluster.workers, decide, slo_s, rescue, run_at, self.planned
            )  # fmt: skip
        return self.discipline(times_s, cluster.workers, decide, slo_s, rescue)


def _in_force(times_s: Sequence[float], tables: Sequence[Table], before: int) -> InForce:
    loads = [table.qps for table in tables]
    return by_recent_load(times_s, loads, before) if len(loads) > 1 else always


# ---------------------------------------------------------------------- policies


def policies(cluster: Cluster, loads: Sequence[float]) -> dict[str, Policy]:
    """Return every policy, with tables for these loads."""
    chosen = [_chosen(cluster, qps) for qps in loads]
    found = {PAPER: Policy(tables=_solved(cluster, loads), discipline=round_robin, before=EMPTY)}
    for name in (JELLYFISH, SWITCHING, STATIC):
        tables = tuple(each[name] for each in chosen)
        before = len(tables) - 1 if name == STATIC else EMPTY
        found[name] = Policy(tables=tables, discipline=central, before=before)
    found[STATIC_BY_TURN] = replace(found[STATIC], discipline=round_robin)
    tables, lease = _refined(cluster, RUNS, loads, LENGTHS), cluster.lease()
    found |= _dropping(cluster, loads, tables)
    found[RUNS] = replace(
        _ours(tables, round_robin, cluster.rescue(lease)),
        bursts=tables,
        planned=cluster.planned(lease),
    )
    for name, kind in ((ONE_BY_ONE, RUNS), (VARIABLE, VARIABLE)):
        tables = _refined(cluster, kind, loads)
        found[name] = _ours(tables, round_robin, cluster.by_turn())
    tables = tuple(each[CENTRAL] for each in chosen)
    found[CENTRAL] = _ours(tables, central, cluster.rescue(lease))
    return found


def _dropping(
    cluster: Cluster, loads: Sequence[float], bursts: tuple[Table, ...]
) -> dict[str, Policy]:
    """Return the tuned static choices with dropping; ``bursts`` have the lengths of the runs."""
    found = {}
    ways: dict[str, Callable[[int], Serve]] = {
        DROPPING: lambda run: from_one_queue,
        DROPPING_BY_TURN: lambda run: by_turn,
        DROPPING_IN_RUNS: sent_in_runs,
    }
    for name, serve in ways.items():
        chosen = [tuned_dropping(cluster, qps, serve(_run_at(bursts, qps))) for qps in loads]
        found[name] = Policy(
            tables=tuple(
                held(choice, cluster.models, cluster.slo_s, qps)
                for choice, qps in zip(chosen, loads, strict=True)
            ),
            discipline=central if name == DROPPING else round_robin,
            before=len(loads) - 1,
            drops=True,
            bursts=bursts if name == DROPPING_IN_RUNS else (),
            planned=cluster.planned(chosen[-1]) if name == DROPPING_IN_RUNS else None,
        )
    return found


def _run_at(tables: Sequence[Table], qps: float) -> int:
    """Return the run length of the table for a load."""
    return next((table.run for table in tables if table.qps >= qps), tables[-1].run)


def _ours(tables: tuple[Table, ...], discipline: Discipline, rescue: Rescue) -> Policy:
    return Policy(tables=tables, discipline=discipline, before=len(tables) - 1, rescue=rescue)


def _solved(cluster: Cluster, loads: Sequence[float]) -> tuple[Table, ...]:
    """Return the paper's tables, one per load."""
    return tuple(solved(OPTIONS[PAPER], ask_of(cluster, qps)).table for qps in loads)


def grid(
    options: Options, ask: Ask, loads: Iterable[float], apart: float = APART
) -> tuple[SelectionPlan, ...]:
    """Return plans for the loads, and for loads between them until neighbours are close, by load.

    The load of ``ask`` itself is ignored.
    """
    wanted = sorted(set(loads))
    if not wanted:
        raise SelectionError("a grid needs one load at least; name the highest to be expected")
    plans: tuple[SelectionPlan, ...] = ()
    while (qps := next_load(plans, wanted, apart)) is not None:
        plans = joined(plans, solved(options, replace(ask, qps=qps), close_to(plans, qps)))
    return plans


def _refined(
    cluster: Cluster, kind: str, loads: Sequence[float], runs: tuple[int, ...] = (1,)
) -> tuple[Table, ...]:
    """Return our tables, with additional loads between neighbours that differ."""
    plans = grid(OPTIONS[kind], replace(ask_of(cluster, loads[0]), runs=runs), loads)
    return tuple(plan.table for plan in plans)


def _chosen(cluster: Cluster, qps: float) -> dict[str, Table]:
    """Return the tables for a load that come from a rule, or from trials with a central queue."""
    models, slo_s, share = cluster.models, cluster.slo_s, qps / cluster.workers
    long = Trials.drawn(cluster, qps, SWITCHING_TRIAL_S)
    short = Trials.drawn(cluster, qps, STATIC_TRIAL_S)
    fixed = {JELLYFISH: jellyfish(models, slo_s, share)}
    fixed[SWITCHING] = SHIPPED.get((cluster.workers, qps)) or model_switching(
        models, slo_s, share, long.violation
    )
    fixed[STATIC] = tuned(cluster, qps)
    found = {name: held(choice, models, slo_s, qps) for name, choice in fixed.items()}
    levels = fixed_levels(slo_s)
    static = replace(
        found[STATIC],
        levels_s=levels,
        model=tuple(row[:1] * len(levels) for row in found[STATIC].model),
        batch=tuple(row[:1] * len(levels) for row in found[STATIC].batch),
    )
    setting = setting_for(OPTIONS[OURS], ask_of(cluster, qps))
    tried = [
        (each, TrialQuality(*short.of_table(each)))
        for each in (static, *central_queue.candidates(setting, qps))
    ]
    table, _ = central_queue.best_table(tried, central_queue.HARDLY_LATE)
    return {**found, CENTRAL: table}


# ---------------------------------------------------------------------- runs


def at_constant_load(
    cluster: Cluster, loads: Sequence[int], seeds: int, told: Callable[[str], None]
) -> Iterator[Row]:
    """Run every policy at every load, on ``seeds`` times 30 s of Poisson arrivals."""
    for qps in loads:
        told(f"{qps} queries/s")
        ready = policies(cluster, [float(qps)])
        for seed in range(seeds):
            times = constant(qps, seed).tolist()
            yield from _rows(ready, cluster, times, Row(
                on="constant", at=qps, seed=seed, policy="", queries=0, accuracy=0, violation=0
            ))  # fmt: skip


def constant(qps: int, seed: int) -> Times:
    """Return a seed's arrivals at a constant load."""
    return poisson(qps, CONSTANT_S, np.random.default_rng([seed, qps]))


def on_trace(
    cluster: Cluster, rates_qps: Sequence[float], seeds: int, told: Callable[[str], None]
) -> Iterator[Row]:
    """Run every policy on the trace: a Poisson process with the trace's rate per second."""
    told(f"the trace with {cluster.workers} workers")
    ready = policies(cluster, GRID)
    for seed in range(seeds):
        times = from_rates(rates_qps, np.random.default_rng([seed, cluster.workers])).tolist()
        yield from _rows(ready, cluster, times, Row(
            on="trace", at=cluster.workers, seed=seed,
            policy="", queries=0, accuracy=0, violation=0,
        ))  # fmt: skip


def _rows(
    ready: Mapping[str, Policy], cluster: Cluster, times_s: Sequence[float], blank: Row
) -> Iterator[Row]:
    for name, policy in ready.items():
        seen = policy.play(cluster, times_s)
        yield replace(
            blank, policy=name, queries=seen.served,
            accuracy=seen.accuracy, violation=seen.violation,
        )  # fmt: skip
