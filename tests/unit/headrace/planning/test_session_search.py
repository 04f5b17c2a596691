"""`headrace search --recorded`: its keys, its optimum, and a sentence for every invalid request."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli.main import run

YAML = """\
name: planned
slo: {latency: 150ms, accuracy: 0.85}
policy: compass
policies:
  compass: {kind: compass, deadline: 100s, spend: 0, samples: {least: 50, most: 200}}
tasks:
  scan:
    children: [read]
    knobs: {scale: [1, 0.75, 0.5]}
    variants: {scan: {operator: "shop:Scan"}}
  read:
    knobs: {votes: [1, 3]}
    variants: {mlp: {operator: "shop:Mlp"}, cnn: {operator: "shop:Cnn"}}
cluster:
  tiers:
    handheld: {speed: 0.1, per: session}
    depot: {speed: 0.5, count: 2, price: 0.05}
    cloud: {speed: 1, count: 2, price: 0.2}
  links:
    handheld>depot: {rate: 8Mbps, delay: 5ms}
    handheld>cloud: {rate: 8Mbps, delay: 40ms}
    depot>cloud: {rate: 100Mbps, delay: 15ms}
"""
ACCURACY = {"1": 0.0, "0.75": -0.02, "0.5": -0.3, "mlp": 0.8, "cnn": 0.95, "votes": 0.03}


def recording() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = []
    for scale, variant, votes in product(["1", "0.75", "0.5"], ["mlp", "cnn"], ["1", "3"]):
        mean = ACCURACY[scale] + ACCURACY[variant] + (ACCURACY["votes"] if votes == "3" else 0)
        rows.append({
            "options": {"scan.scale": scale, "read.variant": variant, "read.votes": votes},
            "scores": (rng.random(200) < mean).astype(int).tolist(),
            "seconds": {"scan": 0.002, "read": (0.01 if variant == "cnn" else 0.002) * int(votes)},
            "bytes": {"scan": 20_000 * float(scale)},
        })  # fmt: skip
    return {"pipeline": "planned", "input_bytes": 50_000, "configurations": rows}


def with_scores(scores: str) -> dict[str, Any]:
    rows = [{**row, "scores": scores} for row in recording()["configurations"]]
    return {**recording(), "configurations": rows}


def files(folder: Path, text: str = YAML, truth: Any = None) -> list[str]:
    (folder / "planned.yaml").write_text(text)
    (folder / "truth.json").write_text(json.dumps(truth or recording()))
    return [str(folder / "planned.yaml"), "--recorded", str(folder / "truth.json")]


def line(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert run(["search", *words, "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_keys_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = line(capsys, *files(tmp_path), "--session", "cam-1")
    assert found["session"] == "cam-1"
    assert found["space"] == {"configurations": 12, "placements": 9, "plans": 108}
    assert found["stopped"] == "space"
    assert set(found["first"]) == {"seconds", "steps", "placement", "configuration"}
    assert set(found["steps"][0]) == {
        "n", "from", "configuration", "placement", "utility", "samples", "cached", "accuracy",
        "confidence", "verdict", "compliant", "error", "seconds",
    }  # fmt: skip
    assert set(found["plans"][0]) == {
        "configuration", "settings", "placement", "shares", "latency_ms", "accuracy",
        "accuracy_low", "usd_per_h", "demand",
    }  # fmt: skip
    assert set(found["spent"]) == {"device_seconds", "usd"}


def test_every_plan_meets_the_slo_and_the_cheapest_is_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = line(capsys, *files(tmp_path))["plans"]
    assert plans
    assert all(plan["latency_ms"] <= 150 and plan["accuracy"] >= 0.85 for plan in plans)
    costs = [plan["usd_per_h"] for plan in plans]
    assert costs == sorted(costs)


def test_shared_outputs_are_profiled_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = line(capsys, *files(tmp_path), "--accuracy", "0.99", code=3)
    steps = found["steps"]
    assert not steps[0]["cached"]
    assert any(step["cached"] == ["scan"] for step in steps)
    every = sum(step["samples"] * 0.002 for step in steps)
    profiled = sum(step["seconds"]["profile"] for step in steps)
    reads = sum(
        step["samples"]
        * (0.01 if step["configuration"]["read.variant"] == "cnn" else 0.002)
        * int(step["configuration"]["read.votes"])
        for step in steps
    )
    assert profiled < reads + every


def test_no_compliant_plan_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = line(capsys, *files(tmp_path), "--accuracy", "1.0", code=3)
    assert (found["plans"], found["first"]) == ([], None)
    assert set(found["nearest"]) == {"configuration", "accuracy", "latency_ms", "usd_per_h"}


@pytest.mark.parametrize(
    ("words", "stopped"),
    [(("--steps", "1"), "steps"), (("--deadline", "1us"), "deadline"), ((), "space")],
)
def test_every_stop_rule_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], stopped: str
) -> None:
    assert run(["search", *files(tmp_path), *words, "--json"]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["stopped"] == stopped


def test_the_spend_stops_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = line(capsys, *files(tmp_path), "--spend", "1e-9", "--accuracy", "0.99", code=3)
    assert (found["stopped"], len(found["steps"])) == ("spend", 1)


def test_the_same_search_twice_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> Any:
        found = line(capsys, *files(tmp_path))
        for step in found["steps"]:
            del step["seconds"]["propose"]
        return found

    assert told() == told()


def test_the_deadline_of_a_search_over_a_recording_counts_recorded_seconds_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine it had fewer steps until its deadline."""
    found = line(capsys, *files(tmp_path))
    first = found["steps"][: found["first"]["steps"]]
    assert found["first"]["seconds"] == sum(step["seconds"]["profile"] for step in first)


def test_a_person_sees_steps_and_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", *files(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "12 configurations, 108 query plans" in told
    assert "first compliant plan after" in told
    assert "scan/scan@scale=" in told


def test_scores_may_be_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = line(capsys, *files(tmp_path))["plans"]
    truth = recording() | {"of": 1}
    for row in truth["configurations"]:
        row["scores"] = "".join(map(str, row["scores"]))
    assert line(capsys, *files(tmp_path, truth=truth))["plans"] == plain


def test_links_of_0_bytes_a_second_keep_every_stage_on_the_tier_of_the_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = YAML.replace("rate: 8Mbps", "rate: 0Mbps")
    plans = line(capsys, *files(tmp_path, cut))["plans"]
    assert {tier for plan in plans for tier in plan["placement"].values()} == {"handheld"}
    slow = cut.replace("speed: 0.1", "speed: 0.01")  # too slow for any plan
    assert run(["search", *files(tmp_path, slow)]) == 3
    assert "; the nearest configuration: accuracy 0.780 at 405.6 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "truth", "words"),
    [
        (YAML.replace("kind: compass", "kind: loki").replace(
            ", deadline: 100s, spend: 0, samples: {least: 50, most: 200}", ""), None,
         "does not search"),
        (YAML, {"pipeline": "x", "configurations": []}, "lacks 12 of 12 configurations"),
        (YAML, {"pipeline": "x"}, "no recording of profiles"),
        (YAML, with_scores("0101x"), "has no 2 scores or more from 0 to 1"),
        (YAML, with_scores("9" * 60), "has no 2 scores or more from 0 to 1"),
        (YAML.replace(", accuracy: 0.85", ""), None, "names no accuracy"),
        (YAML.replace("rate: 8Mbps", "rate: 0Mbps").replace(
            "    variants: {mlp", "    tiers: [depot, cloud]\n    variants: {mlp"), None,
         "there is no link handheld>depot, or its rate is 0; add it under cluster.links"),
        (YAML.replace("least: 50", "last: 50"), None, "it can have least and most"),
    ],
)  # fmt: skip
def test_invalid_request_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, truth: Any, words: str
) -> None:
    code = run(["search", *files(tmp_path, text, truth)])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_an_slo_of_0_is_not_that_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", *files(tmp_path), "--slo", "0s"]) == 2
    assert "latency must be above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parallelism": 0}, "must be above 0"),
        ({"of": 0}, "must be above 0"),
        ({"input_bytes": -1}, "are not 0 or more"),
        ({"scores": [0.5, 87.0]}, "scores or more from 0 to 1"),
        ({"scores": [0.5]}, "scores or more from 0 to 1"),
        ({"scores": []}, "scores or more from 0 to 1"),
        ({"seconds": {"scan": -1, "read": 0.1}}, "are not 0 or more"),
        ({"memory_bytes": {"scan": -1}}, "are not 0 or more"),
    ],
)
def test_a_recording_with_impossible_numbers_is_refused(
    changed: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ended with a traceback, or found plans of an accuracy of 87."""
    truth = recording()
    of_row = changed.keys() & truth["configurations"][0].keys() | {"memory_bytes"} & changed.keys()
    (truth["configurations"][3] if of_row else truth).update(changed)
    assert run(["search", *files(tmp_path, truth=truth)]) == 2
    assert words in capsys.readouterr().err
