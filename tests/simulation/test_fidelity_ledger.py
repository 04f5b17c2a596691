"""A ledger of answers and plans counts what the account of the simulation counts."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from headrace.config import load_profile, read_pipeline_file
from headrace.fidelity import Figures
from headrace.fidelity_ledger import Ledger
from headrace.simulation import Ended, Run, simulated
from headrace.wiring import accuracies
from headrace.workload import Recorded, poisson

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
