"""Certificates: a prediction judged by live repeats, its skill, and the stored form."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CertificateError
from headrace.fidelity.certificate import (
    METRICS,
    Certificate,
    CertifiedMetric,
    Conditions,
    Values,
    judged,
    predicted,
    values_of,
)
from headrace.results.figures import Figures

SIMULATED = Figures(
    queries=1000, p50_ms=100.0, p95_ms=200.0, p99_ms=240.0, branch_violation=0.02, violation=0.05,
    accuracy=0.96, devices_mean=20.0,
)  # fmt: skip
CONDITIONS = Conditions(
    pipeline="lines", file="lines.yaml", file_sha256="a", profiles_sha256={"profile.json": "b"},
    arrivals="arrivals.txt", arrivals_sha256="c", queries=1100, seconds=60.0, warm_up_s=0.0,
    policy="loki", seed=0, simulations=2, dilate=4.0, devices={"emulated": 20},
    machine="a CPU, 2 cores", versions={"headrace": "0.1.0"}, host_cpu_share=0.5, behind_ms=1.0,
    notes=("built-in figures",),
)  # fmt: skip


def a_metric(
    name: str,
    simulated: list[float | None],
    live: list[float | None],
    **nulls: float | None,
) -> CertifiedMetric:
    """Set the judged metric and leave the others unchanged."""
    runs = [replace(SIMULATED, **{name: value}) for value in simulated]
    found = [values_of(replace(SIMULATED, **{name: value})) for value in live]
    bases: dict[str, Values] = {each: {name: value} for each, value in nulls.items()}
    return next(m for m in judged(predicted(runs), found, bases) if m.name == name)


def a_certificate(**simulated: float) -> Certificate:
    live = values_of(SIMULATED)
    nulls = {"calibration": live | {"p50_ms": 150.0}}
    runs = [replace(SIMULATED, **simulated)] * 2
    return Certificate(
        predicted_at="2026-11-22T12:00:00.000+00:00", sha256="s",
        live_started_at="2026-11-22T12:00:01.000+00:00", world=None, conditions=CONDITIONS,
        metrics=tuple(judged(predicted(runs), [live] * 3, nulls)), live_runs=(live,) * 3,
        conditional=live, nulls=nulls,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "simulated", "live", "verdict"),
    [
        ("p50_ms", 104.0, [100.0] * 3, "aim"),
        ("p50_ms", 109.0, [100.0] * 3, "must"),
        ("p50_ms", 111.0, [100.0] * 3, "missed"),
        ("p50_ms", 11.9, [10.0] * 3, "within floor"),  # 19 %, below the floor of 2 ms
        ("p50_ms", 10.4, [10.0] * 3, "aim"),
        ("p50_ms", 31.8, [30.0] * 3, "must"),
        ("p50_ms", 120.0, [80.0, 100.0, 120.0], "must"),  # repeats differ by as much
        ("p99_ms", 119.0, [100.0] * 3, "must"),
        ("p99_ms", 121.0, [100.0] * 3, "missed"),
        ("violation", 0.054, [0.05] * 3, "aim"),
        ("violation", 0.069, [0.05] * 3, "must"),
        ("violation", 0.071, [0.05] * 3, "missed"),
        ("accuracy", 0.964, [0.96] * 3, "must"),
        ("accuracy", 0.966, [0.96] * 3, "missed"),
        ("devices_mean", 1.0, [20.0] * 3, ""),
    ],
)
def test_a_miss_is_above_bound_floor_and_live_spread(
    name: str, simulated: float, live: list[float | None], verdict: str
) -> None:
    assert a_metric(name, [simulated] * 2, live).verdict == verdict


def test_latencies_err_relative_to_live_and_fractions_in_their_own_unit() -> None:
    assert a_metric("p50_ms", [90.0, 94.0], [100.0, 100.0]).error == pytest.approx(-0.08)
    assert a_metric("violation", [0.08, 0.08], [0.05, 0.05]).error == pytest.approx(0.03)


def test_a_metric_of_one_side_only_is_missed_and_of_neither_not_judged() -> None:
    assert a_metric("accuracy", [None, 0.9], [0.9, 0.9]).verdict == "missed"
    assert a_metric("accuracy", [0.9, 0.9], [None, 0.9]).verdict == "missed"
    assert a_metric("accuracy", [None, None], [None, None]).verdict == ""


def test_skill_is_the_part_of_the_best_null_model_s_error_that_is_avoided() -> None:
    metric = a_metric("p50_ms", [105.0] * 2, [100.0] * 3, calibration=130.0, queues=80.0)
    assert metric.skill == pytest.approx(0.75)
    worse = a_metric("p50_ms", [120.0] * 2, [100.0] * 3, calibration=110.0, queues=None)
    assert worse.skill == pytest.approx(-1.0)


def test_skill_is_undefined_if_neither_error_exceeds_the_floor() -> None:
    assert a_metric("p50_ms", [101.0] * 2, [100.0] * 3, calibration=99.0).skill is None
    assert a_metric("p50_ms", [150.0] * 2, [100.0] * 3).skill is None


@given(st.lists(st.floats(1.0, 1e4), min_size=2, max_size=9))
def test_the_interval_is_around_the_prediction_and_within_what_can_be(values: list[float]) -> None:
    shares = [value / 1e4 for value in values]
    for name, given_ in (("p50_ms", values), ("accuracy", shares)):
        found = predicted([replace(SIMULATED, **{name: value}) for value in given_])
        it = next(each for each in found if each.name == name)
        assert it.low is not None
        assert it.predicted is not None
        assert it.high is not None
        assert 0.0 <= it.low <= it.predicted * (1 + 1e-9)
        assert it.predicted <= it.high * (1 + 1e-9) or name == "accuracy"
        assert name != "accuracy" or it.high <= 1.0


def test_the_printed_keys_are_those_of_the_interface() -> None:
    printed = a_certificate().as_json()
    assert list(printed) == [
        "predicted_at", "sha256", "live_started_at", "repeats", "world", "met", "metrics", "drift",
    ]  # fmt: skip
    assert {tuple(metric) for metric in printed["metrics"]} == {
        ("name", "predicted", "low", "high", "live", "spread", "error", "skill", "verdict")
    }
    assert [metric["name"] for metric in printed["metrics"]] == list(METRICS)
    assert (printed["repeats"], printed["met"]) == (3, True)


def test_one_miss_and_the_certificate_is_not_met() -> None:
    assert not a_certificate(p95_ms=400.0).met
    assert a_certificate(p95_ms=400.0).verdict == "missed"
    assert a_certificate().verdict == "aim"
    short = replace(a_certificate().metrics[0], verdict="within floor")
    assert replace(a_certificate(), metrics=(short,)).verdict == "within floor"


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_a_host_with_cores_to_spare_is_not_warned_of(share: float) -> None:
    quiet = replace(CONDITIONS, host_cpu_share=share)
    assert replace(a_certificate(), conditions=quiet).warning == ""


def test_a_busy_host_is_warned_of_with_a_remedy() -> None:
    busy = replace(a_certificate(), conditions=replace(CONDITIONS, host_cpu_share=0.93))
    assert "93% busy" in busy.warning
    assert "raise --dilate" in busy.warning


def test_a_certificate_is_read_as_it_was_written() -> None:
    certificate = a_certificate(p50_ms=103.0)
    assert Certificate.from_stored(json.loads(json.dumps(certificate.as_stored()))) == certificate


@pytest.mark.parametrize(
    ("value", "said"),
    [([], "None"), ({"format": 1}, "1"), ({"format": 2}, "conditions")],
)
def test_invalid_certificate_is_refused_with_a_remedy(value: object, said: str) -> None:
    with pytest.raises(CertificateError, match=f"{said}.*headrace fidelity"):
        Certificate.from_stored(value)  # type: ignore[arg-type]
