from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import renting
from control.policies import policy_named
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.device_mix import MixRequest, pool_of
from headrace.simulation.run_input import Run
from tests.typed_files import RANK, a_typed_file


def the_runs(folder: Path) -> dict[str, Run]:
    a_typed_file(folder, RANK.replace("slo: 100ms", "slo: 2s"))
    file = renting.pipeline(folder, "rank")
    return dict(renting.ramp(file, pool_of(file, MixRequest())[0], 0, 40))


@pytest.mark.slow
def test_a_ramp_compares_the_rented_mix_with_a_fixed_one(tmp_path: Path) -> None:
    runs = the_runs(tmp_path)
    rented, fixed = (renting.played(run, "rank", "ramp", name) for name, run in runs.items())
    assert rented.queries == fixed.queries > 1_000
    assert rented.changes
    assert not fixed.changes
    assert rented.usd_per_h < fixed.usd_per_h <= renting.BUDGET
    assert renting.text(replace(rented, attainment=0.5)).startswith("rank ramp rented: 50.00%")


def test_a_live_run_reads_a_file_with_the_devices_and_the_policy_of_the_simulated_one(
    tmp_path: Path,
) -> None:
    for run in the_runs(tmp_path).values():
        file = read_pipeline_file(renting.written(run.file))
        assert file.cluster == run.file.cluster
        assert file.pipeline.policy == renting.POLICY_NAME
        policy = policy_named(file.pipeline, renting.POLICY_NAME)
        assert policy is not None
        assert (policy.kind, policy.headroom) == ("kairos", 1.15)


def test_a_mix_costs_its_price_until_the_next_one(tmp_path: Path) -> None:
    file = the_runs(tmp_path)["rented"].file
    mixes = [(90.0, {"gpu": 4}), (95.0, {"gpu": 1}), (105.0, {"gpu": 2, "slow": 5})]
    # For 5 s of 10 a device of $ 0.5, then two and five of $ 0.2.
    assert renting.usd_per_h(file, mixes, 100.0, 110.0) == pytest.approx((0.5 + 2.0) / 2)
