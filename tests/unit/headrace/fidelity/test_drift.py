"""Drift: delays of live runs compared with those of the calibration, like with like."""

import json
from dataclasses import replace
from math import inf

import pytest

from headrace.fidelity.certificate_text import certificate_text
from headrace.fidelity.drift import (
    CHARGE,
    MEAN,
    MEDIAN,
    DelayDrift,
    beyond_bound,
    drift_text,
    drifts,
)
from streams.simulated.delays import ANY_SIZE, Seen
from streams.simulated.world import Phase, World
from tests.unit.headrace.fidelity.test_certificate import a_certificate


def seen(*values: float) -> Seen:
    return tuple((float(at), value) for at, value in enumerate(values * 50))


PHASE = Phase(
    rate_qps=10.0, seconds=40.0, hops={0: seen(0.001, 0.002)}, ways_in={0: seen(0.001)},
    starts={"read": {0: seen(0.0005)}}, charged={"read": {0: 2.0, 1: 3.0}, "locate": {0: inf}},
    stretch={
        ("read", "cpu", ANY_SIZE): {0: seen(2.0, 3.0)},
        ("read", "cpu", 1): {0: seen(2.0), 1: seen(3.0)},
        ("read", "cpu", 2): {0: seen(4.0)},
    },
)  # fmt: skip


def factors(world: World, *runs: Phase) -> dict[tuple[str, str], float]:
    return {(each.what, each.of): round(each.factor, 4) for each in drifts(world, runs)}


def test_runs_like_the_calibration_have_no_drift() -> None:
    found = drifts(World((PHASE,)), [PHASE] * 3)
    assert {each.factor for each in found} == {1.0}
    assert beyond_bound(found) == ()
    assert drift_text(found).startswith("no drift")
    assert {(each.what, each.of) for each in found} == {
        ("hops", MEDIAN), ("hops", MEAN), ("ways in", MEDIAN), ("ways in", MEAN),
        ("starts of read", MEDIAN), ("starts of read", MEAN), ("batches of read on cpu", MEDIAN),
        ("batches of read on cpu", MEAN), ("batches of read", CHARGE),
    }  # fmt: skip


def test_under_another_policy_batches_are_not_compared() -> None:
    """It runs other variants."""
    slower = replace(
        PHASE, stretch={("read", "cpu", 1): {0: seen(3.0)}}, charged={"read": {0: 9.0}}
    )
    found = drifts(World((PHASE,)), [slower], batches=False)
    assert {each.what for each in found} == {"hops", "ways in", "starts of read"}
    assert beyond_bound(found) == ()


def test_batches_are_compared_with_those_of_their_size_and_contention() -> None:
    """Another policy or load has others of both, and the machine is still the same."""
    stretch = {("read", "cpu", 1): {1: seen(3.0, 3.0)}, ("read", "cpu", 4): {0: seen(9.0)}}
    found = factors(World((PHASE,)), replace(PHASE, stretch=stretch))
    assert found["batches of read on cpu", MEDIAN] == 1.0
    slower = {("read", "cpu", 1): {1: seen(3.9)}}
    found = factors(World((PHASE,)), replace(PHASE, stretch=slower))
    assert found["batches of read on cpu", MEDIAN] == 1.3


def test_within_the_range_of_the_phases_nothing_drifts_and_outside_the_nearest_one_counts() -> None:
    other = replace(PHASE, hops={0: seen(0.003)}, charged={"read": {0: 2.5}})
    world = World((PHASE, other))
    between = factors(world, replace(PHASE, hops={0: seen(0.0025)}, charged={"read": {0: 2.2}}))
    assert (between["hops", MEDIAN], between["batches of read", CHARGE]) == (1.0, 1.0)
    outside = factors(world, replace(PHASE, hops={0: seen(0.006)}, charged={"read": {0: 1.5}}))
    assert (outside["hops", MEDIAN], outside["batches of read", CHARGE]) == (2.0, 0.75)


def test_a_few_long_ones_show_in_the_mean_alone() -> None:
    found = factors(World((PHASE,)), replace(PHASE, ways_in={0: seen(*[0.001] * 9, 0.021)}))
    assert (found["ways in", MEDIAN], found["ways in", MEAN]) == (1.0, 3.0)


def test_delays_that_differ_by_parts_of_a_tenth_of_a_millisecond_are_alike() -> None:
    found = factors(World((PHASE,)), replace(PHASE, starts={"read": {0: seen(0.00065)}}))
    assert found["starts of read", MEDIAN] == 1.0


def test_lags_count_as_parts_of_hops_also_where_they_are_known_apart() -> None:
    """A run of few queued items has too few lags to tell: its hops seemed 3 ms longer."""
    apart = replace(PHASE, lag_s=0.003)
    within = replace(PHASE, hops={0: seen(0.004, 0.005)})
    assert factors(World((apart,)), within)["hops", MEDIAN] == 1.0


def test_a_quantity_that_a_run_lacks_is_not_compared() -> None:
    found = factors(World((PHASE,)), PHASE, Phase(rate_qps=10.0, seconds=40.0))
    assert found == {}
    assert drift_text(drifts(World((PHASE,)), [Phase(rate_qps=1.0, seconds=1.0)])) == ""


def test_the_largest_drift_is_named_first_with_what_to_do() -> None:
    found = (
        DelayDrift(what="hops", of=MEAN, factors=(1.2, 1.2, 1.2)),
        DelayDrift(what="batches of read", of=CHARGE, factors=(1.3, 1.5, 1.4)),
        DelayDrift(what="ways in", of=MEDIAN, factors=(0.95, 1.0, 1.3)),
    )
    assert drift_text(found) == (
        "drift since the calibration: batches of read were charged 1.40 times the calibrated CPU "
        "time; hops took 1.20 times the calibrated time on average; run `headrace calibrate` again"
    )


@pytest.mark.parametrize("p95_ms", [200.0, 400.0])
def test_a_drift_is_stored_and_said_and_changes_no_verdict(p95_ms: float) -> None:
    plain = a_certificate(p95_ms=p95_ms)
    drift = (DelayDrift(what="hops", of=MEDIAN, factors=(2.0, 2.0, 2.0)),)
    found = replace(plain, drift=drift, slowest=([{"at_s": 1.0, "ms": 500.0}],))
    assert (found.metrics, found.met, found.verdict) == (plain.metrics, plain.met, plain.verdict)
    assert type(found).from_stored(json.loads(json.dumps(found.as_stored()))) == found
    earlier = plain.as_stored()
    del earlier["drift"], earlier["slowest"]
    assert type(found).from_stored(earlier) == plain
    assert "hops took 2.00 times the calibrated time" in certificate_text(found)
    assert "drift" not in certificate_text(plain)
