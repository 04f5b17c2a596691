"""The sweeps: how queries are changed, and what the page says of rows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.compass_model import Application, DrawnQuery, applications, draw
from benchmarks.papers.compass_plans import by_truth, near_optimal_s
from benchmarks.papers.compass_sweeps import Row, among, in_cloud, scenes, tightened
from benchmarks.papers.compass_sweeps_page import page

DATA = Path(__file__).parents[4] / "shared" / "data" / "planner"


@pytest.fixture(scope="module")
def apps() -> Mapping[str, Application]:
    if not DATA.exists():
        pytest.skip(f"the planner's data is not at {DATA}")
    return applications(DATA)


@pytest.fixture
def query(apps: Mapping[str, Application]) -> DrawnQuery:
    return draw(apps["SR"], 1, 0)[0]


def test_a_tighter_slo_leaves_fewer_plans(query: DrawnQuery) -> None:
    def plans(latency: float, accuracy: float) -> int:
        changed = tightened(query, latency, accuracy)
        count = changed.app.space.configuration_count
        return sum(changed.compliant(c) for c in range(count))

    assert plans(2.0, 0.7) > plans(1.1, 0.7) >= plans(1.1, 0.9)
    assert plans(2.0, 0.7) > plans(2.0, 0.9)


def test_in_the_cloud_every_stage_is_in_the_cloud(query: DrawnQuery) -> None:
    space = query.app.space
    (allowed,) = np.flatnonzero(in_cloud(query).deployment.fits.any(axis=0))
    assert {space.tiers[tier] for tier in space.placements[allowed]} == {"cloud"}


def test_a_larger_subset_has_the_smaller_ones(query: DrawnQuery) -> None:
    few, more = (
        set(np.flatnonzero(among(query, count, 0.3, seed=1).deployment.fits.any(axis=1)).tolist())
        for count in (15, 60)
    )
    assert few < more
    assert len(few) <= 15


def test_a_query_of_four_tiers_has_plans_on_the_fourth(apps: Mapping[str, Application]) -> None:
    (scene,) = (each for each in scenes("tiers") if len(each.tiers) == 4)
    three = draw(apps[scene.app], 1, 0)[0]
    four = draw(replace(apps[scene.app], tiers=scene.tiers), 1, 0)[0]
    space = four.app.space
    used = np.flatnonzero(four.deployment.fits.any(axis=0))
    assert space.tiers.index("near_edge") in space.placements[used]
    assert np.array_equal(three.accuracy, four.accuracy)
    assert four.latency.min() <= three.latency.min()


def test_a_near_optimal_plan_is_known_within_the_limit_or_not_at_all(query: DrawnQuery) -> None:
    found = near_optimal_s(query, 60.0, ())
    assert by_truth(query).plans
    assert found is None or 0.0 < found <= 60.0
    assert near_optimal_s(query, 1e-6, ()) is None


def test_the_page_tells_factors_and_sessions_without_a_plan() -> None:
    def row(method: str, seed: int, goodput: float, pace: float = 1.0) -> Row:
        return Row(
            sweep="load", point="load 1", app="VT", seed=seed, method=method, pace=pace,
            planned=0.5, served=0.25, goodput=goodput,
        )  # fmt: skip

    rows = [
        each
        for seed, theirs in ((0, 10.0), (1, 5.0))
        for each in (row("compass", seed, 20.0), row("vulcan-like", seed, theirs))
    ]
    rows.append(row("vulcan-like", 2, 0.0))
    rows.append(row("compass", 2, 20.0))
    text = page(rows, 12)
    assert "| load 1 | 3.00x (2.00 to 4.00), 1 seeds with none of theirs |" in text
    assert "20.0 (50, 25 %)" in text
