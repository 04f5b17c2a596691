"""The sweeps: how queries change, and what the page reports for rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.compass_compare import run_baseline
from benchmarks.papers.compass_model import Application, DrawnQuery, applications, draw
from benchmarks.papers.compass_online import by_first_come, by_greedy
from benchmarks.papers.compass_plans import (
    BaselineSearch,
    OurSearch,
    Planned,
    by_truth,
    by_truth_on_whole_gpus,
    near_optimal_s,
    until,
)
from benchmarks.papers.compass_search_sweeps import searches, with_larger_analysers
from benchmarks.papers.compass_sweep_rows import Row
from benchmarks.papers.compass_sweeps import SCENES, among, in_cloud, main, tightened
from benchmarks.papers.compass_sweeps_page import few_seeds, page
from control.policies.compass.schedule.instance import (
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)

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


def test_slos_are_easy_or_hard_in_one_objective_at_a_time() -> None:
    assert [scene.point for scene in SCENES["slo"]()] == [
        "latency easy", "latency hard", "both medium", "accuracy easy", "accuracy hard",
    ]  # fmt: skip


def test_in_cloud_keeps_only_plans_entirely_in_the_cloud(query: DrawnQuery) -> None:
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
    (scene,) = (each for each in SCENES["tiers"]() if len(each.tiers) == 4)
    three = draw(apps[scene.app], 1, 0)[0]
    four = draw(replace(apps[scene.app], tiers=scene.tiers), 1, 0)[0]
    space = four.app.space
    used = np.flatnonzero(four.deployment.fits.any(axis=0))
    assert space.tiers.index("near_edge") in space.placements[used]
    assert np.array_equal(three.accuracy, four.accuracy)
    assert four.latency.min() <= three.latency.min()


def test_near_optimal_plan_is_found_within_the_time_limit_or_is_none(query: DrawnQuery) -> None:
    found = near_optimal_s(query, 60.0, ())
    assert by_truth(query).plans
    assert found is None or 0.0 < found <= 60.0
    assert near_optimal_s(query, 1e-6, ()) is None


def test_plans_become_cheaper_with_time_and_never_cheaper_than_the_cheapest(
    query: DrawnQuery,
) -> None:
    least = by_truth(query).plans[0].cost
    both = BaselineSearch("vulcan-like", query).costs(30.0)
    found = [list(each) for each in (OurSearch(query).costs(5.0), *both)]
    for costs in found:
        assert costs
        assert min(usd for _, usd in costs) >= least - 1e-9
        first, half = until(costs, np.inf), until(costs, 1.5 * least)
        assert first is not None
        assert half is None or first <= half
    _, shared, whole = found
    assert min(usd for _, usd in shared) <= min(usd for _, usd in whole)
    assert [s for s, _ in whole] == sorted(s for s, _ in whole)


def test_until_is_the_first_time_of_a_cost_or_none() -> None:
    costs = [(1.0, 8.0), (2.0, 3.0), (3.0, 2.0)]
    assert [until(costs, most) for most in (9.0, 3.0, 2.5, 1.0)] == [1.0, 2.0, 3.0, None]


def test_plans_on_whole_gpus_cost_no_less_than_those_on_shares(query: DrawnQuery) -> None:
    shared, whole = by_truth(query), by_truth_on_whole_gpus(query)
    assert 0 < shared.plans[0].cost <= whole.plans[0].cost
    assert all(item.quarters == 4 for plan in whole.plans for item in plan.items)
    assert all(whole.complies)


def test_page_shows_the_time_until_plans_are_cheap_and_their_cost_at_the_end() -> None:
    def rows(method: str, hours: tuple[float | None, ...], usd: float) -> list[Row]:
        seconds = tuple(None if each is None else 3600 * each for each in hours)
        timed = Row(
            sweep="costs", point="ACG, 1.1 times", app="ACG", seed=0, method=method, seconds=seconds
        )
        return [
            timed, replace(timed, point="ACG", seconds=(), planned=0.5, usd_per_h=usd),
        ]  # fmt: skip

    text = page([*rows("compass", (1.0, 1.0), 2.0), *rows("vulcan-like", (2.0, None), 3.0)], 2)
    assert "| ACG, 1.1 times | 1.00 GPU-h (0 %) | 6.00 GPU-h (50 %) |" in text
    assert "| ACG, 1.1 times | 6.00x (6.00 to 6.00) |" in text
    assert "| ACG | 2.00 (50 %) | 3.00 (50 %) |" in text
    assert "| ACG | 1.50x (1.50 to 1.50) **not reproduced** |" in text


def test_page_shows_factors_and_sessions_without_a_plan() -> None:
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
    assert "| load 1 | 4.00x (2.00 to inf) |" in text  # 60 / 15; inf: draws of the third seed
    assert "20.0 ± 0.0 (50, 25 %)" in text


def test_page_says_that_a_bootstrap_over_three_seeds_is_no_95_percent_interval() -> None:
    assert "cover some 75 % at most, not 95 %" in few_seeds(3)
    assert few_seeds(6) == ""
    rows = [
        Row(sweep=sweep, point="here", app="VT", seed=seed, method="compass", goodput=1.0)
        for sweep in ("load", "searches")
        for seed in range(3)
    ]
    shared = [replace(row, app="SR", figures={"profiling": 0.5}) for row in rows[3:]]
    load, _, searches_ = page([*rows[:3], *shared], 12).partition("## Committees")
    assert "Seeds: 3 (20 required). **The intervals of the factors cover" in load
    assert "cover some" not in searches_


def test_page_reports_a_component_that_gains_less_than_the_papers_claim() -> None:
    rows = [
        Row(
            sweep="pieces",
            point="VT",
            app="VT",
            seed=seed,
            method=method,
            pace=3.0,
            goodput=goodput,
            figures={"cloud": 0.5, "edge": 0.25},
        )
        for seed in range(3)
        for method, goodput in (
            ("compass", 60.0),
            ("no profiler", 30.0),
            ("no scheduler", 50.0),
            ("videostorm-like, first come", 25.0),
        )
    ]
    text = page(rows, 12)
    told = "2.00x (2.00 to 2.00) | 1.20x (1.20 to 1.20) **not reproduced** | 2.40x (2.40 to 2.40)"
    assert f"| VT | {told} **not reproduced** |" in text
    assert "| VT | cloud 50 %, edge 25 % |" in text


def test_page_compares_sessions_planned_alone_with_the_oracle() -> None:
    goodputs = {"all plans known": 30.0, "compass": 25.0, "all plans known, first come": 20.0}
    rows = [
        Row(sweep="alone", point="VT", app="VT", seed=0, method=method, pace=3.0, goodput=goodput)
        for method, goodput in goodputs.items()
    ]
    assert "| VT | 1.20x (1.20 to 1.20) | 1.50x (1.50 to 1.50) |" in page(rows, 12)


def test_page_reports_how_a_sweep_differs_from_the_papers() -> None:
    def row(
        sweep: str, point: str, method: str, *, goodput: float = 0.0, usd_per_h: float | None = None
    ) -> Row:
        return Row(
            sweep=sweep, point=point, app="VT", seed=0, method=method, goodput=goodput,
            usd_per_h=usd_per_h,
        )  # fmt: skip

    rows = [
        row("load", "load 0.25", "compass", goodput=10.0),
        row("load", "load 0.25", "vulcan-like", goodput=10.0),
        row("load", "load 2", "compass", goodput=30.0),
        row("load", "load 2", "vulcan-like", goodput=10.0),
        row("knobs", "15 configurations, 30%", "compass", usd_per_h=1.0),
        row("knobs", "15 configurations, 30%", "vulcan-like", usd_per_h=4.0),
        Row(sweep="optimal", point="VT", app="VT", seed=0, method="compass", seconds=(1.0, None)),
        Row(sweep="optimal", point="VT", app="VT", seed=1, method="compass", seconds=(1.0, 2.0)),
    ]
    text = page(rows, 2)
    assert "is largest:\n\n- over `vulcan-like` at load 2 **not reproduced**\n" in text
    assert "`vulcan-like`: 0.25, at 15 configurations, 30% **not reproduced**." in text
    assert "| VT | 4 | 2.0 | inf **not reproduced** | 75.0 ± " in text
    assert "Seeds: 2 (20 required)." in text


def test_sessions_are_served_in_arrival_order_without_the_scheduler() -> None:
    plans = {
        name: PlanOption((PlanItem("cloud", size),), float(size))
        for name, size in (("quarter", 1), ("whole", 4))
    }
    sessions = (
        Candidate("large", 1.0, (plans["whole"],)),
        *(Candidate(n, 1.0, (plans["whole"], plans["quarter"])) for n in range(4)),
    )
    instance = Instance(tiers={"cloud": Tier(1, 5.0)}, sessions=sessions)
    assert by_first_come(instance) == (0, None, None, None, None)
    assert by_greedy(instance) == (None, 1, 1, 1, 1)


def test_larger_analysers_make_the_papers_space(apps: Mapping[str, Application]) -> None:
    larger = with_larger_analysers(apps["ACG"])
    assert (apps["ACG"].space.plans, larger.space.plans) == (972, 1296)
    (largest,) = np.flatnonzero(larger.space.configurations[:, 0] == 7)[:1]
    fits = draw(larger, 1, 0)[0].deployment.fits[largest]
    tier = larger.space.placements[:, 1]  # of the analyser
    assert set(tier[fits].tolist()) == {larger.space.tiers.index("cloud")}


def test_searches_report_committee_disagreement_and_profiling_shares(
    apps: Mapping[str, Application],
) -> None:
    (row,) = searches({"ACG": apps["ACG"]}, 0, 1)
    assert set(row.figures) == {
        "first voter differs", "voters differ", "voters shared", "profiling",
        "profiling, measured",
    }  # fmt: skip
    assert all(0.0 <= share <= 1.0 for share in row.figures.values())
    assert row.figures["profiling"] > 0.99


def test_our_profiler_finds_plans_for_more_queries_in_the_same_time(
    apps: Mapping[str, Application],
) -> None:
    queries, limit_s = draw(apps["ACG"], 4, 0), 3600.0

    def planned(plan: Callable[[DrawnQuery], Planned]) -> int:
        return sum(bool(plan(query).plans) for query in queries)

    def vulcan(*, profiler: bool) -> int:
        return planned(
            lambda q: BaselineSearch("vulcan-like", q, profiler=profiler).until(limit_s)[0]
        )

    def ours(*, profiler: bool) -> int:
        return planned(lambda q: OurSearch(q, profiler=profiler).until(limit_s))

    assert vulcan(profiler=True) > vulcan(profiler=False)
    assert ours(profiler=True) > ours(profiler=False)


def test_a_folder_without_rows_leaves_the_page_as_it_is(tmp_path: Path) -> None:
    shown = tmp_path / "page.md"
    shown.write_text("as it was")
    assert main([str(tmp_path), str(tmp_path), "--again", "--page", str(shown)]) == 1
    assert shown.read_text() == "as it was"


def test_a_search_that_went_on_longer_has_the_plans_of_a_shorter_limit(query: DrawnQuery) -> None:
    limits = (1.0, 4.0, 12.0)
    ours, rival = OurSearch(query), BaselineSearch("vulcan-like", query)
    ours.until(30.0), rival.until(30.0)
    for limit_s in limits:
        assert ours.until(limit_s) == OurSearch(query).until(limit_s)
        assert rival.until(limit_s) == BaselineSearch("vulcan-like", query).until(limit_s)
        long, short = ours.past(limit_s), OurSearch(query).past(limit_s)
        assert long.configuration.tolist() == short.configuration.tolist()
    assert rival.first_plan_s == run_baseline("vulcan-like", query).seconds


def test_page_shows_what_moving_sessions_would_gain_and_the_costs_of_clusters() -> None:
    def row(sweep: str, method: str, goodput: float, usd_per_h: float | None = None) -> Row:
        return Row(
            sweep=sweep, point="large-v1" if usd_per_h else "VT", app="VT", seed=0, method=method,
            pace=3.0, goodput=goodput, usd_per_h=usd_per_h,
        )  # fmt: skip

    text = page(
        [
            row("moves", "compass", 40.0), row("moves", "compass, replanned", 42.0),
            row("clusters", "compass", 40.0, 10.0), row("clusters", "vulcan-like", 20.0, 35.0),
        ],
        12,
    )  # fmt: skip
    assert "| VT | 1.05x (1.05 to 1.05) |" in text
    assert "| large-v1 | 2.00x (2.00 to 2.00) **not reproduced** |" in text
    assert "| large-v1 | 10.00 | 35.00 |" in text
    assert "| large-v1 | 3.50x (3.50 to 3.50) |" in text
