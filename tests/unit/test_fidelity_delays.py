"""What answers tell of hops, lags and batches, and machines that are slower than a profile."""

from dataclasses import replace
from itertools import pairwise

from headrace.fidelity_delays import (
    Batch,
    batches,
    hops_s,
    lags_s,
    seen,
    told,
    ways_in_s,
    ways_out_s,
)
from operators.models.emulated import Emulated, Stretched
from schemas.pipeline import Variant
from schemas.records import ANSWERED, Answer, Hop, Origin
from streams.delays import LOCAL_BROKER, World
from tests.unit.test_emulated import NET, TABLE


def a_hop(task: str, worker: str, received_s: float, started_s: float, finished_s: float) -> Hop:
    return Hop(
        task=task, variant="v", worker=worker, epoch=1, received_s=received_s,
        started_s=started_s, finished_s=finished_s, batch=2,
    )  # fmt: skip


def an_answer(*paths: tuple[Hop, ...]) -> Answer:
    return Answer(
        id="q-0", origin=Origin(0, 0), outcome=ANSWERED, created_s=0.0, deadline_s=9.0,
        answered_s=8.0, paths=paths,
    )  # fmt: skip


DETECT = a_hop("detect", "w0", 1.0, 1.5, 2.0)
READ, OTHER = a_hop("read", "w1", 2.25, 3.0, 4.0), a_hop("read", "w2", 2.5, 3.0, 5.0)


def test_a_record_with_several_items_is_one_hop() -> None:
    answer = an_answer((DETECT, READ), (DETECT, READ), (DETECT, OTHER))
    assert list(hops_s(answer)) == [0.25, 0.5]


def test_what_waited_long_at_its_worker_may_have_waited_on_the_broker() -> None:
    crowded = replace(READ, received_s=2.25, started_s=4.0, finished_s=5.0)
    assert list(hops_s(an_answer((DETECT, crowded)))) == []


def test_the_way_in_is_two_hops_and_the_way_out_begins_with_the_last_batch() -> None:
    early = replace(DETECT, received_s=1.25)
    answer = an_answer((early, READ), (early, OTHER))
    assert (list(ways_in_s(answer)), list(ways_out_s(answer))) == ([0.625], [3.0])
    assert list(ways_out_s(replace(answer, incomplete=True))) == []


FIRST = Batch(
    worker="w0", variant="detect/v", size=2, received_s=1.0, started_s=1.5, finished_s=2.0
)


def test_a_batch_counts_once_with_the_first_of_its_items() -> None:
    later = replace(DETECT, received_s=1.25)
    found = batches([an_answer((later, READ), (DETECT, READ))])
    assert found == [
        FIRST,
        Batch(
            worker="w1", variant="read/v", size=2, received_s=2.25, started_s=3.0, finished_s=4.0
        ),
    ]


def test_a_worker_lags_by_what_lies_between_batches_when_something_waits() -> None:
    waiting = replace(FIRST, received_s=1.9, started_s=2.125, finished_s=3.0)
    fresh = replace(FIRST, received_s=3.5, started_s=3.5, finished_s=4.0)
    other = replace(waiting, worker="w1")
    assert list(lags_s([FIRST, waiting, fresh])) == [0.125]
    assert list(lags_s([FIRST, other])) == []


def test_too_few_answers_tell_nothing() -> None:
    assert seen([an_answer((DETECT, READ))], TABLE, {"w0": "emulated"}, 4.0) == World(
        hops=LOCAL_BROKER
    )


def test_many_answers_tell_hops_in_wall_seconds() -> None:
    early = replace(DETECT, received_s=1.25)
    found = told(seen([an_answer((early, READ))] * 100, TABLE, {}, 4.0))
    assert found["hop_ms"] == {"p50": 1e3, "p90": 1e3, "p99": 1e3, "most": 1e3}
    assert (found["way_in_ms"]["p50"], found["way_out_ms"]["p50"]) == (2499.75, 16e3)
    assert (found["lag_ms"], found["stretch"]) == ({}, {})


def test_on_a_slower_machine_a_batch_takes_its_median_times_the_stretch() -> None:
    variant: Variant = NET
    median = Emulated(TABLE, variant, ("read", "sort"), None)
    slower = Stretched(median, iter([1.0, 2.5]).__next__)
    assert slower.latency_s(1) == median.latency_s(1)
    assert slower.latency_s(2) == 2.5 * median.latency_s(2)
    assert slower.load_s == median.load_s


def test_one_long_way_does_not_lengthen_the_others() -> None:
    ways = [0.001] * 999 + [1.0]
    end_s = 5.0  # of the last batch
    answers = [replace(an_answer((DETECT, OTHER)), answered_s=end_s + way_s) for way_s in ways]
    knots = seen(answers, TABLE, {}, 1.0).ways_out
    drawn_s = sum(
        (share - before) * (least_s + most_s) / 2
        for (before, least_s), (share, most_s) in pairwise(knots)
    )
    # Their mean is 2 ms; a straight line from the 99 % quantile on would make it 6.
    assert 0.001 < drawn_s < 0.0025
