"""``headrace simulate``: its output, its reproducibility by seed, and refused arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.arrivals.arrival_processes import Renewal
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated

KEYS = [
    "policy", "seed", "queries", "answered", "late", "dropped", "failed", "refused", "lost",
    "violation", "branch_violation", "accuracy", "accuracy_leaf_mean", "devices_mean", "p50_ms",
    "p95_ms", "p99_ms", "stage_queries", "events", "cpu_seconds", "solve_cpu_seconds",
]  # fmt: skip
OUTCOMES = KEYS[3:9]
MEASURED = ("cpu_seconds", "solve_cpu_seconds")  # values that differ between runs

Row = dict[str, Any]


def simulate(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[Row]:
    code = run(["simulate", *map(str, arguments), "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    found: list[Row] = json.loads(told.out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["simulate", *map(str, arguments)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def without_cpu(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if k not in MEASURED} for row in rows]


def test_a_run_has_the_fixed_keys_and_outcomes_that_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = simulate(capsys, a_cluster(tmp_path), "--arrivals", some_arrivals(tmp_path))
    assert list(row) == KEYS
    assert (row["policy"], row["seed"], row["queries"]) == ("static", 0, 600)
    assert sum(row[name] for name in OUTCOMES) == row["queries"]
    assert row["violation"] == round(1 - row["answered"] / 600, 6)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] < 1500
    assert row["devices_mean"] == 4.0


def test_with_little_to_do_all_is_answered_at_the_profiled_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = simulate(capsys, a_cluster(tmp_path), "--arrivals", some_arrivals(tmp_path, 10.0))
    assert (row["answered"], row["violation"], row["branch_violation"]) == (100, 0.0, 0.0)
    assert row["accuracy"] == row["accuracy_leaf_mean"] == pytest.approx(0.95 * 0.95)
    # 100 at the first task, and about two children each at the second.
    assert abs(row["stage_queries"] - 300) < 4 * (100 * 0.5) ** 0.5


@pytest.mark.thorough
def test_every_policy_runs_with_every_seed_on_the_same_arrivals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rates = a_cluster(tmp_path), tmp_path / "rates.csv"
    rates.write_text("second,qps\n0,20\n1,40\n2,20\n")
    rows = simulate(
        capsys, file, "--arrivals", rates, "--policy", "static", "fast", "--seed", "3", "4"
    )
    assert [(r["policy"], r["seed"]) for r in rows] == [
        ("static", 3), ("static", 4), ("fast", 3), ("fast", 4),
    ]  # fmt: skip
    assert [r["queries"] for r in rows[:2]] == [r["queries"] for r in rows[2:]]
    assert rows[0]["queries"] != rows[1]["queries"]
    alone = simulate(capsys, file, "--arrivals", rates, "--policy", "fast", "--seed", "4")
    assert without_cpu(alone) == without_cpu(rows[3:])


@pytest.mark.thorough
def test_another_process_with_another_hash_seed_gives_the_same_figures(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headrace", "simulate", str(a_cluster(tmp_path)), "--rate", "80",
        "--seconds", "5", "--burst", "4", "--seed", "7", "--random-faults", "4", "--json",
    ]  # fmt: skip

    def figures(hash_seed: str) -> list[Row]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return without_cpu(json.loads(done.stdout))

    assert figures("1") == figures("2")


def test_warm_up_is_reported_and_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path)
    (row,) = simulate(capsys, file, "--arrivals", arrivals, "--warm-up", "2s")
    assert (row["queries"], row["warm_up_s"], list(row)[:-1]) == (480, 2.0, KEYS)
    assert sum(row[name] for name in OUTCOMES) == 480
    assert run(["simulate", str(file), "--arrivals", str(arrivals), "--warm-up", "2s"]) == 0
    assert capsys.readouterr().out.endswith("the first 2 s are not counted\n")


def test_nothing_is_counted_of_arrivals_within_the_warm_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counts of the warm-up used to stay, less the queries, as a negative number of losses."""
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 10.0)
    (row,) = simulate(capsys, file, "--arrivals", arrivals, "--warm-up", "30s")
    assert [row[name] for name in ("queries", *OUTCOMES)] == [0] * 7
    assert [row[name] for name in ("violation", "branch_violation", "p50_ms")] == [None] * 3


def test_a_quantile_of_the_profile_can_stand_for_every_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 10.0)
    drawn, mean, slow = (
        simulate(capsys, file, "--arrivals", arrivals, *option)[0]["p50_ms"]
        for option in ((), ("--latency", "mean"), ("--latency", "p99"))
    )
    assert drawn == pytest.approx(mean, rel=0.1)
    assert slow > 1.1 * mean


def test_each_ingress_admits_by_its_part_of_the_four_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 3 processes one has two partitions. Each used to admit an equal part of the capacity, so
    that queries were refused at half of it."""
    file = a_cluster(tmp_path, cluster={"devices": {"emulated": 4}, "ingress": 3})
    (row,) = simulate(capsys, file, "--rate", "60", "--seconds", "5")
    assert (row["refused"], row["answered"]) == (0, row["queries"])


def test_a_dead_device_costs_what_was_on_it_and_no_query_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {at: 3s, kind: death, device: emulated-3, for: 3s}\n")
    file, arrivals = a_cluster(tmp_path, devices=6), some_arrivals(tmp_path, 20.0)
    (row,) = simulate(capsys, file, "--arrivals", arrivals, "--faults", faults)
    assert (row["lost"], row["failed"]) == (0, 0)
    assert 0 < row["queries"] - row["answered"] < 40  # a second of queries, until detection


def test_a_device_that_is_revoked_with_notice_costs_less_than_one_that_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    file, arrivals = a_cluster(tmp_path, devices=6), some_arrivals(tmp_path, 20.0)
    missed = []
    for notice in (", notice: 5s", ""):
        faults.write_text(f"- {{at: 3s, kind: death, device: emulated-3{notice}}}\n")
        (row,) = simulate(capsys, file, "--arrivals", arrivals, "--faults", faults)
        assert (row["lost"], row["failed"]) == (0, 0)
        missed.append(row["queries"] - row["answered"])
    assert missed[0] < missed[1]


@pytest.mark.parametrize(
    "fault",
    ["kind: control-down, for: 4s", "kind: broker-pause, for: 400ms",
     "kind: slow, device: emulated-1, for: 2s, factor: 20"],
)  # fmt: skip
def test_the_system_recovers_from_other_faults_and_every_query_has_its_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text(f"- {{at: 3s, {fault}}}\n")
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 20.0)
    (row,) = simulate(capsys, file, "--arrivals", arrivals, "--faults", faults)
    assert (row["lost"], sum(row[name] for name in OUTCOMES)) == (0, 200)
    assert row["answered"] > 100


def test_a_trace_shows_every_batch_and_is_written_completely_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 20.0)
    trace = tmp_path / "trace.json"
    (row,) = simulate(capsys, file, "--arrivals", arrivals, "--trace-out", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    batches = [e for e in events if e["ph"] == "X" and "items" in e["args"]]
    assert sum(e["args"]["items"] for e in batches) == row["stage_queries"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"emulated-0", "control"} <= names
    assert not list(tmp_path.glob("*.part"))
    two = refused(capsys, file, "--arrivals", arrivals, "--trace-out", trace, "--seed", "1", "2")
    assert "--trace-out shows one run" in two


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_queries(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))

    def held(seconds: float) -> int:
        seen = Most()
        run_ = Run(file=file, policy="static", seed=0, arrivals=Renewal(40.0, seconds))
        simulated(run_, seen.look)
        return seen.records

    assert held(60.0) <= 1.2 * held(20.0)


class Most:
    """Record the largest number of records that the simulator held during the run."""

    def __init__(self) -> None:
        self.records = 0

    def look(self, sent: int) -> None:
        import gc

        from streams.simulated.topic_log import Log

        logs = [each for each in gc.get_objects() if type(each) is Log and not each.keeps]
        self.records = max(self.records, sum(len(log.records) for log in logs))


def test_invalid_arguments_are_reported_in_one_sentence_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path)
    known = "there is no policy 'best'; known are static, fast"
    faults = tmp_path / "faults.yaml"
    faults.write_text("\n- {at: 1s, kind: death, device: cuda-9}\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    load = ("--rate", "3", "--seconds", "1")
    cases = [
        (("--arrivals", arrivals, "--policy", "best"), known),
        (("--arrivals", arrivals, "--seed", "3", "4", "3"), "seed 3 is given twice"),
        (("--arrivals", arrivals, "--policy", "fast,fast"), "policy fast is given twice"),
        (
            ("--arrivals", arrivals, "--faults", faults),
            "faults.yaml:2: there is no device 'cuda-9'",
        ),
        (("--arrivals", empty), "is empty; write one arrival time"),
        ((), "give one of --arrivals, --phases, --from-topic, and --rate"),
        (("--arrivals", arrivals, "--rate", "3"), "give one of --arrivals"),
        (("--rate", "3"), "--rate needs --seconds"),
        ((*load, "--devices", "emulate=2"), "'emulate' is no device; did you mean 'emulated'?"),
        ((*load, "--devices", "cpu=2,cpu=4"), "'cpu=2,cpu=4' names a device twice"),
        (("--arrivals", tmp_path / "gone.txt"), "cannot be read"),
        (("--arrivals", arrivals, "--seconds", "3"), "--seconds goes with --rate"),
        (("--arrivals", arrivals, "--burst", "3"), "--burst goes with --rate"),
        (("--arrivals", arrivals, "--cv", "3"), "--cv goes with --rate"),
        ((*load, "--burst", "3", "--cv", "3"), "--burst and --cv exclude each other"),
        ((*load, "--trace-out", empty, "--queries-out", "q.csv"), "--trace-out excludes --queries"),
        ((*load, "--trace-out", tmp_path / "none" / "trace.json"), "there is no folder"),
        (("--sessions", empty, "--recorded", empty, "--seconds", "3", "--world", empty),
         "--world is not for --sessions"),
        (("--sessions", empty, "--recorded", empty, "--seconds", "3", "--cv", "3"),
         "--cv is not for --sessions"),
    ]  # fmt: skip
    for arguments, sentence in cases:
        told = refused(capsys, file, *arguments)
        assert sentence in told
        assert told.count("\n") == 1


def profiled_without_large(folder: Path, **provenance: object) -> Path:
    """Return a cluster whose profile lacks read/large."""
    file, profile = a_cluster(folder), folder / "profile.json"
    document = json.loads(profile.read_text())
    document["entries"] = document["entries"][:-1]
    document["provenance"] |= provenance
    profile.write_text(json.dumps(document))
    return file


def test_a_variant_without_profile_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, profiled_without_large(tmp_path), "--rate", "1", "--seconds", "1")
    assert "read/large has no profile to simulate it by; run `headrace profile" in told
    assert "simulated with" not in told


def test_a_variant_without_a_device_needs_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = {"read/large on cuda:0": "it runs on cpu only"}
    file = profiled_without_large(tmp_path, left_out=left_out)
    assert simulate(capsys, file, "--rate", "1", "--seconds", "1")[0]["lost"] == 0
