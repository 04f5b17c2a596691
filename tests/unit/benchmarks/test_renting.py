from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import renting
from headrace.planning.device_mix import MixRequest, pool_of
from tests.typed_files import RANK, a_typed_file


@pytest.mark.thorough
def test_a_ramp_compares_the_rented_mix_with_a_fixed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_typed_file(tmp_path, RANK.replace("slo: 100ms", "slo: 2s"))
    monkeypatch.setattr(renting, "RAMP_S", 40)
    file = renting.pipeline(tmp_path, "rank")
    rented, fixed = renting.ramp(file, pool_of(file, MixRequest())[0], "rank", 0)
    assert rented.queries == fixed.queries > 1_000
    assert rented.changes
    assert not fixed.changes
    assert rented.usd_per_h < fixed.usd_per_h <= renting.BUDGET
    assert renting.text(replace(rented, attainment=0.5)).startswith("rank ramp rented: 50.00%")
