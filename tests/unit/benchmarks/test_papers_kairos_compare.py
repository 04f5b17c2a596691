"""The Kairos comparison page, built from stored searches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.kairos_compare import RankingRow, Search, cosine_pick, recorded, searched
from benchmarks.papers.kairos_oracle import oracle_qps
from benchmarks.papers.kairos_page import page
from control.policies.kairos.provisioning import Ranked, pick_paper
from control.policies.kairos.throughput_bounds import FluidBound, ServiceTimes

RANKING = RankingRow(
    model="rm2", bound="fluid", place=1, first_share=1.0, paper_share=0.9, cosine_share=0.8,
    highest_share=0.94, evaluations=7, search_share=1.0,
)  # fmt: skip


def test_first_come_first_served_has_the_better_of_its_mixes() -> None:
    found = [
        Search("wnd", "kairos", "kairos", (1, 0, 13, 0), 0, 1500.0),
        Search("wnd", "fcfs", "fcfs", (4, 0, 2, 0), 0, 920.0),
        Search("wnd", "homogeneous", "fcfs", (4, 0, 0, 0), 0, 950.0),
    ]
    text = page(found, [])
    assert "| wnd | 1500/s on 1+0+13+0 | 950/s on 4+0+0+0 |" in text
    assert "| fcfs | not run | not run | 1.58 " in text


def test_rule_reports_its_best_mix_and_threshold_with_all_seeds() -> None:
    found = [
        *(Search("rm2", "kairos", "kairos", (1, 0, 13, 0), seed, 150.0) for seed in (0, 1)),
        *(Search("rm2", "threshold", "threshold", (1, 0, 13, 0), seed, 100.0) for seed in (0, 1)),
        *(
            Search("rm2", "threshold", "threshold", (2, 0, 9, 0), seed, 120.0, threshold=830)
            for seed in (0, 1)
        ),
        Search("rm2", "threshold", "threshold", (3, 0, 6, 0), 0, 140.0),
        Search("rm2", "threshold", "threshold", (2, 0, 9, 0), 0, 999.0, case="QoS x1.2"),
    ]
    assert "| threshold | 1.25 " in page(found, [])


def test_page_lists_every_rule_and_marks_missed_minimums() -> None:
    found = [
        Search("rm2", "kairos", "kairos", (1, 0, 13, 0), 0, 130.0),
        Search("rm2", "kairos", "kairos", (1, 0, 13, 0), 1, 134.0),
        Search("rm2", "fcfs", "fcfs", (3, 0, 6, 0), 0, 80.0),
        Search("rm2", "earliest", "earliest", (2, 0, 9, 0), 0, 120.0),
        Search("rm2", "homogeneous", "fcfs", (4, 0, 0, 0), 0, 50.0),
    ]
    text = page(found, [RANKING])
    assert (
        "| rm2 | 132/s on 1+0+13+0 | 80/s on 3+0+6+0 | 120/s on 2+0+9+0 | - | 59/s on 4+0+0+0 | - |"
        in text
    )
    assert "| fcfs | 1.62 (1.87, must 1.50, aim 1.70) | not run |" in text
    assert "| earliest | **1.08** (1.24, must 1.22, aim 1.10) |" in text
    assert "| homogeneous | 2.19 (2.20, must 2.00, aim 2.30) |" in text  # 50 scaled by 2.5 / 2.104
    assert "| rm2 | fluid | 1 | 1.000 | 0.900 | 0.800 | 0.940 | 7 mixes, 1.000 |" in text
    assert "Seeds that every rule has run, by model: rm2 1." in text


def test_mixes_of_one_proportion_are_alike_by_the_cosine_only() -> None:
    mixes = [(1, 0), (4, 4), (2, 2), (1, 5), (1, 6)]
    best = [Ranked(counts, 1.0, 1.0) for counts in mixes]
    assert pick_paper(best, None).counts == (2, 2)
    assert cosine_pick(best, None).counts == (4, 4)
    one_base = [Ranked((2, n), 1.0, 1.0) for n in (5, 4, 3)]
    assert cosine_pick(one_base, 0) is one_base[0]


def test_the_oracle_serves_large_queries_on_base_devices_and_small_ones_on_the_others() -> None:
    # Sizes 1 and 2, half each. The auxiliary type takes 3 s for a small query and misses the SLO
    # with a large one.
    times = ServiceTimes(np.array([[1.0, 2.0], [3.0, 9.0]]), np.array([0.5, 0.5]), 5.0, 0)
    assert oracle_qps(times, (1, 0), 100) == pytest.approx(100 / 150)
    # In 100 s the base serves 50 large queries and the auxiliary device 33 small ones; 17 remain.
    assert oracle_qps(times, (1, 1), 100) == pytest.approx(100 / 113, rel=0.02)
    assert oracle_qps(times, (0, 3), 100) == 0.0


@given(
    st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(any),
    st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3),
)
def test_the_oracle_does_not_exceed_the_fluid_bound(mix: list[int], slopes: list[float]) -> None:
    latency = np.array([[slope * k for k in range(1, 6)] for slope in slopes])
    times = ServiceTimes(latency, np.full(5, 0.2), 2.0, int(np.argmin(slopes)))
    bound = FluidBound(times).exact(np.array(mix, dtype=float))
    assert oracle_qps(times, tuple(mix), 500) <= bound * 1.0000001


def test_completed_searches_are_not_repeated(tmp_path: Path) -> None:
    asked = Search("rm2", "fcfs", "fcfs", (3, 0, 6, 0), 0)
    found = replace(asked, qps=80.0)
    recorded(tmp_path).append(found)
    assert list(searched(tmp_path, [asked], processes=1)) == [found]
