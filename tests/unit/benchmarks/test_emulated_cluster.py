"""Detection and recovery times of a lost device, derived from the plans of the live cluster."""

from pathlib import Path

from benchmarks.emulated_cluster import APART, DEVICES, Outage, Recovery, prepared, recovery
from headrace.arrivals.arrival_processes import Rates
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.dry_run import PlanRequest, dry_run_plans
from schemas.enumerations import PlanCause
from schemas.records import Lease, Plan
from tests.builders import a_lease, a_plan

WITH = a_lease(APART)
WITHOUT = a_lease("emulated-0")


def plan_at(epoch: int, issued_s: float, lease: Lease, *causes: PlanCause) -> Plan:
    return a_plan((lease,), epoch=epoch, issued_s=issued_s, causes=causes)


def an_outage(started_s: float = 130.0) -> Outage:
    return Outage(kill_s=0.0, back_s=30.0, killed_s=100.0, started_s=started_s)


def test_outage_is_derived_from_the_plans_around_it() -> None:
    made = [
        plan_at(1, 90.0, WITH),
        plan_at(2, 100.9, WITHOUT, PlanCause.WORKER_LOST, PlanCause.HANDOVER),
        plan_at(3, 101.0, WITHOUT, PlanCause.WORKER_LOST),
        plan_at(4, 131.5, WITH, PlanCause.WORKER_NEW),
    ]
    assert recovery(made[::-1], an_outage(), 4.0) == Recovery(
        detected_s=0.9, solved_s=0.1, solved_wall_s=0.4, back_s=1.5
    )  # fmt: skip


def test_undetected_outage_has_no_recovery_times() -> None:
    made = [plan_at(1, 90.0, WITH), plan_at(2, 110.0, WITH)]
    assert recovery(made, an_outage(started_s=95.0), 4.0) == Recovery(
        detected_s=None, solved_s=None, solved_wall_s=None, back_s=None
    )  # fmt: skip


def test_without_the_papers_data_the_shipped_pipeline_scales_from_hardware_to_accuracy(
    tmp_path: Path,
) -> None:
    path, arrivals = prepared(tmp_path / "none", tmp_path, "traffic")
    rates = read_workload(arrivals)
    assert isinstance(rates, Rates)
    least, most = min(rates.rates_qps), max(rates.rates_qps)
    asked = PlanRequest(demands_qps=(least, most), devices=DEVICES)
    found = [each.allocation.mode for each in dry_run_plans(read_pipeline_file(path), asked)]
    assert found == ["hardware", "accuracy"]
