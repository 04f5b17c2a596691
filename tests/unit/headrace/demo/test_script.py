"""headrace/demo/script.py: how a demo's load goes, and when its command comes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies import fixed_policies
from headrace.arrivals.arrival_processes import ramp
from headrace.config.pipeline_file import PipelineFile, load_profile, read_pipeline_file
from headrace.demo.demo_report import Change, Span
from headrace.demo.load_script import spans
from headrace.demo.script import Phase, Script, hardware_qps, scripted
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


def test_where_accuracy_is_scaled_the_load_climbs_past_the_most_accurate_and_comes_back() -> None:
    file = postcode()
    most = hardware_qps(file)
    assert most is not None
    script = scripted(file, a_plan("loki"), 80.0, None)
    assert [phase.name for phase in script.phases] == [
        "quiet", "rising", "peak", "falling", "recovery"
    ]  # fmt: skip
    assert (script.policy, script.then, script.then_s) == ("accurate", "loki", 4.0)
    assert script.peak_qps == pytest.approx(2 * most)
    assert script.phases[0].to_qps == script.phases[-1].to_qps == pytest.approx(0.08 * most)
    assert all(
        a.to_qps == b.from_qps for a, b in zip(script.phases, script.phases[1:], strict=False)
    )
    assert script.seconds == pytest.approx(80.0)
    assert scripted(file, a_plan("loki"), 80.0, 30.0).peak_qps == 30.0


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
def test_elsewhere_the_load_is_steady_and_the_other_fixed_plan_comes_half_way(
    capacity: float | None, rate: float
) -> None:
    script = scripted(lines(), a_plan("accurate", capacity), 10.0, None)
    assert script == Script(
        phases=(Phase("steady", 10.0, rate, rate),), policy="accurate", then="fast", then_s=5.0
    )
    assert hardware_qps(lines()) is None
    assert scripted(lines(), a_plan("accurate"), 10.0, 7.0).peak_qps == 7.0


def test_a_script_tells_where_it_is() -> None:
    script = Script(
        phases=(Phase("quiet", 2.0, 1.0, 1.0), Phase("rising", 4.0, 1.0, 9.0)),
        policy="a", then="b", then_s=1.0,
    )  # fmt: skip
    assert [script.at(s) for s in (0.0, 2.0, 4.0, 6.0)] == [
        ("quiet", 1.0), ("rising", 1.0), ("rising", 5.0), ("over", 0.0)
    ]  # fmt: skip
    assert (script.mean_qps, script.peak_qps) == (pytest.approx(22 / 6), 9.0)
    assert script.only("a").then is None


def test_phases_are_split_where_the_policy_changed() -> None:
    script = Script(
        phases=(Phase("quiet", 2.0, 1.0, 1.0), Phase("rising", 4.0, 1.0, 9.0)),
        policy="a", then="b", then_s=1.0,
    )  # fmt: skip
    assert spans(script, 100.0, Change(before="a", after="b", at_s=101.5)) == [
        Span("quiet", "a", 100.0, 101.5),
        Span("quiet", "b", 101.5, 102.0),
        Span("rising", "b", 102.0, 106.0),
    ]
    assert [span.policy for span in spans(script.only("c"), 100.0, None)] == ["c", "c"]


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0.1, 20), st.integers(0, 99))
def test_arrivals_of_a_ramp_lie_within_it_in_order(
    begin: float, end: float, seconds: float, seed: int
) -> None:
    times = ramp(begin, end, seconds, np.random.default_rng(seed))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < seconds)).all()


def test_a_ramp_has_the_rates_it_says() -> None:
    times = ramp(0.0, 1000.0, 10.0, np.random.default_rng(1))
    counts, _ = np.histogram(times, bins=10, range=(0, 10))
    assert len(times) == pytest.approx(5000, rel=0.05)
    assert counts == pytest.approx(100 * np.arange(0.5, 10), abs=150)


def test_the_arrivals_of_a_script_go_on_from_phase_to_phase() -> None:
    script = scripted(postcode(), a_plan("loki"), 80.0, 50.0)
    times = script.arrivals(np.random.default_rng(0))
    assert (np.diff(times) >= 0).all()
    assert times[-1] < 80.0
    assert len(times) == pytest.approx(script.mean_qps * 80.0, rel=0.1)
    assert (times == script.arrivals(np.random.default_rng(0))).all()
