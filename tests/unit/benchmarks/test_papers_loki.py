"""benchmarks/papers/loki_compare.py and loki_page.py: scenes, arrivals, order of runs, the page."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.loki import TRACES, write
from benchmarks.papers.loki_compare import (
    FIRST,
    MAIN,
    SCENES,
    WITH_RULES,
    Row,
    arrivals,
    compare,
    recorded,
    runs_in_order,
)
from benchmarks.papers.loki_page import AUTHORS, RECORDED, TITLES, Played, page
from control.policies import POLICIES
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.machine import machine
from headrace.simulation.static_best import NAME

DATA = Path(__file__).parents[4] / "shared" / "data" / "loki"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"Loki's data is not at {DATA}")


def a_row(policy: str = "loki", seed: int = 1, scene: str = "traffic", **changed: float) -> Row:
    figures = {
        "violation": 0.1, "branch_violation": 0.05, "accuracy": 0.9, "devices": 19.0,
        "refused": 0.0, "dropped": 0.1, "late": 0.0, "cpu_s": 1.0,
    }  # fmt: skip
    return Row(
        scene=scene, policy=policy, seed=seed, commit="abc", queries=100, **{**figures, **changed}
    )


@needs_data
def test_every_scene_names_an_existing_pipeline_trace_and_policies(tmp_path: Path) -> None:
    write(DATA, tmp_path)
    for scene in SCENES.values():
        file = read_pipeline_file(tmp_path / f"{scene.pipeline}-varying.yaml")
        names = [WITH_RULES.get(name, name) for name in scene.policies if name != NAME]
        with_policies(file, names)
        assert scene.trace in TRACES
        assert (tmp_path / f"{scene.trace}-arrivals.txt.gz").exists()


@needs_data
def test_a_seed_draws_as_many_arrivals_as_were_recorded_on_average(tmp_path: Path) -> None:
    write(DATA, tmp_path)
    rng = np.random.default_rng(1)
    found = arrivals(tmp_path, "traffic-288s", 3, drawn=True).drawn(rng)
    same = arrivals(tmp_path, "traffic-288s", 3, drawn=False).drawn(rng)
    assert abs(len(found) - len(same)) < 4 * len(same) ** 0.5
    assert not np.array_equal(found, same)


@needs_data
def test_service_times_vary_by_the_measured_quantiles_without_the_cold_run(tmp_path: Path) -> None:
    write(DATA, tmp_path)
    profile = json.loads((tmp_path / "traffic-varying.profile.json").read_text())
    rows = [row for entry in profile["entries"] for row in entry["latency"]]
    assert any(row["p95_s"] > row["p50_s"] for row in rows)
    assert all(row["mean_s"] <= row["p95_s"] == row["p99_s"] for row in rows)


def test_the_baselines_with_rules_differ_from_loki_in_planning_and_routing_only() -> None:
    ours = POLICIES["loki"].usual
    for name, text in WITH_RULES.items():
        given = dict(option.split("=") for option in text.split(":")[1:])
        assert given["estimator"] == ours.estimator, name
        assert given["dropping"] == ours.dropping
        assert (given["latency"], given["rate"]) == (ours.latency, ours.rate)
        assert (given["paced"] == "true") is ours.paced


def test_runs_are_ordered_by_importance_without_repeats() -> None:
    order = list(runs_in_order(list(SCENES), 2))
    first = [key for key in order if key[0] in MAIN and key[1] in FIRST]
    assert order[: len(first)] == first
    assert {seed for _, _, seed in order[: len(first) // 2]} == {1}
    assert len(set(order)) == len(order)


def test_recorded_run_is_not_repeated(tmp_path: Path) -> None:
    scene = "traffic-dropping"
    for policy in SCENES[scene].policies:
        recorded(tmp_path).append(a_row(policy, scene=scene))
    assert list(compare(tmp_path, [scene], 1)) == []


def test_differences_are_paired_over_the_seeds_that_both_policies_have() -> None:
    rows = [
        a_row(seed=1, violation=0.10), a_row(seed=2, violation=0.30), a_row(seed=3, violation=0.9),
        a_row("proteus", 1, violation=0.15), a_row("proteus", 2, violation=0.35),
    ]  # fmt: skip
    found = Played(rows).paired(
        ("traffic", "proteus"), ("traffic", "loki"), lambda row: row.violation
    )
    assert found.value == pytest.approx(0.05)
    assert found.count == 2


def test_page_shows_figures_differences_and_missing_runs() -> None:
    rows = [
        a_row(seed=seed, accuracy=0.9 + seed / 1000, scene=scene)
        for seed in (1, 2, 3) for scene in ("traffic", "social-recorded")
    ]  # fmt: skip
    rows += [a_row("proteus", seed, violation=0.2 + seed / 1000) for seed in (1, 2, 3)]
    text = page(rows)
    assert "runs at commit abc; page written " in text
    assert machine() not in text  # the runs may be of another one
    assert "| `loki` | 10.00 ± 0.00 | 5.00 ± 0.00 | 90.20 ± 0.25 |" in text
    assert "| `proteus` | **+10.20 ± 0.25** |" in text
    assert "- traffic: `inferline` (0)" in text
    assert "| authors: Proteus | 29.8 | 29.8 | 82.22 |" in text


def test_every_scene_is_shown_and_the_authors_figures_stand_beside_the_recorded_ones() -> None:
    shown = {*TITLES, *RECORDED, "traffic-rules", "traffic-other", "traffic-dropping"}
    assert shown == set(SCENES)
    assert set(AUTHORS) == set(RECORDED)
    assert all(SCENES[name].recorded for name in RECORDED)
