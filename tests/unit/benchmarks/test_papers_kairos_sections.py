"""Sections of the Kairos page that show claims row by row, built from stored searches."""

from pathlib import Path

import pytest

from benchmarks.papers.kairos import write
from benchmarks.papers.kairos_cases import AUTHORS_GAPS
from benchmarks.papers.kairos_climb import Climb
from benchmarks.papers.kairos_compare import HOMOGENEOUS, MODELS, Search
from benchmarks.papers.kairos_sections import (
    climbs_section,
    gains_section,
    latencies_section,
    one_mix_section,
    scaled,
)
from tests.unit.benchmarks.test_papers_kairos import a_data_folder

MIX = (1, 0, 13, 0)


def a_search(row: str, qps: float, **changes: object) -> Search:
    policy = "fcfs" if row == HOMOGENEOUS else row
    values: dict[str, object] = {"mix": MIX, "seed": 0} | changes
    return Search("rm2", row, policy, qps=qps, **values)  # type: ignore[arg-type]


def test_base_devices_are_scaled_up_to_the_budget() -> None:
    assert scaled(100.0, (4, 0, 0, 0)) == pytest.approx(100 * 2.5 / 2.104)
    assert scaled(100.0, (9, 0, 0, 0), 5.0) == pytest.approx(100 * 5 / 4.734)


def test_climb_row_shows_its_final_mix_relative_to_the_first_mix() -> None:
    climbs = [
        Climb(model="rm2", policy="threshold", mix=MIX, threshold=830, qps=1.0, evaluated=28),
        Climb(model="rm2", policy="fcfs", mix=(3, 0, 6, 0), threshold=0, qps=1.0, evaluated=12),
    ]
    found = [a_search("threshold", 100.0), a_search("threshold", 104.0, threshold=830)]
    text = climbs_section(found, climbs)
    assert "| threshold | 1+0+13+0 at 830 (28 mixes): 1.040 | not run |" in text
    assert "| fcfs | 3+0+6+0 (12 mixes): not run |" in text


def test_rules_on_one_mix_are_compared_relative_to_the_first_rule() -> None:
    found = [a_search("kairos", 100.0), a_search("fcfs", 20.0), a_search("earliest", 0.0, mix=(1,))]
    text = one_mix_section(found, dict.fromkeys(MODELS, MIX))
    assert "| fcfs | 0.20 | not run |" in text
    assert "| earliest | not run |" in text


def test_gains_are_relative_to_scaled_base_devices_for_each_gap_case() -> None:
    base = {"mix": (4, 0, 0, 0)}
    found = [
        a_search("kairos", 118.8), a_search(HOMOGENEOUS, 50.0, **base),
        a_search("kairos", 130.68, case=AUTHORS_GAPS),
        a_search(HOMOGENEOUS, 50.0, case=AUTHORS_GAPS, **base),
    ]  # fmt: skip
    text = gains_section(found)
    assert "| trace | 2.00 on 1+0+13+0 | not run |" in text
    assert "| authors' gaps | 2.20 on 1+0+13+0 (1.10, 1.00) | not run |" in text


def test_latencies_have_a_base_type_a_correlation_and_a_spread_by_type(tmp_path: Path) -> None:
    data, out = a_data_folder(tmp_path), tmp_path / "out"
    write(data, out)
    text = latencies_section(data, out)
    assert "| model | base | correlation | gpu | slow |" in text
    assert "| rm2 | gpu | 1.000 | 1.0% | 2.0% |" in text
