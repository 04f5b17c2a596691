"""Simulations as functions that return records, and the export of the records."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import headrace
from benchmarks.small_cluster import a_cluster
from headrace.cli.main import run
from headrace.errors import ArrivalsError, PipelineError


@pytest.mark.thorough
def test_runs_are_records_by_policy_and_seed(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    found = headrace.simulate(
        file, policies=["static", "fast"], seeds=[1, 2], rate_qps=30, seconds=2
    )
    assert [(row["policy"], row["seed"]) for row in found] == [
        ("static", 1), ("static", 2), ("fast", 1), ("fast", 2),
    ]  # fmt: skip
    assert all(isinstance(value, (int, float, str, dict, list, type(None)))
               for row in found for value in row.values())  # fmt: skip


def test_queries_and_seconds_add_up_to_the_run(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    times = np.linspace(0.0, 3.0, 90)
    (row,) = headrace.simulate(file, arrivals=times)
    queries = headrace.simulated_queries(file, arrivals=times)
    seconds = headrace.simulated_seconds(file, arrivals=times)
    assert row["queries"] == len(queries) == 90
    assert sum(each["outcome"] == "answered" for each in queries) == row["answered"]
    created = sorted(each["created_s"] for each in queries)
    assert created == pytest.approx(times.tolist(), abs=0.05)
    assert sum(each["demand_qps"] for each in seconds) == pytest.approx(90, abs=2)


def test_devices_and_slo_of_the_file_are_replaced(tmp_path: Path) -> None:
    file = a_cluster(tmp_path, devices=6)
    few, many = (
        headrace.simulate(file, policies=["loki"], rate_qps=150, seconds=3, devices=count)[0]
        for count in (2, 6)
    )
    assert few["violation"] > many["violation"]
    (strict,) = headrace.simulate(file, rate_qps=30, seconds=2, slo_s=0.001)
    assert strict["violation"] > 0.9
    with pytest.raises(PipelineError, match="serve nothing"):
        headrace.simulate(file, rate_qps=1, seconds=1, devices=0)


def test_a_share_of_the_devices_time_is_replaced(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    whole, part = (
        headrace.simulate(file, rate_qps=30, seconds=2, share=share)[0] for share in (1.0, 0.25)
    )
    assert part["p50_ms"] > 2 * whole["p50_ms"]
    with pytest.raises(PipelineError, match="the share is 2; it must be above 0 and at most 1"):
        headrace.simulate(file, rate_qps=1, seconds=1, share=2.0)


@pytest.mark.thorough
def test_a_comparison_has_a_record_for_each_policy_and_figure(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    found = headrace.compare(
        file, policies=["static", "fast"], seeds=[1, 2, 3], rate_qps=30, seconds=2
    )
    by = {(row["policy"], row["figure"]): row for row in found}
    assert by["static", "yield"]["difference"] is None
    fast = by["fast", "yield"]
    assert fast["low"] <= fast["mean"] <= fast["high"]
    assert fast["difference"] == pytest.approx(fast["mean"] - by["static", "yield"]["mean"])


def test_plannable_demand_grows_with_devices_and_ends_where_plans_are_infeasible(
    tmp_path: Path,
) -> None:
    file = a_cluster(tmp_path, devices=4)
    rows = headrace.plannable_demand(file, policies=["loki"], devices=[2, 4])
    assert [row["devices"] for row in rows] == [2, 4]
    assert 0 < rows[0]["demand_qps"] < rows[1]["demand_qps"]
    (strict,) = headrace.plannable_demand(file, policies=["loki"], slos_s=[0.001])
    assert (strict["demand_qps"], strict["accuracy"]) == (0.0, None)


@pytest.mark.thorough
def test_the_capacity_from_python_is_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_cluster(tmp_path, devices=2)
    (row,) = headrace.capacity(file, policies=["static"], queries=200)
    assert run(["capacity", str(file), "--policy", "static", "--queries", "200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [row]
    assert row["capacity_qps"] > 0
    with pytest.raises(TypeError, match="no argument 'devices'; there are policies, seeds, mix"):
        headrace.capacity(file, devices=[2])


def test_invalid_arrivals_and_arguments_are_refused(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    with pytest.raises(ArrivalsError, match="must ascend"):
        headrace.simulate(file, arrivals=[2.0, 1.0])
    with pytest.raises(TypeError, match="no argument 'polices'"):
        headrace.simulate(file, polices=["static"], rate_qps=1, seconds=1)


@pytest.mark.thorough
def test_the_command_writes_queries_and_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, queries, seconds = a_cluster(tmp_path), tmp_path / "q.csv", tmp_path / "s.jsonl"
    line = ["simulate", str(file), "--rate", "30", "--seconds", "2", "--seed", "1", "2"]
    line += ["--queries-out", str(queries), "--seconds-out", str(seconds), "--json"]
    assert run([*line, "--devices", "4", "--slo", "300ms"]) == 0
    rows = json.loads(capsys.readouterr().out)
    with queries.open(newline="") as text:
        assert len(list(csv.DictReader(text))) == sum(row["queries"] for row in rows)
    assert {json.loads(each)["seed"] for each in seconds.read_text().splitlines()} == {1, 2}
    assert run([*line[:-1], "--queries-out", str(tmp_path / "q.xlsx")]) == 2
    assert "rows are written as .csv or .jsonl or .parquet" in capsys.readouterr().err
    assert run([*line, "--devices", "many"]) == 2
    assert "write 8, or cpu=4,cuda:0=2" in capsys.readouterr().err


@pytest.mark.thorough
def test_lists_are_swept_and_every_record_contains_its_parameters(tmp_path: Path) -> None:
    file = a_cluster(tmp_path)
    found = headrace.simulate(
        file, policies=["fast"], rate_qps=[30, 60], seconds=1, devices=[4, 6], slo_s=[0.001, 0.3]
    )
    assert [(row["rate_qps"], row["cluster_devices"], row["slo_ms"]) for row in found] == [
        (rate, devices, slo) for rate in (30, 60) for devices in (4, 6) for slo in (1.0, 300.0)
    ]
    one = headrace.simulate(file, policies=["fast"], rate_qps=60, seconds=1, devices=6, slo_s=0.3)
    assert {key: found[-1][key] for key in one[0] if not key.endswith("cpu_seconds")} == {
        key: value for key, value in one[0].items() if not key.endswith("cpu_seconds")
    }
    strict = headrace.simulated_queries(file, rate_qps=30, seconds=1, slo_s=[0.001, 0.3])
    assert {row["slo_ms"] for row in strict} == {1.0, 300.0}


def test_a_comparison_is_swept_in_python_and_at_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_cluster(tmp_path)
    found = headrace.compare(file, policies=["fast"], rate_qps=30, seconds=1, slo_s=[0.001, 0.3])
    violation = {row["slo_ms"]: row["mean"] for row in found if row["figure"] == "violation"}
    assert violation[1.0] > violation[300.0]
    line = ["compare", str(file), "--rate", "30", "--seconds", "1", "--policy", "fast"]
    assert run([*line, "--slo", "1ms", "300ms", "--json"]) == 0
    sweep = json.loads(capsys.readouterr().out)["sweep"]
    assert [each["slo_ms"] for each in sweep] == [1.0, 300.0]
    assert [each["policies"][0]["violation"]["mean"] for each in sweep] == list(violation.values())
    assert run([*line, "--slo", "1ms,300ms", "--html", str(tmp_path / "page.html")]) == 2
    assert "--html shows one comparison" in capsys.readouterr().err
    assert run([*line, "--devices", "4,4"]) == 2
    assert "devices 4 is given twice" in capsys.readouterr().err
