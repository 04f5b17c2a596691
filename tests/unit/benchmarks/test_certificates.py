"""The certificate page: its cases and the judged order of policies."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.certificate_tables import table
from benchmarks.certificates import CertifiedRow, cases, least_skill, order, page, shortfalls
from headrace.fidelity.certificate import Certificate
from tests.unit.headrace.fidelity.test_certificate import CONDITIONS, a_certificate

ROW = CertifiedRow(
    name="cluster", file=Path("x.yaml"), rate_qps=100.0, dilate=4.0, devices=20, other_devices=16,
    policies=("loki", "inferline", "proteus"),
)  # fmt: skip


def of(policy: str, predicted: float, live: float, spread: float = 0.001) -> Certificate:
    made = a_certificate()
    metrics = tuple(
        replace(m, predicted=predicted, live=live, spread=spread) if m.name == "violation" else m
        for m in made.metrics
    )
    return replace(made, metrics=metrics, conditions=replace(CONDITIONS, policy=policy))


def test_a_row_is_certified_beside_its_calibration_too() -> None:
    assert cases(ROW) == (
        (0.5, "loki", 20), (1.0, "loki", 20), (1.5, "loki", 20), (1.0, "inferline", 20),
        (1.0, "proteus", 20), (1.0, "loki", 16),
    )  # fmt: skip


def test_the_order_of_policies_is_judged_where_they_differ_live() -> None:
    one, two, near = of("loki", 0.1, 0.1), of("proteus", 0.2, 0.3), of("inferline", 0.09, 0.1005)
    assert order([one, two, near], "violation").startswith("as live (2 pairs")
    assert "wrong for loki and proteus" in order([one, of("proteus", 0.05, 0.3)], "violation")


def test_shortfalls_are_misses_better_null_models_and_reversed_policy_orders() -> None:
    case = "cluster: 1 of the load, {}, 20 devices"
    good, other = of("loki", 0.1, 0.1), of("proteus", 0.3, 0.3)
    assert shortfalls([(case.format("loki"), good), (case.format("proteus"), other)]) == []
    turned = of("proteus", 0.05, 0.3)
    unskilled = a_certificate(p50_ms=160.0)
    found = shortfalls([
        (case.format("loki"), good), (case.format("proteus"), turned), ("cluster: 2", unskilled),
    ])  # fmt: skip
    assert found == [
        "cluster: 2: a metric is missed",
        "cluster: 2: a null model is better (skill -0.20)",
        "cluster, violation: wrong for loki and proteus (1 pairs differ live by more than their "
        "spread)",
    ]


def test_the_page_has_every_certificate_and_says_how_busy_the_host_was() -> None:
    found = [("cluster: 1 of the load, loki, 20 devices", a_certificate(p50_ms=150.0))]
    told = page(found)
    assert "0 of 1 certificates met" in told
    assert "| cluster: 1 of the load, loki, 20 devices | p50, ms | 150.0 (" in told
    assert "+50.0 % | 0.00 | missed |" in told
    assert "host 50% busy; drift: none" in told


def test_an_error_beyond_the_bound_and_within_the_spread_is_marked() -> None:
    made = a_certificate()
    (error,) = (replace(m, error=0.3, verdict="must") for m in made.metrics if m.name == "p95_ms")
    assert "+30.0 % | - | must * |" in table([("case", replace(made, metrics=(error,)))])
    within = replace(error, error=0.07)
    assert "+7.0 % | - | must |" in table([("case", replace(made, metrics=(within,)))])


def test_the_least_skill_is_that_of_the_worst_metric() -> None:
    assert least_skill(a_certificate()) == 1.0  # the null model errs by 50 ms, in one metric
    assert least_skill(a_certificate(p50_ms=160.0)) == pytest.approx(1 - 60 / 50)
    assert least_skill(replace(a_certificate(), metrics=())) is None
