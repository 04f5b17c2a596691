"""`headrace schedule`: its JSON keys, exit codes and sentences."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run

INSTANCE: dict[str, Any] = {
    "tiers": {"cloud": {"gpus": 1, "price": 5.0}, "near": {"gpus": 1, "price": 2.0}},
    "queries": [
        {"id": "a", "weight": 1, "plans": [{"cost": 5, "items": [["cloud", 3], ["near", 2]]}]},
        {
            "id": "b",
            "weight": 2,
            "plans": [
                {"cost": 5, "items": [["cloud", 2], ["cloud", 2]]},
                {"cost": 1, "items": [["near", 1], ["near", 1]]},
            ],
        },
        {"id": 7, "weight": 1, "plans": [{"cost": 9, "items": [["cloud", 4]]}]},
    ],
}


def written(folder: Path, instance: Any) -> str:
    path = folder / "instance.json"
    path.write_text(json.dumps(instance))
    return str(path)


def line(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert run(["schedule", *words, "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_goodput_output_names_served_sessions_and_the_gap_to_the_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = line(capsys, "--instance", written(tmp_path, INSTANCE), "--objective", "goodput")
    solver = found.pop("solver")
    assert set(solver) == {"name", "seconds", "gap"}
    assert found["ratio"] == found["weight"] / found["bound"]
    assert found.pop("bound") >= 3
    assert 0 < found.pop("ratio") <= 1
    assert found == {
        "objective": "goodput", "sessions": 3, "served": 2, "weight": 3.0, "usd_per_h": 7.0,
        "feasible": True,
        "tiers": [{"tier": "cloud", "used": 1, "of": 1}, {"tier": "near", "used": 1, "of": 1}],
        "assignments": [{"session": "a", "plan": 0}, {"session": "b", "plan": 1}],
    }  # fmt: skip


def test_cost_serves_everything_on_as_many_gpus_as_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, INSTANCE)
    found = line(capsys, "--instance", file, "--objective", "cost", "--gpus", "any")
    assert (found["served"], found["usd_per_h"], found["feasible"]) == (3, 12.0, True)
    assert found["ratio"] == 12.0 / found["bound"] >= 1


def test_cost_that_cannot_serve_everything_is_infeasible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, INSTANCE)
    found = line(capsys, "--instance", file, "--objective", "cost", code=3)
    assert (found["feasible"], found["bound"], found["ratio"], found["served"]) == (
        False, None, None, 2,
    )  # fmt: skip


def test_no_sessions_are_all_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, {"tiers": {}, "queries": []})
    for objective in ("goodput", "cost"):
        found = line(capsys, "--instance", file, "--objective", objective)
        assert (found["sessions"], found["ratio"], found["assignments"]) == (0, 1.0, [])


@pytest.mark.parametrize("policy", ["compass", "compass-paper", "compass-ilp", "first-come"])
def test_text_output_shows_the_same_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    assert run(["schedule", "--instance", written(tmp_path, INSTANCE), "--policy", policy]) == 0
    assert "of 3 sessions served" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        ({"queries": []}, "tiers"),
        ({"tiers": {"a": {"price": 1}}, "queries": []}, "has no gpus"),
        ({"tiers": {}, "queries": [{"id": 1, "plans": [{"items": [["a"]]}]}]}, "TIER, QUARTERS"),
        ({"tiers": {}, "queries": [{"id": 1, "plans": [{"items": [["a", 1]]}]}]}, "wants the tier"),
        ({"tiers": {}, "queries": [{"id": 1, "plans": [], "weigth": 3}]}, "weigth"),
        ({"tiers": {}, "queries": [{"id": 1, "plans": []}] * 2}, "2 queries have the id 1"),
    ],
)
def test_a_wrong_instance_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], instance: Any, words: str
) -> None:
    assert run(["schedule", "--instance", written(tmp_path, instance)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_tier_that_is_named_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one counted, silently."""
    path = tmp_path / "instance.json"
    path.write_text(
        '{"tiers": {"a": {"gpus": 1, "price": 1}, "a": {"gpus": 9, "price": 1}}, "queries": []}'
    )
    assert run(["schedule", "--instance", str(path)]) == 2
    assert "the key 'a' is there a second time" in capsys.readouterr().err


def test_costs_of_nothing_are_no_negative_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = {
        "tiers": {"own": {"gpus": 3, "price": 0}},
        "queries": [{"id": 1, "plans": [{"items": [["own", 1]]}]}],
    }
    assert (
        run(["schedule", "--instance", written(tmp_path, free), "--objective", "cost", "--json"])
        == 0
    )
    assert "-0.0" not in capsys.readouterr().out


def test_a_missing_file_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule", "--instance", "/nowhere.json"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_an_unknown_policy_lists_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schedule", "--instance", written(tmp_path, INSTANCE), "--policy", "magic"]) == 2
    assert "compass-paper" in capsys.readouterr().err
