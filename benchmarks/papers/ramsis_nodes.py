"""Run the same policies with the live nodes in virtual time
(``headrace/simulation/simulation_run.py``).

Dispatch is by round robin, single queries or runs, or from the central queue in ingress. Every
policy has tables for the load of the run, as in the artifact; hops are those of the local broker, a
batch takes its planning latency, and the policy decides on dropping late queries. Ingress refuses
as it does live under ``ramsis`` and with a central queue, and nothing under the others.

A policy is played on more seeds than ``seeds`` until its intervals resolve a point.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.papers.ramsis_baselines import Fixed
from benchmarks.papers.ramsis_compare import (
    CENTRAL,
    DROPPING_BY_TURN,
    ONE_BY_ONE,
    PAPER,
    RUNS,
    STATIC_BY_TURN,
    VARIABLE,
    Row,
    constant,
)
from benchmarks.papers.ramsis_trials import Cluster, by_turn, tuned, tuned_dropping
from control.policies import POLICIES
from control.policies.option_fields import with_options
from headrace.arrivals.arrival_processes import Recorded
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.results.statistics import mean_of
from headrace.roles.heap import collect_seldom
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.pipeline import Policy

ON = "nodes"
KIND = "ramsis-central"
SECONDS = 5.0
RESOLVED = 0.005  # half of a 95 % interval: two such intervals tell a point apart
MOST_SEEDS = 200


def by_nodes(
    pipeline: Path, cluster: Cluster, qps: int, seeds: int, told: Callable[[str], None]
) -> Iterator[Row]:
    """Run every policy that nodes support at a load, on the first seconds of each seed."""
    collect_seldom()
    file = read_pipeline_file(pipeline)
    told(f"{qps} queries/s by the nodes")
    arrivals: dict[int, Recorded] = {}
    for policy in _policies(cluster, float(qps)):
        rows: list[Row] = []
        while len(rows) < seeds or (len(rows) < MOST_SEEDS and not _resolved(rows)):
            seed = len(rows)
            if seed not in arrivals:
                times = constant(qps, seed)
                arrivals[seed] = Recorded(times[times < SECONDS])
            rows.append(_row(_run(file, policy, seed, arrivals[seed]), qps))
        yield from rows


def _policies(cluster: Cluster, qps: float) -> Iterator[Policy]:
    runs = POLICIES[RUNS].usual
    for name in (PAPER, RUNS, VARIABLE):
        yield with_options(POLICIES[name].usual, loads=(qps,))
    yield replace(with_options(runs, loads=(qps,), longest_run=1), name=ONE_BY_ONE)
    yield replace(with_options(POLICIES[KIND].usual, loads=(qps,)), name=CENTRAL)
    yield fixed(tuned(cluster, qps), cluster.workers)
    dropping = fixed(tuned_dropping(cluster, qps, by_turn), cluster.workers)
    yield replace(dropping, name=DROPPING_BY_TURN, dropping="deadline")


def _resolved(rows: Sequence[Row]) -> bool:
    means = (mean_of([row.accuracy for row in rows]), mean_of([row.violation for row in rows]))
    return all((mean.half or 0.0) <= RESOLVED for mean in means)


def fixed(choice: Fixed, workers: int) -> Policy:
    """Return a choice as a static policy without dropping, on all workers."""
    key = f"classify/{choice.model}"
    return Policy(
        name=STATIC_BY_TURN, replicas={key: workers}, batch={key: choice.most}, dropping="none"
    )


def _run(file: PipelineFile, policy: Policy, seed: int, arrivals: Recorded) -> Run:
    admission = policy.name in (RUNS, CENTRAL)  # as they run live
    pipeline = replace(file.pipeline, policies=(policy,), admission=admission)
    return Run(
        file=replace(file, pipeline=pipeline),
        policy=policy.name,
        seed=seed,
        arrivals=arrivals,
        latency="p95",
    )


def _row(run: Run, qps: int) -> Row:
    ended = simulated(run, lambda sent: None)
    counts = ended.metrics.counts
    return Row(
        on=ON,
        at=qps,
        seed=run.seed,
        policy=run.policy,
        queries=ended.queries,
        accuracy=ended.metrics.accuracy or 0.0,
        violation=1 - counts["answered"] / ended.queries,
        cpu_s=ended.cpu_s,
    )
