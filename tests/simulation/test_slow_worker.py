"""One slow worker among twenty is detected and receives less work."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from control.estimation.estimates import Estimates
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import Fault
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import Effect, Event, Send
from schemas.records import ANSWERED, Plan

SLOW, FACTOR = "emulated-7", 3.0
POLICIES = {"fixed": {"replicas": {"read/small": 20}}, "scaled": {"kind": "loki"}}


class Plans:
    """Observe every plan."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.record, Plan):
                self.plans.append(effect.record)


def played(folder: Path, policy: str, rate_qps: float) -> tuple[Ended, Plan]:
    path = a_cluster(
        folder, children={"read": ()}, fan_out=0, batch_s=0.02, load_s=0.1, devices=20,
        slo="300ms", policies=POLICIES,
    )  # fmt: skip
    file = read_pipeline_file(path)
    assert SLOW in devices(file)
    slow = Fault(at_s=0.0, kind="slow", device=SLOW, for_s=60.0, factor=FACTOR)
    run = Run(
        file=file, policy=policy, seed=0, arrivals=Renewal(rate_qps, 16.0), faults=(slow,),
        warm_up_s=8.0,
    )  # fmt: skip
    plans = Plans()
    ended = simulated(run, lambda sent: None, [plans])
    return ended, [plan for plan in plans.plans if plan.issued_s < ended.last_s][-1]


def share(plan: Plan, slow: str) -> float:
    """Return the slow worker's share relative to the mean of the other workers of its variant."""
    leases = {lease.open_slot: lease for lease in plan.leases if lease.open_slot >= 0}
    shares = {leases[r.slot].worker: r.share for r in plan.routes if not r.source}
    variants = {lease.worker: lease.variant for lease in leases.values()}
    others = [shares[x] for x in shares if x != slow and variants[x] == variants.get(slow)]
    return shares[slow] / (sum(others) / len(others))


def violation(ended: Ended) -> float:
    return 1.0 - ended.metrics.counts[ANSWERED] / ended.queries


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("policy", "rate_qps"), [("fixed", 1200.0), ("scaled", 1000.0), ("scaled", 1200.0)]
)
def test_a_slow_worker_among_twenty_gets_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, rate_qps: float
) -> None:
    ended, plan = played(tmp_path, policy, rate_qps)
    assert share(plan, SLOW) < 0.6
    monkeypatch.setattr(Estimates, "paces", lambda self: {})
    blind, plan = played(tmp_path, policy, rate_qps)
    assert share(plan, SLOW) > 0.9
    assert violation(ended) < 0.5 * violation(blind)
