"""`headrace plan`: its lines, its text, and an answer to every edge case."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.simulation.experiments import plannable_demand
from profiles.measurements import Entry
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable
from tests.allocation_world import an_entry

YAML = """\
name: plates
slo: 200ms
comm: 5ms
tasks:
  find:
    children: [read]
    variants:
      small: {operator: "shop:Small", batch: 8}
      large: {operator: "shop:Large", batch: 8}
  read:
    variants:
      fast: {operator: "shop:Fast", batch: 8}
      sure: {operator: "shop:Sure", batch: 8}
cluster: {devices: {emulated: 4}}
profiles: [plates.json]
"""

ENTRIES = (
    an_entry("find", "small", {1: 5.0, 2: 8.0}, 0.8, {"read": 1.5}, device="emulated"),
    an_entry("find", "large", {1: 20.0, 2: 30.0}, 1.0, {"read": 2.0}, device="emulated"),
    an_entry("read", "fast", {1: 4.0, 4: 10.0}, 0.9, device="emulated"),
    an_entry("read", "sure", {1: 15.0, 4: 40.0}, 1.0, device="emulated"),
)


def a_file(folder: Path, *entries: Entry, text: str = YAML) -> str:
    names = {"small": "Small", "large": "Large", "fast": "Fast", "sure": "Sure"}
    rows = [
        {**json.loads(profile_text(ProfileTable("plates", (e,))))["entries"][0],
         "operator": f"shop:{names.get(e.variant, 'Task')}"}
        for e in entries or ENTRIES
    ]  # fmt: skip
    document = {"pipeline": "plates", "provenance": {}, "entries": rows}
    (folder / "plates.json").write_text(json.dumps(document))
    (folder / "plates.yaml").write_text(text)
    return str(folder / "plates.yaml")


def lines(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict]:
    assert run(["plan", "--policy", "loki-paper", *words, "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return [json.loads(line) for line in captured.out.splitlines()]


def sentence(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """Return the one sentence on stderr; stdout is empty."""
    assert run(["plan", "--policy", "loki-paper", *words]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_line_for_each_demand_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low, high = lines(capsys, a_file(tmp_path), "--demand", "40,5000", code=3)
    solver, variants = low.pop("solver"), low.pop("variants")
    assert low == {
        "policy": "loki-paper", "demand": 40.0, "mode": "hardware", "feasible": True,
        "devices_used": 2, "accuracy": 1.0, "served_share": 1.0,
        "shares": [{"path": ["find/large", "read/sure"], "share": 1.0}],
    }  # fmt: skip
    assert [set(v) for v in variants] == [{"task", "variant", "batch", "replicas"}] * 2
    assert {(v["variant"], v["replicas"]) for v in variants} == {("large", 1), ("sure", 1)}
    assert (solver["name"], set(solver)) == ("highs", {"name", "seconds", "wall_seconds", "gap"})
    assert (high["mode"], high["feasible"], high["devices_used"]) == ("best-effort", False, 4)
    assert high["nearest"]["demand"] == pytest.approx(high["served_share"] * 5000, rel=1e-4)
    assert high["binding"].startswith("devices: 4 devices serve at most ")


def test_the_text_tells_devices_paths_what_binds_and_what_a_change_brings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["plan", a_file(tmp_path), "--policy", "loki-paper", "--demand", "130"])
    text = capsys.readouterr().out
    assert code == 0
    for words in (
        "plates at 130 queries/s, SLO 200 ms, policy loki-paper: accuracy",
        "4 of 4 devices, accuracy",
        "variant", "load", "items/s", "p50 ms/batch", "path", "share", "budget",
        "binding constraint: number of devices", "with one more device: ",
        "with 10 % more demand: ",
        "solved by highs in",
    ):  # fmt: skip
        assert words in text


def test_comm_slo_and_devices_can_be_overridden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path)
    # 0.5 x (140 - 3 x 5) = 62.5 ms leave room for 20 + 40 ms, 0.5 x (130 - 3 x 5) do not.
    (fits,) = lines(capsys, file, "--demand", "90", "--slo", "140ms", "--devices", "8")
    (short,) = lines(capsys, file, "--demand", "90", "--slo", "130ms", "--devices", "8")
    (again,) = lines(
        capsys, file, "--demand", "90", "--slo", "130ms", "--devices", "8", "--comm", "0ms"
    )
    assert {v["batch"] for v in fits["variants"] if v["variant"] == "sure"} == {4}
    assert {v["batch"] for v in short["variants"] if v["variant"] == "sure"} == {1}
    assert again["variants"] == fits["variants"]


def test_no_demand_takes_one_device_for_each_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan,) = lines(capsys, a_file(tmp_path), "--demand", "0")
    assert (plan["mode"], plan["devices_used"], plan["accuracy"]) == ("hardware", 2, 1.0)


def test_one_device_for_two_tasks_serves_nothing_and_names_the_required_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan,) = lines(capsys, a_file(tmp_path), "--demand", "10", "--devices", "1", code=3)
    assert (plan["mode"], plan["served_share"], plan["accuracy"]) == ("best-effort", 0.0, None)
    assert plan["nearest"] == {"demand": None, "slo_ms": None, "devices": 2}
    assert "use 2 devices" in plan["binding"]


def test_slo_below_the_fastest_path_names_the_lowest_feasible_slo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path)
    (plan,) = lines(capsys, file, "--demand", "10", "--slo", "20ms", code=3)
    assert plan["binding"].startswith("slo: within 20 ms no path of variants fits")
    needed = plan["nearest"]["slo_ms"]
    assert needed == pytest.approx(2 * (5 + 4) + 3 * 5)
    assert lines(capsys, file, "--demand", "10", "--slo", f"{needed}ms")[0]["feasible"]


def test_a_variant_that_fits_no_batch_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = an_entry("read", "sure", {1: 900.0}, 1.0, device="emulated")
    (plan,) = lines(capsys, a_file(tmp_path, *ENTRIES[:3], slow), "--demand", "10")
    assert plan["mode"] == "accuracy"
    assert [v["variant"] for v in plan["variants"]] == ["large", "fast"]


def test_a_profile_with_a_hole_plans_with_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan,) = lines(capsys, a_file(tmp_path, *ENTRIES[:3]), "--demand", "10")
    assert [v["variant"] for v in plan["variants"]] == ["large", "fast"]


def test_a_task_that_nobody_measured_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = sentence(capsys, a_file(tmp_path, *ENTRIES[:2]), "--demand", "10", code=2)
    assert "task 'read' has no profiled variant on emulated; run `headrace profile`" in told


def bare(folder: Path) -> str:
    """Return a file without profiles."""
    text = YAML.replace("profiles: [plates.json]\n", "").replace("emulated", "cpu")
    return a_file(folder, text=text)


@pytest.mark.parametrize("policy", ["loki", "loki-paper", "proteus", "inferline"])
def test_a_policy_that_needs_a_profile_calls_a_file_without_one_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    told = sentence(capsys, bare(tmp_path), "--demand", "10", "--policy", policy, code=2)
    assert "task 'find' has no profiled variant on cpu; run `headrace profile`" in told


def test_a_fixed_plan_needs_no_profile_as_text_or_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", bare(tmp_path), "--demand", "10", "--policy", "static"]
    assert run([*asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert run(asked) == 0
    text = capsys.readouterr().out
    for each in plan["variants"]:
        key = f"{each['task']}/{each['variant']}"
        assert f"{key:<10}  {each['replicas']:>7}  {each['batch']:>5}\n" in text
    assert text.endswith("loads and latencies are unknown: run `headrace profile`\n")


def test_a_fixed_plan_below_the_demand_is_infeasible_as_text_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON called it feasible with exit code 0; the text named a load of 2000 %."""
    file = a_file(tmp_path, text=FIXED)
    asked = ["plan", file, "--policy", "fixed", "--demand", "10,4000"]
    assert run([*asked, "--json"]) == 3
    low, high = map(json.loads, capsys.readouterr().out.splitlines())
    assert (low["feasible"], high["feasible"]) == (True, False)
    assert high["binding"].startswith("demand exceeds the capacity of ")
    most = high["nearest"]["demand"]
    assert run([*asked[:-1], f"{0.999 * most:.6g}"]) == 0
    assert run([*asked[:-1], f"{1.001 * most:.6g}"]) == 3
    (found,) = plannable_demand(file, policies=["fixed"])
    assert found["demand_qps"] == pytest.approx(most, rel=0.02)


def test_a_profile_without_the_fan_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = an_entry("find", "small", {1: 5.0}, 0.8, device="emulated")
    told = sentence(capsys, a_file(tmp_path, blind, *ENTRIES[2:]), "--demand", "10", code=2)
    assert "the profile of find/small on emulated has no fan-out to 'read'" in told


def test_multiplicity_zero_keeps_a_device_for_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = an_entry("find", "large", {1: 20.0}, 1.0, {"read": 0.0}, device="emulated")
    (plan,) = lines(capsys, a_file(tmp_path, none, *ENTRIES[2:]), "--demand", "40")
    assert [(v["variant"], v["replicas"]) for v in plan["variants"]] == [("large", 1), ("sure", 1)]


def test_tasks_with_one_variant_cannot_scale_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = (ENTRIES[1], ENTRIES[3])
    low, high = lines(capsys, a_file(tmp_path, *only), "--demand", "40,400", code=3)
    assert (low["mode"], high["mode"], high["accuracy"]) == ("hardware", "best-effort", 1.0)


def test_five_hundred_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = lines(capsys, a_file(tmp_path), "--demand", "5000,17000", "--devices", "500")
    assert [plan["mode"] for plan in plans] == ["hardware", "accuracy"]
    assert all(plan["devices_used"] <= 500 for plan in plans)


def test_a_chain_of_five_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a", "b", "c", "d", "e"]
    entries = [
        an_entry(
            name, variant, {1: ms, 4: 2.5 * ms}, accuracy, {b: 1.2 for b in names[at + 1 : at + 2]},
            device="emulated",
        )
        for at, name in enumerate(names)
        for variant, ms, accuracy in (("quick", 3.0, 0.8), ("good", 6.0 + at, 0.97))
    ]  # fmt: skip
    tasks = "".join(
        f"  {name}:\n    children: [{', '.join(names[at + 1 : at + 2])}]\n    variants:\n"
        '      quick: {operator: "shop:Task", batch: 4}\n'
        '      good: {operator: "shop:Task", batch: 4}\n'
        for at, name in enumerate(names)
    )
    head, tail = YAML.split("tasks:\n")[0], YAML[YAML.index("cluster:") :]
    tail = tail.replace("emulated: 4", "emulated: 12")
    file = a_file(tmp_path, *entries, text=f"{head}tasks:\n{tasks}{tail}")
    plans = lines(capsys, file, "--demand", "50,300,9000", code=3)
    assert [plan["mode"] for plan in plans] == ["hardware", "accuracy", "best-effort"]
    assert all(plan["devices_used"] <= 12 for plan in plans)
    assert all(len(share["path"]) == 5 for plan in plans for share in plan["shares"])


WRONG = [
    (["--demand", "many"], 2, "'many' is no list of rates"),
    (["--demand", "-5"], 2, "'-5' has a rate below 0"),
    (["--demand", "5", "--slo", "250"], 2, "write 250ms or 250s"),
    (["--demand", "5", "--devices", "0"], 2, "0 is not in the range x>=1"),
    (
        ["--demand", "5", "--policy", "lucky"],
        2,
        "no policy 'lucky'; name one with",
    ),
    (["--demand", "5", "--policy", "static", "--solver", "cbc"], 2, "has no solver to choose"),
]


@pytest.mark.parametrize(("words", "code", "told"), WRONG, ids=lambda value: str(value)[:30])
def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert told in sentence(capsys, a_file(tmp_path), *words, code=code)


def test_devices_of_several_kinds_are_told_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = YAML.replace("{emulated: 4}", '{cpu: 2, "cuda:0": 2}')
    told = sentence(capsys, a_file(tmp_path, text=text), "--demand", "5", "--devices", "8", code=2)
    assert "does not say of which kind" in told


@pytest.mark.thorough
def test_another_process_with_another_hash_seed_prints_the_same_plan(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    found = []
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "plan", file, "--policy", "loki-paper",
             "--demand", "40,130,150", "--json"],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        plans = [json.loads(line) for line in done.stdout.splitlines()]
        found.append([{k: v for k, v in plan.items() if k != "solver"} for plan in plans])
    assert found[0] == found[1]
    assert [plan["mode"] for plan in found[0]] == ["hardware", "accuracy", "accuracy"]


FIXED = f"""{YAML}
policies:
  fixed:
    replicas: {{find/small: 1, read/fast: 2, read/sure: 1}}
    batch: {{find/small: 2, read/fast: 4, read/sure: 4}}
"""


def test_a_policy_that_names_no_paths_is_shown_with_the_traffic_of_throughput_routing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, text=FIXED)
    assert run(["plan", file, "--policy", "fixed", "--demand", "50"]) == 0
    told = capsys.readouterr().out
    (row,) = (line.split() for line in told.splitlines() if line.startswith("  find/small  "))
    assert row == ["find/small", "1", "2", "20.0", "%", "50.0", "8.0"]
    assert "nothing can be answered" not in told
    assert "hardware instead of" not in told
    (line,) = lines(capsys, file, "--policy", "fixed", "--demand", "50")
    assert sum(each["share"] for each in line["shares"]) == pytest.approx(1.0)
    assert 0.8 * 0.9 < line["accuracy"] < 0.8


def test_more_than_fixed_replicas_can_serve_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, text=FIXED)
    assert run(["plan", file, "--policy", "fixed", "--demand", "5000"]) == 3
    assert "demand exceeds the capacity of find/small: load " in capsys.readouterr().out
