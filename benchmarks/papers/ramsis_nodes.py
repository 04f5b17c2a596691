"""Run the same policies with the live nodes in virtual time
(``headrace/simulation/simulation_run.py``).

Dispatch is by round robin, single queries or runs, because a slot has one reader. Every policy has
tables for the load of the run, as in the artifact; hops are those of the local broker, a batch
takes its planning latency, no query is refused, and the policy decides on dropping late queries.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.papers.ramsis_baselines import Fixed
from benchmarks.papers.ramsis_compare import (
    ONE_BY_ONE,
    PAPER,
    RUNS,
    STATIC_BY_TURN,
    VARIABLE,
    Cluster,
    Row,
    constant,
    tuned,
)
from control.policies import POLICIES
from control.policies.option_fields import with_options
from headrace.arrivals.arrival_processes import Recorded
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.roles.process_setup import collect_seldom
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.pipeline import Policy

ON = "nodes"
SECONDS = 5.0


def by_nodes(
    pipeline: Path,
    cluster: Cluster,
    loads: Sequence[int],
    seeds: int,
    told: Callable[[str], None],
) -> Iterator[Row]:
    """Run every policy that nodes support at every load, on the first seconds of each seed."""
    collect_seldom()
    file = read_pipeline_file(pipeline)
    for qps in loads:
        told(f"{qps} queries/s by the nodes")
        loads, runs = (float(qps),), POLICIES[RUNS].usual
        policies = (
            *(with_options(POLICIES[name].usual, loads=loads) for name in (PAPER, RUNS, VARIABLE)),
            replace(with_options(runs, loads=loads, longest_run=1), name=ONE_BY_ONE),
            fixed(tuned(cluster, qps), cluster.workers),
        )
        for seed in range(seeds):
            times = constant(qps, seed)
            arrivals = Recorded(times[times < SECONDS])
            for policy in policies:
                yield _row(_run(file, policy, seed, arrivals), qps)


def fixed(choice: Fixed, workers: int) -> Policy:
    """Return a choice as a static policy without dropping, on all workers."""
    key = f"classify/{choice.model}"
    return Policy(
        name=STATIC_BY_TURN, replicas={key: workers}, batch={key: choice.most}, dropping="none"
    )


def _run(file: PipelineFile, policy: Policy, seed: int, arrivals: Recorded) -> Run:
    pipeline = replace(file.pipeline, policies=(policy,), admission=False)
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
