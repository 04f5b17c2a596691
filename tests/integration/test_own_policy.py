"""The package of docs/how-to/write-a-policy.md is built, installed and run, live and simulated."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Recorded
from headrace.client.give_command import plan_row
from headrace.config.pipeline_file import PipelineError, read_pipeline_file
from headrace.config.validation import check_plannable
from headrace.errors import Unfeasible
from headrace.processes import environment
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.effects import Effect, Event, Send
from schemas.records import Plan
from tests.control_roads import assert_the_same, recorded

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "write-a-policy.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
PATIENCE_S = 60.0

CALM = {"kind": "queue-length", "high": 12.0, "low": 1.0}
ALONE = {"read": ()}  # a pipeline of one task


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which pip has installed the page's package, without a network."""
    source, target = tmp_path_factory.mktemp("queue-length"), tmp_path_factory.mktemp("installed")
    for name, text in FILES.items():
        (source / name).write_text(text)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--disable-pip-version-check", "--target", str(target),
         str(source)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return target


@pytest.fixture
def here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the package importable in this process."""
    monkeypatch.syspath_prepend(str(installed))
    yield
    sys.modules.pop("queue_length", None)


def a_file(folder: Path, **changes: Any) -> Path:
    """Write a file of five devices, or ``devices``, that serve about 35 items/s each in the best
    batch."""
    settings = {"slo": "1s", "admission": False, "policy": "calm", "policies": {"calm": CALM}}
    usual = {"batch_s": 0.05, "load_s": 0.0, "devices": 5}
    return a_cluster(folder, **(usual | settings | changes))


def typed(
    installed: Path, *words: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    path = f"{ROOT}{os.pathsep}{installed}"
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        env={**environment(os.environ, None), **(env or {}), "PYTHONPATH": path},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def rows(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ------------------------------------------------------------------ the page


def test_the_pages_policy_is_short() -> None:
    assert set(FILES) == {"queue_length.py", "pyproject.toml"}
    assert len(FILES["queue_length.py"].splitlines()) <= 60


@pytest.mark.thorough
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("running", "queued", "wanted"),
    [
        ({}, {}, (1, 1)),
        ({"detect/small": 1, "read/small": 1}, {"detect": 13.0, "read": 5.0}, (2, 1)),
        ({"detect/small": 2, "read/small": 2}, {"detect": 13.0, "read": 5.0}, (2, 2)),  # hysteresis
        ({"detect/small": 2, "read/small": 3}, {"detect": 99.0, "read": 99.0}, (2, 3)),  # 5 devices
        ({"detect/small": 2, "read/small": 3}, {}, (1, 2)),
    ],
)
def test_the_policy_adds_a_device_above_one_queue_length_and_removes_one_below_another(
    tmp_path: Path, running: dict[str, int], queued: dict[str, float], wanted: tuple[int, int]
) -> None:
    from control.policies import policy_named
    from control.policies.solvers import solve
    from control.problem.problem import Problem

    pipeline = read_pipeline_file(a_file(tmp_path)).pipeline
    policy = policy_named(pipeline, "calm")
    assert policy is not None
    problem = Problem(
        pipeline=pipeline, policy=policy, slo_s=1.0, demand_qps=0.0,
        devices=("emulated",) * 5, running=running, queued=queued,
    )  # fmt: skip
    assert tuple(each.count for each in solve(policy.kind, problem).replicas) == wanted


# ------------------------------------------------------------------ validated and planned

WRONG = [
    ({"kind": "queue-lenght"}, "policies.calm.kind is 'queue-lenght', and no policy of that kind "
     "is installed here; did you mean 'queue-length'?"),
    ({"hihg": 3}, "policies.calm.hihg is no known key; did you mean 'high'?"),
    ({"high": "many"}, "policies.calm.high is 'many'; write a number"),
    ({"low": -1.0}, "policies.calm.low is -1.0; it must be 0 or more"),
    ({"nodes": 5}, "policies.calm.nodes is no known key"),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_the_policys_options_are_checked_like_those_of_other_policies(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PipelineError, match=r"pipeline\.yaml:\d+: " + re.escape(sentence)):
        read_pipeline_file(a_file(tmp_path, policies={"calm": CALM | changes}))


@pytest.mark.thorough
@pytest.mark.usefixtures("here")
def test_validate_reports_what_the_planner_refuses(tmp_path: Path) -> None:
    file = read_pipeline_file(a_file(tmp_path, policies={"calm": CALM | {"low": 12.0}}))
    with pytest.raises(Unfeasible, match="policy 'calm': low is 12 and high is 12; low must be"):
        check_plannable(file)


def test_the_kind_is_unknown_without_the_package(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match="kind is 'queue-length', and no policy of that kind is installed here"
    ):
        read_pipeline_file(a_file(tmp_path))


@pytest.mark.thorough
def test_the_policy_can_be_planned_simulated_and_compared(tmp_path: Path, installed: Path) -> None:
    file = str(a_file(tmp_path, children=ALONE))
    plan = rows(typed(installed, "plan", file, "--demand", "10", "--json"))
    assert (plan["policy"], plan["feasible"], plan["devices_used"]) == ("calm", True, 1)
    load = ("--rate", "5", "--seconds", "5", "--json", "--policy")
    (ran,) = rows(typed(installed, "simulate", file, *load, "queue-length:high=20"))
    assert (ran["policy"], ran["devices_mean"]) == ("queue-length:high=20", 1.0)
    assert ran["answered"] == ran["queries"]
    compared = rows(typed(installed, "compare", file, *load, "calm", "static"))
    assert [each["policy"] for each in compared["policies"]] == ["calm", "static"]


# ------------------------------------------------------------------ live and simulated alike

BURST_S = [at / 80 for at in range(480)]  # more than three devices serve
ARRIVALS_S = (*BURST_S, 14.0)
LENGTH_S = 16.05  # between two ticks


class _Plans:
    """Observe the plans that are sent."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        sent = (effect.record for effect in effects if type(effect) is Send)
        self.plans += [record for record in sent if type(record) is Plan]


def stations(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first, largest and last number of devices of a run, and the figures of the plan at
    each number. The times of the steps, and repeated steps, depend on when reports arrive."""
    figures = ("capacity_qps", "expected_accuracy", "feasible", "mode")
    devices = [plan["variants"]["read/small"] for plan in plans]
    return {
        "devices": (devices[0], max(devices), devices[-1]),
        "figures": {
            n: [plan[name] for name in figures] for n, plan in zip(devices, plans, strict=True)
        },
    }


@pytest.mark.thorough
@pytest.mark.usefixtures("here")
def test_both_drivers_of_the_controller_make_the_same_plans_with_the_policy(tmp_path: Path) -> None:
    """The live driver and the simulation take one tape; their plans are equal in every field."""
    file = read_pipeline_file(a_file(tmp_path, children=ALONE, devices=3, batch_s=0.1))
    arrivals = Recorded(np.array(ARRIVALS_S))
    script = recorded(Run(file=file, policy="calm", seed=0, arrivals=arrivals), LENGTH_S)
    live = assert_the_same(script)
    plans = [
        effect.record for _, _, effects in live for effect in effects
        if type(effect) is Send and type(effect.record) is Plan
    ]  # fmt: skip
    devices = [plan_row(plan)["variants"]["read/small"] for plan in plans]
    assert [n for n, _ in groupby(devices)] == [1, 2, 3, 2, 1]


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.2)


def simulated_stations(file: Path) -> dict[str, Any]:
    seen, arrivals = _Plans(), Recorded(np.array(ARRIVALS_S))
    run = Run(file=read_pipeline_file(file), policy="calm", seed=0, arrivals=arrivals)
    simulated(run, lambda sent: None, observers=(seen,))
    return stations([plan_row(plan) for plan in seen.plans])


@pytest.mark.kafka
@pytest.mark.alone
@pytest.mark.usefixtures("here")
def test_a_live_and_a_simulated_run_with_the_policy_reach_the_same_plans(
    tmp_path: Path, installed: Path, broker: str
) -> None:
    arrivals, sample = tmp_path / "arrivals.txt", tmp_path / "sample"
    file = a_file(tmp_path, children=ALONE, devices=3, batch_s=0.1)  # 18 items/s each
    arrivals.write_text("".join(f"{1e3 * at_s:.3f}\n" for at_s in ARRIVALS_S))
    sample.write_text("a line")
    expected = simulated_stations(file)
    assert expected["devices"] == (1, 3, 1)
    assert list(expected["figures"]) == [1, 2, 3]
    env = {"HEADRACE_HOME": str(tmp_path / "home"), "HEADRACE_BOOTSTRAP": broker}

    def types(*words: str) -> Any:
        return rows(typed(installed, *words, "--json", env=env))

    def history() -> list[dict[str, Any]]:
        newest_first: list[dict[str, Any]] = types("policy", "history", str(file), "--last", "99")
        return newest_first[::-1]

    try:
        types("up", str(file), "--detach")
        listed = {each["name"]: each for each in types("policy", "list", str(file))}
        assert (listed["calm"]["in_force"], listed["calm"]["high"]) == (True, 12.0)
        assert (listed["queue-length"]["in_force"], listed["queue-length"]["high"]) == (False, 8.0)
        # Ignore the exit code: it states whether all were answered, which depends on the machine.
        load = ("load", str(file), "--arrivals", str(arrivals), "--input", str(sample), "--json")
        loaded = json.loads(typed(installed, *load, env=env).stdout)
        assert loaded["queries"] == len(ARRIVALS_S)
        eventually(lambda: history()[-1]["variants"] == {"read/small": 1}, "one device again")
        assert stations(history()) == expected
    finally:
        typed(installed, "down", str(file), env=env)
