"""Shadows in a simulated system use idle time only, and make no answer miss its deadline."""

from pathlib import Path

import pytest

from benchmarks.shadows import SERVED_QPS, at, played
from headrace.arrivals.arrival_processes import Rates

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("admission", [True, False])
def test_at_full_load_shadows_cost_no_answer_its_deadline(tmp_path: Path, admission: bool) -> None:
    """Only the arrivals are random, so both runs have the same queries. No worker idles, so shadows
    run after the queries have ended."""
    for load in (1.0, 1.1):
        without = played(tmp_path, at(load), 0.0, admission=admission)
        beside = played(tmp_path, at(load), 0.05, admission=admission)
        assert len(without.outcomes) == len(beside.outcomes) > 6000
        assert beside.missed <= without.missed
        assert beside.beside == 0
    assert without.missed


@pytest.mark.parametrize("full", [1.0, 1.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_shadows_that_run_as_full_load_begins_cost_no_answer_its_deadline(
    tmp_path: Path, full: float, seed: int
) -> None:
    loads = Rates((0.2 * SERVED_QPS,) * 4 + (full * SERVED_QPS,) * 4)
    without = played(tmp_path, loads, 0.0, seed=seed)
    beside = played(tmp_path, loads, 0.05, seed=seed)
    assert beside.missed <= without.missed
    assert bool(without.missed) is (full > 1.0)
    assert beside.beside > 30


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_below_full_load_shadows_run_and_cost_no_answer_its_deadline(
    tmp_path: Path, load: float
) -> None:
    without, beside = played(tmp_path, at(load), 0.0), played(tmp_path, at(load), 0.05)
    assert beside.missed <= without.missed
    asked = 0.05 * len(beside.outcomes)
    assert len(beside.ran) > (0.8 if load < 0.5 else 0.01) * asked


def test_without_a_share_or_a_second_variant_there_are_no_shadows(tmp_path: Path) -> None:
    assert not played(tmp_path, at(0.3), 0.0).ran
    policies = {"one": {"replicas": {"read/small": 3}}}
    assert not played(tmp_path, at(0.3), 0.5, policies=policies).ran
