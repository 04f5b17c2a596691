"""The Compass benchmark's files: valid pipelines, searchable recordings, solvable instances."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scheduling
from benchmarks.papers.compass import CLUSTERS, write
from benchmarks.papers.compass_compare import (
    BASELINES,
    METHODS,
    Method,
    Row,
    run_baseline,
    searched,
)
from benchmarks.papers.compass_model import applications, draw
from benchmarks.papers.compass_page import (
    ALONE,
    BEST,
    RIVALS,
    SURROGATE,
    _factors,
    _schedules,
    page,
)
from benchmarks.papers.sources import DataError
from benchmarks.scheduling import ScheduleRow
from control.policies.compass.search.placement_factors import session_deployment
from control.policies.compass.search.sequential_test import StopRule
from headrace.cli.main import run


def option(name: str, seconds: float, quality: float) -> dict[str, Any]:
    return {"option": name, "a100_seconds": seconds, "quality": quality, "model_gb": 1}


def an_app(llm: bool) -> dict[str, Any]:
    return {
        "sample_sd": None if llm else 0.2, "n_fixed_samples": 120, "raw_input_mb": 0.2,
        "groups": 2, "profile_parallelism": 10,
        "ops": [
            {"name": "sample", "cpu_stage": True, "llm": False,
             "knobs": [{"knob": "size", "options": [option("s", 0.001, 0.8),
                                                    option("l", 0.002, 1)]}],
             "output_mb": [0.05, 0.1], "output_depends_on": "size"},
            {"name": "answer", "cpu_stage": False, "llm": llm,
             "knobs": [{"knob": "net", "options": [option("a", 0.01, 0.7), option("b", 0.03, 0.9),
                                                   option("c", 0.06, 1)]}],
             "output_mb": [0.001], "output_depends_on": None,
             "time_multipliers": [{"knob": "size", "factors": [0.5, 1]}]},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planner")
    speeds = {"cloud": (1.0, 5.0), "near": (0.45, 2.0), "near_edge": (0.2, 1.3)}
    tiers: dict[str, Any] = {
        name: {"speed": speed, "usd_per_gpu_h": price, "mem_gb": 16}
        for name, (speed, price) in speeds.items()
    }
    tiers["edge"] = [{"speed": 0.1, "mem_gb": 6, "probability": 1.0}]
    model = {
        "tiers": tiers,
        "network": {"edge_upload_mbps": 50, "other_mbps": 500, "t0_s": 0.01},
        "apps": {"SR": an_app(llm=False), "ACG": an_app(llm=True)},
    }
    (folder / "benchmark_model.json").write_text(json.dumps(model))
    return folder


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    written = write(data, folder)
    assert {path.name for path in written} == {
        "sr.yaml", "sr.truth.json", "acg.yaml", "acg.truth.json",
        *(f"{name}.sessions.json" for name in CLUSTERS),
    }  # fmt: skip
    return folder


@pytest.mark.parametrize("app", ["sr", "acg"])
def test_pipelines_are_valid_and_their_recordings_searched(
    out: Path, capsys: pytest.CaptureFixture[str], app: str
) -> None:
    assert run(["validate", str(out / f"{app}.yaml"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["space"]
    assert counts == {"configurations": 6, "placements": 9, "plans": 54}
    words = [str(out / f"{app}.yaml"), "--recorded", str(out / f"{app}.truth.json"), "--json"]
    assert run(["search", *words]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["space"] == counts


def test_written_files_hold_the_values_drawn_by_the_model(data: Path, out: Path) -> None:
    from headrace.config.pipeline_file import read_pipeline_file
    from headrace.planning.recorded_truth import read_truth

    app = applications(data)["SR"]
    query = draw(app, 1, 0)[0]
    sessions = read_pipeline_file(out / "sr.yaml").sessions
    assert sessions is not None
    truth = read_truth(out / "sr.truth.json", sessions.space)
    found = session_deployment(sessions, truth.memory).latency(truth.seconds, truth.sent)
    modelled = query.deployment.latency(query.seconds, app.sent)
    np.testing.assert_allclose(found, modelled, rtol=1e-6)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_instances_are_scheduled(
    out: Path, capsys: pytest.CaptureFixture[str], cluster: str
) -> None:
    assert run(["schedule", "--instance", str(out / f"{cluster}.sessions.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["served"] <= found["sessions"] == 400
    assert found["ratio"] > 0.9


@pytest.mark.thorough
def test_every_method_and_baseline_ends_with_a_row_of_the_page(data: Path) -> None:
    rows = []
    for name, app in applications(data).items():
        rule = StopRule(most=app.most_samples)
        history = [searched(query, Method(), (), rule)[1] for query in draw(app, 3, 1)]
        for query in draw(app, 3, 2):
            for method, ours in METHODS.items():
                past = history if ours.history else []
                rows.append(searched(query, ours, past, rule, method)[0])
            rows += [run_baseline(method, query).row(method) for method in BASELINES]
        assert {row.app for row in rows[-9:]} == {name}
    renamed = [*rows, *(replace(row, app="DVC") for row in rows[:27])]
    text = page(renamed, list(scheduling.rows([40], 1)))
    assert "Every figure here is modelled" in text
    assert "| goodput | 40 | compass | " in text
    assert "| cost | 40 | first-come | " in text
    assert text.count("\n| compass |") == 3


@pytest.mark.parametrize(("cpu_s", "asked"), [(0.4, "met"), (0.6, "**missed**")])
def test_page_shows_whether_the_requested_schedule_was_reached(cpu_s: float, asked: str) -> None:
    row = ScheduleRow(
        objective="goodput", sessions=10_000, items=4, weights="1", scheduler="compass",
        ratio=0.9992, cpu_s=cpu_s,
    )  # fmt: skip
    line = f"| goodput | 10,000 | compass | 0.99920 | {cpu_s:.3f} | 0.999, 0.5 s: {asked} |"
    assert line in "\n".join(_schedules([row]))


def test_page_tells_where_composed_latencies_find_a_plan_sooner() -> None:
    surrogate_s = {"SR": (0.5, 0.5), "DVC": (0.5, 2.0), "ACG": (2.0, 2.0)}
    rows = [
        Row(
            app=app, method=method, query=query, steps=2, found=True, false=False, propose_ms=1.0,
            samples=0.5, seconds=surrogate_s[app][query] if method == SURROGATE else 1.0,
        )
        for app in surrogate_s
        for method in (*METHODS, *BASELINES)
        for query in (0, 1)
    ]  # fmt: skip
    assert ALONE in METHODS
    text = page(rows, [])
    assert "**Composed latencies find the first plan sooner in ACG, later in SR**" in text
    assert "| 0.50x (0.50 to 0.50) | 1.25x (0.50 to 2.00) | 2.00x (2.00 to 2.00) |" in text


def test_page_tells_where_an_interval_reaches_below_a_required_factor() -> None:
    rows = [
        Row(
            app="SR", method=method, query=query, steps=2, found=True, false=False, propose_ms=1.0,
            samples=0.5, seconds=seconds[query] if method in RIVALS else 1.0,
        )
        for method in (BEST, ALONE, *RIVALS)
        for query, seconds in enumerate([(4.0, 9.0)] * 2)
    ]  # fmt: skip
    _, table = _factors(rows, ["SR"])
    assert [line.rpartition("x (")[2] for line in table.splitlines()[2:]] == [
        "4.0 to 9.0) met by the mean only |", "4.0 to 9.0) |",
        "4.0 to 9.0) **missed** |", "4.0 to 9.0) |",
    ]  # fmt: skip


def test_equal_seeds_draw_equal_queries(data: Path) -> None:
    app = applications(data)["SR"]
    one, other = draw(app, 4, 9)[3], draw(app, 4, 9)[3]
    assert one.slo == other.slo
    np.testing.assert_array_equal(one.scores(2, 50), other.scores(2, 50))
    np.testing.assert_array_equal(one.scores(2, 50), one.scores(2, 100)[:50])


def test_missing_data_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"benchmark_model\.json holds no model"):
        write(tmp_path, tmp_path)
