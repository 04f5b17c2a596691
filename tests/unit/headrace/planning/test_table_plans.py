"""``headrace plan`` with policies that choose a model per batch."""

import json
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.dry_run import PlanRequest
from headrace.planning.table_plans import planned_tables
from profiles.measurements import Entry, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable

OPERATOR = "operators.models.python:Python"
MODELS = {"fast": (0.6, (0.02, 0.03, 0.04)), "good": (0.9, (0.045, 0.08, 0.11))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a pipeline of one task whose two variants are profiled for emulated devices."""
    entries = tuple(
        Entry(
            task="read",
            variant=name,
            device="emulated",
            operator=OPERATOR,
            weights_sha256="",
            load_s=0.0,
            memory_bytes=0,
            accuracy=accuracy,
            children={},
            latency=tuple(
                Latency(batch=b, repeats=1, mean_s=s, p50_s=s, p90_s=s, p95_s=s, p99_s=s)
                for b, s in enumerate(latency, start=1)
            ),
        )
        for name, (accuracy, latency) in MODELS.items()
    )
    (tmp_path / "profile.json").write_text(profile_text(ProfileTable("small", entries)))
    variant = f'{{operator: "{OPERATOR}", arguments: {{function: "builtins:bytes"}}, batch: 3}}'
    pipeline = tmp_path / "small.yaml"
    pipeline.write_text(
        f"name: small\nslo: 100ms\ntasks:\n  read:\n    variants:\n      fast: {variant}\n"
        f"      good: {variant}\ncluster: {{devices: {{emulated: 4}}}}\nprofiles: [profile.json]\n"
    )
    return pipeline


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_line_for_each_demand_with_the_keys_that_are_promised(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["plan", str(path), "--policy", "ramsis-paper", "--demand", "20,60", "--json"])
    first, second = lines(capsys.readouterr().out)
    assert code == 0
    assert list(first) == [
        "policy", "demand", "feasible", "expected_accuracy", "expected_violation", "states",
        "actions", "solver",
    ]  # fmt: skip
    assert list(first["solver"]) == ["name", "seconds", "wall_seconds", "sweeps"]  # type: ignore[call-overload]
    assert (first["policy"], first["demand"], second["demand"]) == ("ramsis-paper", 20.0, 60.0)
    assert (first["states"], first["actions"]) == (4 * 101 + 1, 6)


def test_a_demand_above_capacity_prints_its_policy_and_ends_with_3(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--demand", "9000", "--devices", "2", "--json", "--table"]
    code = run(["plan", str(path), "--policy", "ramsis", *options])
    (line,) = lines(capsys.readouterr().out)
    assert code == 3
    assert line["feasible"] is False
    decisions = line["decisions"]
    assert isinstance(decisions, list)
    assert len(decisions) == 3 * 101 + 1
    assert decisions[0] == [1, 0, "fast", 1]
    assert decisions[-1] == [4, 0, "fast", 4]


def test_the_devices_and_the_slo_asked_for_stand_in_for_the_file_s(path: Path) -> None:
    file = read_pipeline_file(path)
    (made,) = planned_tables(
        file, PlanRequest(demands_qps=(10.0,), policy="ramsis", devices=7, slo_s=0.2)
    )
    assert (made.workers, made.slo_s, made.plan.table.levels_s[-1]) == (7, 0.2, 0.2)


def test_a_violation_budget_is_kept(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policy", "ramsis", "--demand", "160", "--json"]
    run(["plan", str(path), *options])
    run(["plan", str(path), *options, "--violation", "0.001"])
    free, kept = lines(capsys.readouterr().out)
    assert kept["expected_violation"] <= 0.001 < free["expected_violation"]  # type: ignore[operator]


def test_a_person_reads_what_a_table_promises_and_what_it_decides(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["plan", str(path), "--policy", "ramsis", "--demand", "4", "--table"])
    out = capsys.readouterr().out
    assert "4 workers at 4 queries/s, SLO 100 ms, policy ramsis: feasible" in out
    assert "1  0 ms: 1 x fast, 45 ms: 1 x good" in out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--slo", "15ms"], 3, "takes 20 ms for one query and the SLO is 15 ms; raise the SLO"),
        (["--comm", "1ms"], 2, "lower --slo by what hops take"),
        (["--solver", "cbc"], 2, "knows no --solver"),
        (["--world", "none"], 2, "--world has no effect on tables"),
    ],
)
def test_unplannable_request_is_reported_in_one_sentence(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    found = run(["plan", str(path), "--policy", "ramsis", "--demand", "10", *options])
    told = capsys.readouterr()
    assert (found, told.out) == (code, "")
    assert message in told.err


@pytest.mark.parametrize(
    ("line", "added", "code", "message"),
    [
        ("  read:\n", "    replicas: {most: 2}\n", 0, "2 workers at 10 queries/s, SLO 100 ms"),
        ("slo: 100ms\n", "slo_classes: {gold: 50ms}\n", 0, "4 workers at 10 queries/s, SLO 50 ms"),
        ("slo: 100ms\n", "slo_classes: {bulk: 1s}\n", 0, "4 workers at 10 queries/s, SLO 100 ms"),
        ("{emulated: 4}", ", memory: {emulated: 1MB}", 3, "is to hold 2 variants of 'read', which"),
    ],
)
def test_the_table_is_for_the_workers_the_memory_and_the_tightest_class_of_the_file(
    path: Path, capsys: pytest.CaptureFixture[str], line: str, added: str, code: int, message: str
) -> None:
    path.write_text(path.read_text().replace(line, line + added))
    profile = path.parent / "profile.json"
    profile.write_text(profile.read_text().replace('"memory_bytes": 0', '"memory_bytes": 900000'))
    assert run(["plan", str(path), "--policy", "ramsis", "--demand", "10"]) == code
    told = capsys.readouterr()
    assert message in told.out + told.err


def test_a_pipeline_of_several_tasks_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    postcode = Path(__file__).parents[4] / "examples/postcode/pipeline.yaml"
    assert run(["plan", str(postcode), "--policy", "ramsis", "--demand", "10"]) == 2
    assert "plans for one task, and the pipeline has locate, read" in capsys.readouterr().err


def test_a_table_of_another_policy_is_refused(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(path), "--policy", "loki", "--demand", "10", "--table"]) == 2
    assert "are for ramsis and its kin" in capsys.readouterr().err
