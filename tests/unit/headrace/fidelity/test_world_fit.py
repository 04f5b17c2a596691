"""Fitting a phase: delays by contention, thinned, and read back as simulation input."""

import itertools
from collections.abc import Iterator

import numpy as np

from headrace.fidelity.delay_trace import RecordedBatch, occupancy
from headrace.fidelity.world_fit import FEWEST, MOST, broker_quantiles, fitted, usable_levels
from schemas.records import ANSWERED, Answer, Hop, Origin
from streams.simulated.delays import ANY_SIZE
from tests.unit.operators.models.test_emulated import TABLE

TASK, VARIANT = TABLE.entries[0].task, TABLE.entries[0].variant
MEDIAN_S = TABLE.latency_s(TASK, VARIANT, "cuda:0", 1, "p50")


def a_batch(worker: str, started_s: float, finished_s: float) -> RecordedBatch:
    return RecordedBatch(
        worker=worker, variant=f"{TASK}/{VARIANT}", size=1, received_s=started_s,
        started_s=started_s, finished_s=finished_s,
    )  # fmt: skip


def test_devices_are_busy_from_just_after_a_batch_begins_until_it_ends() -> None:
    busy = occupancy([a_batch("a", 1.0, 3.0), a_batch("b", 2.0, 5.0)])
    assert [busy(at) for at in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)] == [0, 0, 1, 1, 2, 1, 1, 0]


def answers_on_two_devices(count: int) -> Iterator[Answer]:
    """Yield answers: at odd seconds a second device also runs and takes twice the median."""
    for number in range(count):
        created_s = float(number)
        pair = number % 2
        for worker, late_s in (("cpu-0", 0.0), ("cpu-1", 0.001))[: 1 + pair]:
            begins_s = created_s + 0.01 + late_s
            took_s = MEDIAN_S * (2 if late_s else 1)
            hop = Hop(
                task=TASK, variant=VARIANT, worker=worker, epoch=1, received_s=begins_s,
                started_s=begins_s, finished_s=begins_s + took_s, batch=1,
            )  # fmt: skip
            yield Answer(
                id=f"q-{number}", origin=Origin(0, number), outcome=ANSWERED, created_s=created_s,
                deadline_s=created_s + 9, answered_s=begins_s + took_s + 0.002, paths=((hop,),),
            )  # fmt: skip


def test_the_stretch_of_a_batch_is_known_by_how_many_devices_were_busy() -> None:
    known = list(answers_on_two_devices(4 * FEWEST))
    phase = fitted(
        known, TABLE, {"cpu-0": "cuda:0", "cpu-1": "cuda:0"}, dilate=1.0, from_s=0.0,
        until_s=4.0 * FEWEST, rate_qps=1.0,
    )  # fmt: skip
    levels = phase.stretch[TASK, "cuda:0", ANY_SIZE]
    means = {level: float(np.mean([v for _, v in seen])) for level, seen in levels.items()}
    assert {level: round(value, 6) for level, value in means.items()} == {0: 1.0, 1: 2.0}
    assert (phase.rate_qps, phase.seconds) == (1.0, 4.0 * FEWEST)


def test_emulated_devices_do_not_contend_and_times_are_of_the_wall() -> None:
    known = list(answers_on_two_devices(4 * FEWEST))
    phase = fitted(
        known, TABLE, {}, dilate=4.0, from_s=0.0,
        until_s=100.0, rate_qps=2.0,
    )  # fmt: skip
    assert (phase.stretch, phase.starts) == ({}, {})
    assert (phase.rate_qps, phase.seconds, set(phase.ways_out)) == (0.5, 400.0, {0})
    out = [value for _, value in phase.ways_out[0]]
    assert round(float(np.mean(out)), 6) == 0.008  # 2 ms in time that is four times slower


def test_levels_with_few_samples_are_left_out_unless_there_are_only_such() -> None:
    many = [(float(at), 1.0) for at in range(FEWEST)]
    few = [(float(at), 2.0) for at in range(FEWEST - 1)]
    assert usable_levels({0: many, 1: few}) == {0: tuple(many)}
    assert usable_levels({1: few, 2: few}) == {1: tuple(sorted(few + few))}
    assert usable_levels({1: few}) == {}


def test_many_samples_are_thinned_evenly_in_time() -> None:
    kept = usable_levels({0: [(float(at), 0.0) for at in range(10 * MOST)]})[0]
    assert (len(kept), kept[0][0], kept[-1][0]) == (MOST, 0.0, 10.0 * MOST - 1)
    assert max(b[0] - a[0] for a, b in itertools.pairwise(kept)) <= 11


def test_the_broker_s_quantiles_are_knots_to_draw_from() -> None:
    knots = broker_quantiles([0.001] * 90 + [0.01] * 10)
    assert (knots[0], knots[2], knots[-1]) == ((0.0, 0.001), (0.5, 0.001), (1.0, 0.01))
