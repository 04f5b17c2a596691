"""Planners replace the initial size distribution with observed sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.estimates import Estimates, LastSolve
from control.estimation.size_profile import ProfileBySize, growth
from control.estimation.slowdown import SHORT_S
from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.size_watch import size_count
from control.problem.problem import Problem
from profiles.measurements import Entry, Latency
from profiles.profile_table import ProfileTable
from schemas.effects import Counted
from schemas.enumerations import PlanCause
from schemas.pipeline import Pipeline, Policy, QuerySize, Task, Variant
from schemas.records import Report, Settings

MOST = 1000
S_PER_ITEM = SHORT_S  # no batch counts as a part of one
PACED = Policy(name="loki", kind="loki", paced=True)
SETTINGS = Settings(policy="loki", slo_s=1.0, demand_qps=50.0)
VARIANT = Variant(task="rank", name="m", operator="benchmarks.operators:Echo")
PIPELINE = Pipeline(
    name="rank", slo_s=1.0, tasks=(Task(name="rank", variants=(VARIANT,)),), policies=(PACED,),
    policy="loki", size=QuerySize(most=MOST),
)  # fmt: skip


def a_table() -> ProfileTable:
    rows = tuple(
        Latency(batch=size, repeats=1, mean_s=s, p50_s=s, p90_s=s, p95_s=s, p99_s=s)
        for size in (1, 10, 100, MOST)
        for s in [size * S_PER_ITEM]
    )
    entry = Entry(
        task="rank", variant="m", device="cpu", operator=VARIANT.operator, weights_sha256="",
        load_s=0.0, memory_bytes=0, accuracy=1.0, children={}, latency=rows,
    )  # fmt: skip
    return ProfileTable("rank", (entry,))


def estimates_of(sizes: SizeDistribution | None) -> Estimates:
    first = sizes or SizeDistribution((MOST,), (1.0,))
    return Estimates(PIPELINE, ProfileBySize(a_table(), first, MOST, guessed=sizes is None))


def counts_of(size: int, queries: int, incarnation: float = 0.0) -> Report:
    return Report(
        node="ingress-0", role="ingress", pipeline="rank", epoch=1, incarnation=incarnation,
        sent_s=1.0, state="ready", counts={size_count(size): float(queries)},
    )  # fmt: skip


def batches(number: int, at_s: float, each_s: float) -> Report:
    return Report(
        node="cpu-0", role="worker", pipeline="rank", epoch=1, incarnation=0.0, sent_s=at_s,
        state="ready", device="cpu", task="rank", variant="m",
        counts={"batches/rank/m": 1.0 + number, "finished/rank/m": 1.0 + number,
                "busy_s/rank/m": number * each_s},
    )  # fmt: skip


def planned_s(estimates: Estimates) -> float:
    found = estimates.keep_pace(PACED)
    assert found is not None
    return found.latency_s("rank", "m", "cpu", 1, "mean")


def problem_of(estimates: Estimates) -> Problem:
    return Problem(
        pipeline=PIPELINE, policy=PACED, slo_s=1.0, demand_qps=50.0, devices=("cpu",),
        profile=estimates.keep_pace(PACED),
    )  # fmt: skip


def test_without_known_sizes_a_query_counts_as_the_largest_until_a_thousand_were_seen() -> None:
    estimates = estimates_of(None)
    estimates.observe(counts_of(10, 0))
    estimates.observe(counts_of(10, 999))
    assert planned_s(estimates) == pytest.approx(MOST * S_PER_ITEM)
    estimates.observe(counts_of(10, 1100))
    assert planned_s(estimates) == pytest.approx(10 * S_PER_ITEM, rel=0.05)


def test_a_control_app_that_restarts_goes_by_what_an_ingress_has_counted() -> None:
    estimates = estimates_of(None)
    estimates.observe(counts_of(10, 5000))
    assert planned_s(estimates) == pytest.approx(10 * S_PER_ITEM, rel=0.05)


def test_other_sizes_are_a_reason_to_plan_anew_once() -> None:
    estimates = estimates_of(SizeDistribution((10,), (1.0,)))
    problem = problem_of(estimates)
    assert estimates.unlike(LastSolve(problem), SETTINGS, 0.0) is None
    estimates.observe(counts_of(100, 1000))
    reason = estimates.unlike(LastSolve(problem), SETTINGS, 0.0)
    assert reason is not None
    assert reason.cause == PlanCause.SLOWDOWN
    assert "query sizes changed: on cpu they take 1" in reason.text
    assert estimates.unlike(LastSolve(problem_of(estimates)), SETTINGS, 0.0) is None


@given(st.integers(1, MOST), st.integers(1, MOST), st.floats(1.2, 5.0))
def test_changed_sizes_are_not_also_counted_as_a_slow_device(
    before: int, after: int, slower: float
) -> None:
    estimates = estimates_of(SizeDistribution((before,), (1.0,)))
    for number in range(0, 200, 20):
        estimates.observe(batches(number, 1.0 + number, slower * before * S_PER_ITEM))
    assert planned_s(estimates) == pytest.approx(slower * before * S_PER_ITEM, rel=0.01)
    estimates.observe(counts_of(after, 5000))
    assert planned_s(estimates) <= slower * max(before, after) * S_PER_ITEM * 1.06


def test_a_slow_device_stays_slow_when_sizes_are_counted_anew() -> None:
    estimates = estimates_of(SizeDistribution((100,), (1.0,)))
    for number in range(0, 200, 20):
        estimates.observe(batches(number, 1.0 + number, 2 * 100 * S_PER_ITEM))
    estimates.observe(counts_of(104, 5000))
    assert planned_s(estimates) == pytest.approx(2 * 104 * S_PER_ITEM, rel=0.06)


def test_a_device_that_was_not_measured_does_not_grow() -> None:
    assert growth(a_table(), a_table(), "cuda:0") == 1.0


def test_counts_of_the_input_topic_are_no_sizes() -> None:
    estimates = estimates_of(None)
    estimates.count(Counted(arrived=5000, waiting=0, at_s=1.0))
    assert planned_s(estimates) == pytest.approx(MOST * S_PER_ITEM)
