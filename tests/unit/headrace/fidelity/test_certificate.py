"""Certificates: two runs compared, judged, stored and read again."""

import json
from dataclasses import replace

import pytest

from headrace.errors import CertificateError
from headrace.fidelity.certificate import (
    Certificate,
    CertifiedMetric,
    Conditions,
    Figures,
    certified,
)
from headrace.fidelity.certificate_text import text

LIVE = Figures(
    queries=1000, p50_ms=100.0, p95_ms=200.0, p99_ms=240.0, branch_violation=0.02, violation=0.05,
    accuracy=0.96, devices_mean=20.0, drops={"late": 0.01, "past_saving": 0.04},
)  # fmt: skip
CONDITIONS = Conditions(
    pipeline="lines", file="lines.yaml", file_sha256="a", profiles_sha256={"profile.json": "b"},
    arrivals="arrivals.txt", arrivals_sha256="c", queries=1100, seconds=60.0, warm_up_s=5.0,
    policy="loki", seed=0, dilate=4.0, devices={"emulated": 20}, date="2026-11-21T18:00:00+00:00",
    machine="a CPU, 2 cores", versions={"headrace": "0.1.0"}, host_cpu_share=0.5, behind_ms=1.0,
)  # fmt: skip


def a_certificate(**changes: float | None) -> Certificate:
    return certified(CONDITIONS, LIVE, replace(LIVE, **changes))


def the(name: str, certificate: Certificate) -> CertifiedMetric:
    return next(metric for metric in certificate.metrics if metric.name == name)


def test_a_simulation_that_agrees_meets_every_aim() -> None:
    certificate = a_certificate()
    assert certificate.verdict == "aim"
    assert {metric.error for metric in certificate.metrics} == {0.0}


def test_latency_is_judged_relative_to_live() -> None:
    assert the("p50_ms", a_certificate(p50_ms=109.0)) == CertifiedMetric(
        name="p50_ms", unit="ms", live=100.0, simulated=109.0, error=0.09, kind="relative",
        must=0.1, aim=0.05, verdict="must", low=109.0, high=109.0,
    )  # fmt: skip
    assert a_certificate(p95_ms=178.0).verdict == "missed"


def test_violations_are_judged_in_points() -> None:
    metric = the("violation", a_certificate(violation=0.08))
    assert (round(metric.error or 0, 6), metric.verdict) == (0.03, "missed")


def test_p99_has_an_aim_but_cannot_be_missed() -> None:
    certificate = a_certificate(p99_ms=480.0)
    assert the("p99_ms", certificate).verdict == "must"
    assert certificate.verdict == "must"


def test_what_was_measured_on_one_side_only_is_missed() -> None:
    metric = the("accuracy", a_certificate(accuracy=None))
    assert (metric.error, metric.verdict) == (None, "missed")


def test_what_was_measured_on_neither_side_agrees() -> None:
    nothing = replace(LIVE, accuracy=None)
    assert the("accuracy", certified(CONDITIONS, nothing, nothing)).verdict == "aim"


def test_drops_stand_by_reason_also_those_of_one_side() -> None:
    certificate = certified(CONDITIONS, LIVE, replace(LIVE, drops={"late": 0.01, "refused": 0.5}))
    drops = [m for m in certificate.metrics if m.name.startswith("drops/")]
    assert [(m.name, m.live, m.simulated, m.verdict) for m in drops] == [
        ("drops/late", 0.01, 0.01, ""),
        ("drops/past_saving", 0.04, 0.0, ""),
        ("drops/refused", 0.0, 0.5, ""),
    ]


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_a_host_with_cores_to_spare_is_not_warned_of(share: float) -> None:
    assert certified(replace(CONDITIONS, host_cpu_share=share), LIVE, LIVE).warning == ""


def test_a_busy_host_is_warned_of_with_the_mend() -> None:
    busy = certified(replace(CONDITIONS, host_cpu_share=0.93), LIVE, LIVE)
    assert "93% busy" in busy.warning
    assert "raise --dilate" in busy.warning


def test_a_certificate_is_read_as_it_was_written() -> None:
    certificate = a_certificate(p50_ms=103.0)
    stored = json.loads(json.dumps(certificate.as_json()))
    assert Certificate.from_json(stored) == certificate
    assert (stored["format"], stored["verdict"], stored["warning"]) == (1, "aim", "")


@pytest.mark.parametrize(
    ("value", "said"),
    [([], "None"), ({"format": 7}, "7"), ({"format": 1}, "conditions")],
)
def test_what_is_no_certificate_is_refused_with_the_mend(value: object, said: str) -> None:
    with pytest.raises(CertificateError, match=f"{said}.*headrace fidelity"):
        Certificate.from_json(value)  # type: ignore[arg-type]


def test_several_simulations_are_compared_by_their_mean_and_shown_by_their_range() -> None:
    simulated = [replace(LIVE, p50_ms=90.0), replace(LIVE, p50_ms=114.0, drops={"refused": 0.5})]
    certificate = certified(CONDITIONS, LIVE, *simulated)
    metric = the("p50_ms", certificate)
    assert (metric.simulated, metric.low, metric.high) == (102.0, 90.0, 114.0)
    assert (metric.error, metric.verdict) == (0.02, "aim")
    assert the("drops/refused", certificate).simulated == 0.25


def test_a_metric_that_one_simulation_lacks_is_missed() -> None:
    certificate = certified(CONDITIONS, LIVE, LIVE, replace(LIVE, accuracy=None))
    metric = the("accuracy", certificate)
    assert (metric.simulated, metric.low, metric.verdict) == (None, None, "missed")


def test_a_difference_below_one_percent_of_the_slo_is_within_bounds_but_not_within_the_aim() -> (
    None
):
    """2.5 ms of 24.6 at an SLO of 300 ms was called missed."""
    short = replace(LIVE, p50_ms=24.6)
    conditions = replace(CONDITIONS, slo_ms=300.0)
    verdicts = [
        the("p50_ms", certified(conditions, short, replace(short, p50_ms=24.6 + apart_ms))).verdict
        for apart_ms in (1.0, 2.5, 3.5)
    ]
    assert verdicts == ["aim", "must", "missed"]
    unknown = certified(CONDITIONS, short, replace(short, p50_ms=27.1))
    assert the("p50_ms", unknown).verdict == "missed"


def test_the_floor_is_printed_beside_its_bound() -> None:
    certificate = certified(replace(CONDITIONS, slo_ms=300.0), LIVE, LIVE)
    p50 = next(line for line in text(certificate).splitlines() if line.startswith("p50 ms"))
    assert "10.0% or 3 ms" in p50
