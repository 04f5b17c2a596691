"""A ledger of answers and plans counts what the account of the simulation counts."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.config.pipeline_file import load_profile, read_pipeline_file
from headrace.fidelity.certificate import Figures
from headrace.results.ledger import Ledger, Replicas
from headrace.roles.wiring import accuracies
from headrace.simulation.simulation_run import Ended, Run, simulated
from schemas.records import Lease, Plan, Settings

SECONDS = 20.0


@pytest.mark.parametrize("warm_up_s", [0.0, 5.0])
@pytest.mark.parametrize("rate_qps", [20.0, 200.0])
def test_a_ledger_agrees_with_the_account(
    tmp_path: Path, warm_up_s: float, rate_qps: float
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    times = poisson(rate_qps, SECONDS, np.random.default_rng(3))
    run = Run(
        file=file, policy="static", seed=1, arrivals=Recorded(times), warm_up_s=warm_up_s
    )  # fmt: skip
    ledger = Ledger(
        file.pipeline, accuracies(load_profile(file)), first_s=times[0], warm_up_s=warm_up_s
    )
    ended = simulated(run, lambda sent: None, (ledger,))
    found = ledger.figures(ended.queries, ledger.start_s + float(times[-1]))
    assert (found.queries, *_shared(found)) == (ended.queries, *_of(ended))
    assert sum(found.drops.values()) == pytest.approx(found.violation)
    assert sum(found.replicas.values()) == pytest.approx(found.devices_mean)


def _shared(found: Figures) -> tuple[object, ...]:
    return (
        found.p50_ms, found.p95_ms, found.p99_ms, found.branch_violation, found.violation,
        found.accuracy, round(found.devices_mean or 0.0, 6),
    )  # fmt: skip


def _of(ended: Ended) -> tuple[object, ...]:
    account = ended.account
    p50, p95, p99 = (round((account.latency.at(q) or 0.0) * 1e3, 3) for q in (0.5, 0.95, 0.99))
    return (
        p50, p95, p99, account.branch_violation, 1 - account.counts["answered"] / ended.queries,
        account.accuracy, round(ended.devices_mean, 6),
    )  # fmt: skip


def test_replicas_are_those_in_force_while_it_counts() -> None:
    two, one = (a_plan(count) for count in (2, 1))
    replicas = Replicas()
    for issued_s, plan in ((0.0, one), (5.0, two)):
        replicas.plan(replace(plan, issued_s=issued_s))
    replicas.begin(10.0)
    for issued_s, plan in ((15.0, one), (20.0, two), (30.0, two)):
        replicas.plan(replace(plan, issued_s=issued_s))
    # Two for 5 s, then one for 5 s; what comes after is not counted.
    assert replicas.mean(20.0) == {"read/net": 1.5}
    assert replicas.mean(10.0) == {}


def a_plan(count: int) -> Plan:
    leases = (Lease(worker="w", task="read", variant="net", batch=1, slots=(0,)),) * count
    settings = Settings(policy="loki", slo_s=1.0)
    return Plan(pipeline="p", epoch=1, issued_s=0.0, reason="", settings=settings, leases=leases)
