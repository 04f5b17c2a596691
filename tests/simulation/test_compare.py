"""``headrace compare``: its output, the search for a fixed choice, and refused arguments."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.arrivals.arrival_processes import Renewal
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.comparison import FIGURES
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from headrace.simulation.static_best import search, yielded


def compare(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code = run(["compare", *map(str, arguments), "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


@pytest.mark.thorough
def test_policies_meet_on_the_same_arrivals_with_means_and_paired_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 60.0, 5.0)
    policies = ("static", "loki-paper:dropping=none")
    made = compare(capsys, file, "--arrivals", arrivals, "--policy", *policies, "--seed", "1", "2")
    assert (made["pipeline"], made["seeds"], made["against"]) == ("lines", [1, 2], "static")
    assert [(r["policy"], r["seed"], r["queries"]) for r in made["runs"]] == [
        (policy, seed, 300) for policy in policies for seed in (1, 2)
    ]
    assert [list(each) for each in made["policies"]] == [["policy", *FIGURES]] * 2
    (apart,) = made["differences"]
    means = {each["policy"]: each["violation"]["mean"] for each in made["policies"]}
    runs = [row["violation"] for row in made["runs"]]
    assert means["static"] == pytest.approx((runs[0] + runs[1]) / 2, abs=1e-6)
    assert apart["policy"] == policies[1]
    assert apart["violation"]["mean"] == pytest.approx(
        means[policies[1]] - means["static"], abs=2e-6
    )
    assert apart["violation"]["low"] <= apart["violation"]["mean"] <= apart["violation"]["high"]


def test_one_seed_has_means_without_intervals_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 60.0, 2.0)
    made = compare(capsys, file, "--arrivals", arrivals)
    assert made["differences"] == []
    (static,) = made["policies"]
    assert (static["accuracy"]["low"], static["accuracy"]["high"]) == (None, None)
    assert run(["compare", str(file), "--arrivals", str(arrivals)]) == 0
    assert "one seed (0): no confidence interval" in capsys.readouterr().out


def test_the_page_is_written_completely_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = a_cluster(tmp_path), tmp_path / "page.html"
    made = compare(capsys, file, "--rate", "40", "--seconds", "2", "--html", page)
    assert made["seeds"] == [0]
    text = page.read_text()
    assert text.endswith("</body></html>\n")
    assert text.count("<svg") == 6
    assert "40/s for 2 s" in text
    gone = tmp_path / "none" / "page.html"
    assert run(["compare", str(file), "--rate", "1", "--seconds", "1", "--html", str(gone)]) == 2
    assert f"there is no folder {gone.parent}" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.thorough
def test_the_best_fixed_choice_is_the_best_of_those_that_were_tried(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path, devices=6))
    asked = Run(file=file, policy="static", seed=0, arrivals=Renewal(150.0, 3.0))

    def rows(wanted: Sequence[Run]) -> list[dict[str, Any]]:
        return [simulated(each, lambda sent: None).as_json(each) for each in wanted]

    found = search(asked, rows)
    yields = [each.yielded for each in found.tried]
    best = found.tried[yields.index(max(yields))]
    assert found.best == replace(best.policy, name="static-best")
    demands = [each.demand_qps for each in found.tried if each.demand_qps is not None]
    assert demands == sorted(demands)
    # No fixed choice of the file, and no single variant, is better than the best.
    named = {each.policy.name: each.yielded for each in found.tried}
    assert named["static"] == yielded(rows([asked])[0]) <= max(yields)
    assert named["fast"] == yielded(rows([replace(asked, policy="fast")])[0]) <= max(yields)
    alone = [each.policy.replicas for each in found.tried if len(each.policy.replicas) == 2]
    assert {tuple(sorted(each)) for each in alone} >= {
        ("detect/large", "read/large"), ("detect/small", "read/small"),
        ("detect/large", "read/small"), ("detect/small", "read/large"),
    }  # fmt: skip
    assert any(len(each.policy.replicas) > 2 for each in found.tried)


@pytest.mark.thorough
def test_a_fixed_choice_is_named_in_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_cluster(tmp_path, devices=2)
    made = compare(
        capsys, file, "--rate", "5", "--seconds", "1", "--policy", "static-best", "--seed", "1"
    )
    assert made["static_best"]["replicas"] == {"detect/large": 1, "read/large": 1}
    assert made["against"] == "static-best"


def test_invalid_arguments_are_reported_in_one_sentence_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path)
    cases = [
        (("--policy", "best"), "there is no policy 'best'; known are static, fast, loki"),
        (("--policy", "static-best", "best"), "there is no policy 'best'; known are"),
        (("--policy", "static-best", "static-best"), "policy static-best is given twice"),
        (("--policy", "loki:dropping=all"), "dropping is 'all'; it can be 'none'"),
        (("--seed", "3", "4", "3"), "seed 3 is given twice"),
    ]
    for arguments, sentence in cases:
        assert run(["compare", str(file), "--arrivals", str(arrivals), *arguments]) == 2
        told = capsys.readouterr()
        lines = [x for x in told.err.splitlines() if not x.startswith("simulated with")]
        assert (told.out, len(lines)) == ("", 1)
        assert sentence in told.err


def playing(comparing: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Return the processes of the runs, once they play: a start takes less than a second of CPU."""
    players: list[psutil.Process] = []
    while not any(each.cpu_times().user > 1.5 for each in players):
        with suppress(subprocess.TimeoutExpired):  # it ends before its runs
            raise AssertionError(f"it ended with {comparing.wait(0.1)}")
        players = psutil.Process(comparing.pid).children(recursive=True)
    return players


@pytest.mark.thorough
def test_its_processes_end_even_if_the_command_is_killed(tmp_path: Path) -> None:
    file, arrivals = a_cluster(tmp_path), some_arrivals(tmp_path, 200.0, 600.0)
    command = ["compare", str(file), "--arrivals", str(arrivals), "--policy", "static", "loki"]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", *command], stderr=subprocess.DEVNULL
    ) as comparing:
        players = playing(comparing)
        comparing.kill()
    assert len(players) >= 2
    assert psutil.wait_procs(players, timeout=30)[1] == []
