"""headrace/demo/demo_load.py: the load of a demo and the time of its command."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from control.policies import fixed_policies
from headrace.arrivals.load_phases import LoadPhase, Phases
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.demo.demo_load import DemoLoad, demo_load, hardware_qps
from schemas.records import Plan, Settings

ROOT = Path(__file__).parents[4]


def postcode() -> PipelineFile:
    return read_pipeline_file(ROOT / "examples" / "postcode" / "pipeline.yaml")


def lines() -> PipelineFile:
    return read_pipeline_file(ROOT / "tests" / "pipelines" / "lines" / "pipeline.yaml")


def a_plan(policy: str, capacity_qps: float | None = None) -> Plan:
    return Plan(
        pipeline="p", epoch=1, issued_s=1.0, reason="", capacity_qps=capacity_qps,
        settings=Settings(policy=policy, slo_s=1.0),
    )  # fmt: skip


def test_load_rises_past_the_most_accurate_plan_and_falls_back_if_accuracy_is_scaled() -> None:
    file = postcode()
    most = hardware_qps(file)
    assert most is not None
    load = demo_load(file, a_plan("loki"), 80.0, None)
    phases = load.phases.phases
    assert [phase.name for phase in phases] == ["quiet", "rising", "peak", "falling", "recovery"]
    assert (load.policy, load.then, load.then_s) == ("accurate", "loki", 4.0)
    assert load.phases.peak_qps == pytest.approx(2 * most, rel=5e-3)
    assert phases[0].to_qps == phases[-1].to_qps == pytest.approx(0.08 * most, rel=5e-3)
    assert all(a.to_qps == b.from_qps for a, b in pairwise(phases))
    assert load.phases.seconds == pytest.approx(80.0)
    assert demo_load(file, a_plan("loki"), 80.0, 30.0).phases.peak_qps == 30.0
    assert load.only("fast").then is None


def test_load_is_steady_if_the_most_accurate_variants_serve_nothing_within_the_slo() -> None:
    """It used to be 0 queries/s, found by a thousand solves."""
    file = postcode()
    strict = replace(file, pipeline=replace(file.pipeline, slo_s=0.05))
    load = demo_load(strict, a_plan("loki", 30.0), 80.0, None)
    assert [(phase.name, phase.from_qps) for phase in load.phases.phases] == [("steady", 15.0)]


@pytest.mark.parametrize("seconds", [6.0, 7.0, 80.0])
def test_the_command_line_that_a_demo_shows_sends_what_the_demo_sends(seconds: float) -> None:
    for file in (postcode(), lines()):
        phases = demo_load(file, a_plan("loki"), seconds, None).phases
        assert Phases.parsed(str(phases)) == phases


def test_the_shipped_demo_compares_loki_with_the_most_accurate_and_the_fastest_variants() -> None:
    file = postcode()
    fixed = [policy.name for policy in fixed_policies(file.pipeline)]
    assert (file.pipeline.policy, fixed) == ("loki", ["accurate", "fast"])
    best, fastest = {}, {}
    for entry in load_profile(file).entries:
        best.setdefault(entry.task, entry)
        fastest.setdefault(entry.task, entry)
        if entry.accuracy > best[entry.task].accuracy:
            best[entry.task] = entry
        if entry.latency[0].p50_s < fastest[entry.task].latency[0].p50_s:
            fastest[entry.task] = entry
    replicas = {p.name: set(p.replicas) for p in file.pipeline.policies}
    assert replicas["accurate"] == {f"{task}/{e.variant}" for task, e in best.items()}
    assert replicas["fast"] == {f"{task}/{e.variant}" for task, e in fastest.items()}


@pytest.mark.parametrize(
    ("capacity", "rate"), [(None, 20.0), (1.0, 2.0), (60.0, 30.0), (1e3, 40.0)]
)
def test_load_is_steady_and_the_plan_changes_half_way_without_accuracy_scaling(
    capacity: float | None, rate: float
) -> None:
    load = demo_load(lines(), a_plan("accurate", capacity), 10.0, None)
    phases = Phases((LoadPhase("steady", 10.0, rate, rate),))
    assert load == DemoLoad(phases=phases, policy="accurate", then="fast", then_s=5.0)
    assert hardware_qps(lines()) is None
    assert demo_load(lines(), a_plan("accurate"), 10.0, 7.0).phases.peak_qps == 7.0
