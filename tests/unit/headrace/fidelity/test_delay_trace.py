"""Hops, lags and batches derived from answers, and machines slower than a profile."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from control.per_query.batching import DUE
from headrace.fidelity.delay_trace import (
    AtOnce,
    RecordedBatch,
    batches,
    hops_s,
    lags_s,
    read_at_once,
    seen,
    starts_s,
    stretches,
    ways_in_s,
    ways_out_s,
)
from headrace.roles.profile_lookups import latency_of
from operators.models.emulated import Emulated, Stretched
from profiles.profile_table import ProfileTable
from schemas.pipeline import Variant
from schemas.records import ANSWERED, Answer, Hop, Origin
from streams.simulated.delays import ANY_SIZE, DelayTrace
from tests.unit.operators.models.test_emulated import NET, TABLE, an_entry


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


def reading(*answers: Answer, before: tuple[RecordedBatch, ...] = ()) -> AtOnce:
    """Return ``read_at_once`` of workers that have run a batch of each of their tasks before."""
    ran = [*batches(answers), *before]
    early = {
        x.worker: replace(x, received_s=-9.0, started_s=-9.0, finished_s=-8.0) for x in ran
    }.values()
    return read_at_once(sorted([*early, *ran], key=lambda x: (x.worker, x.started_s)))


DETECT = a_hop("detect", "w0", 1.0, 1.5, 2.0)
READ, OTHER = a_hop("read", "w1", 2.25, 3.0, 4.0), a_hop("read", "w2", 2.5, 3.0, 5.0)


def test_a_record_with_several_items_is_one_hop() -> None:
    answer = an_answer((DETECT, READ), (DETECT, READ), (DETECT, OTHER))
    assert list(hops_s(answer, reading(answer))) == [(2.0, 0.25), (2.0, 0.5)]


CROWDED = structs.replace(READ, received_s=2.25, started_s=4.0, finished_s=5.0)
EARLIER = RecordedBatch(
    worker="w1", variant="read/v", size=2, received_s=1.0, started_s=1.5, finished_s=4.0
)


def test_a_long_wait_at_a_busy_worker_may_be_a_wait_on_the_broker() -> None:
    answer = an_answer((DETECT, CROWDED))
    assert list(hops_s(answer, reading(answer, before=(EARLIER,)))) == []


def test_a_record_that_a_worker_left_unread_tells_no_hop() -> None:
    """It begins two batches of what it held meanwhile; if one is of a later record, it reads."""
    late = structs.replace(READ, received_s=3.5, started_s=3.6, finished_s=4.0)
    answer = an_answer((DETECT, late))
    held = replace(EARLIER, received_s=1.9, started_s=2.5, finished_s=2.75)
    for received_s, hops in ((1.9, []), (2.5, [(2.0, 1.5)])):
        second = replace(held, received_s=received_s, started_s=2.75, finished_s=3.25)
        idle = replace(EARLIER, started_s=1.5, finished_s=1.75)
        at_once = reading(answer, before=(idle, held, second))
        assert list(hops_s(answer, at_once)) == hops


def test_an_item_may_wait_as_long_as_its_batch_ran_not_as_long_as_it_was_paid_for() -> None:
    answer = an_answer((DETECT, CROWDED))
    busy = replace(EARLIER, started_s=1.5, finished_s=4.0)
    long = structs.replace(CROWDED, finished_s=7.0)
    answer = an_answer((DETECT, long))
    ran = [*batches([answer])[:1], busy, *batches([answer])[1:]]
    for waited_s, hops in ((0.0, [(2.0, 0.25)]), (2.0, [])):
        paid = [*ran[:-1], replace(ran[-1], waited_s=waited_s)]
        assert list(hops_s(answer, read_at_once(paid))) == hops


def test_what_goes_to_an_idle_worker_counts_however_long_it_waits() -> None:
    """A pause of the machine delays a record and then its batch: the longest delays were left out,
    and with them the tail of what a calibration predicts."""
    answer = an_answer((DETECT, CROWDED))
    assert list(hops_s(answer, reading(answer))) == [(2.0, 0.25)]
    paused = structs.replace(DETECT, received_s=1.0, started_s=3.0, finished_s=3.5)
    answer = an_answer((paused,))
    assert list(ways_in_s(answer, reading(answer))) == [(0.0, 0.5)]


def test_what_a_worker_reads_as_it_joins_a_task_tells_no_hop() -> None:
    """Two records of a calibration waited 0.25 s for a worker that joined; predictions under a
    fixed plan, where none joins, replayed their delay as one of the machine (p99 +51 %)."""
    answer = an_answer((DETECT, READ))
    elsewhere = replace(EARLIER, variant="other/v", started_s=0.5, finished_s=1.0)
    here = replace(elsewhere, variant="read/w")
    for before, hops in (([], []), ([elsewhere], []), ([here], [(2.0, 0.25)])):
        at_once = read_at_once([*batches([answer])[:1], *before, *batches([answer])[1:]])
        assert list(hops_s(answer, at_once)) == hops
        assert list(ways_in_s(answer, at_once)) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 5.0)), min_size=1, max_size=30))
def test_records_count_from_the_first_batch_of_their_task_on(runs: list[tuple[str, float]]) -> None:
    """A worker runs batches of 50 ms; the record of each is sent 20 ms before it begins."""
    ends_s, hops = 0.0, []
    for task, idle_s in runs:
        begins_s = ends_s + idle_s
        ends_s = begins_s + 0.05
        hops.append(a_hop(task, "w", begins_s - 0.01, begins_s, ends_s))
    at_once = read_at_once(batches([an_answer((hop,)) for hop in hops]))
    counted = [at_once(hop, hop.started_s - 0.02) for hop in hops]
    tasks = [task for task, _ in runs]
    assert counted == [False, *(now == then for then, now in pairwise(tasks))]


def test_the_way_in_is_two_hops_and_the_way_out_begins_with_the_last_batch() -> None:
    early = structs.replace(DETECT, received_s=1.25)
    answer = an_answer((early, READ), (early, OTHER))
    assert list(ways_in_s(answer, reading(answer))) == [(0.0, 0.625)]
    assert list(ways_out_s(answer)) == [(5.0, 3.0)]
    assert list(ways_out_s(structs.replace(answer, incomplete=True))) == []


TASKS = ("detect", "read")


def later(hop: Hop, by_s: float) -> Hop:
    return structs.replace(
        hop, received_s=hop.received_s + by_s, started_s=hop.started_s + by_s,
        finished_s=hop.finished_s + by_s,
    )  # fmt: skip


FIRST = RecordedBatch(
    worker="w0", variant="detect/v", size=2, received_s=1.0, started_s=1.5, finished_s=2.0
)


def test_a_batch_counts_once_with_the_first_of_its_items() -> None:
    later = structs.replace(DETECT, received_s=1.25)
    found = batches([an_answer((later, READ), (DETECT, READ))])
    assert found == [
        FIRST,
        RecordedBatch(
            worker="w1", variant="read/v", size=2, received_s=2.25, started_s=3.0, finished_s=4.0
        ),
    ]


def test_worker_lag_is_the_gap_between_batches_while_items_wait() -> None:
    waiting = replace(FIRST, received_s=1.9, started_s=2.125, finished_s=3.0)
    fresh = replace(FIRST, received_s=3.5, started_s=3.5, finished_s=4.0)
    other = replace(waiting, worker="w1")
    assert list(lags_s([FIRST, waiting, fresh])) == [(2.0, 0.125)]
    assert list(lags_s([FIRST, other])) == []


def test_undelayed_batch_gives_the_start_latency() -> None:
    waiting = replace(FIRST, received_s=1.9, started_s=2.125, finished_s=3.0)
    fresh = replace(FIRST, received_s=3.5, started_s=3.75, finished_s=4.0)
    patient = replace(fresh, received_s=4.5, started_s=4.75, finished_s=5.0, released=DUE)
    assert list(starts_s([FIRST, waiting, fresh, patient])) == [(3.5, 0.25)]


def test_too_few_answers_tell_nothing() -> None:
    found = seen([an_answer((DETECT, READ))], TABLE, {}, 4.0, 0.0, 10.0)
    assert found == DelayTrace(seconds=10.0)


def test_many_answers_tell_hops_in_wall_seconds_and_when_they_were() -> None:
    early = structs.replace(DETECT, received_s=1.25)
    before = structs.replace(an_answer((later(early, -20.0), later(READ, -20.0))), created_s=-20.0)
    found = seen([before, *[an_answer((early, READ))] * 100], TABLE, {}, 4.0, 0.5, 10.5)
    assert (found.seconds, set(found.hops), set(found.ways_in)) == (
        10.0, {(1.5, 1.0)}, {(-0.5, 2.49975)}
    )  # fmt: skip


def test_real_batches_are_grouped_by_task_and_size() -> None:
    alone = structs.replace(READ, worker="w2", batch=1, finished_s=5.0)
    table = ProfileTable(
        "p", tuple(an_entry(Variant(task=t, name="v", operator="a:B"), {}) for t in TASKS)
    )
    many = [
        an_answer((later(DETECT, s), later(READ, s)), (later(DETECT, s), later(alone, s)))
        for s in range(0, 1010, 10)
    ]
    devices = dict.fromkeys(("w0", "w1", "w2"), "cuda:0")
    found = seen(many, table, devices, 1.0, 0.0, 1010.0)
    by_kind = {kind: {round(by) for _, by in of} for kind, of in found.stretch.items()}
    # The medians are 10 ms alone and 14.3 ms in twos.
    assert by_kind == {
        ("detect", "cuda:0", ANY_SIZE): {35}, ("detect", "cuda:0", 2): {35},
        ("read", "cuda:0", ANY_SIZE): {70, 200}, ("read", "cuda:0", 1): {200},
        ("read", "cuda:0", 2): {70},
    }  # fmt: skip
    assert {task: {s for _, s in of} for task, of in found.starts.items()} == {
        "detect": {0.5}, "read": {0.75}
    }  # fmt: skip


def test_batches_of_an_unknown_run_take_the_times_of_the_others_in_turn() -> None:
    median_s = latency_of(TABLE, "cuda:0")("locate/net", 1)
    first = RecordedBatch(
        worker="w0", variant="locate/net", size=1, received_s=0.0, started_s=0.0,
        finished_s=2 * median_s,
    )  # fmt: skip
    second = replace(first, started_s=1.0, finished_s=1.0 + 3 * median_s)
    owing = [replace(first, started_s=2.0 + n, finished_s=9.0, free=False) for n in range(3)]
    devices = {"w0": "cuda:0"}
    found = list(stretches([first, second, *owing], TABLE, devices))
    assert [at_s for at_s, _ in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [round(value, 6) for _, value in found] == [2.0, 3.0, 2.0, 3.0, 2.0]
    assert list(stretches(owing, TABLE, devices)) == []


def test_on_a_slower_machine_a_batch_takes_its_median_times_the_stretch() -> None:
    variant: Variant = NET
    median = Emulated(TABLE, variant, ("read", "sort"), None)
    slower = Stretched(median, {1: 1.5, 2: 2.5}.__getitem__)
    assert slower.latency_s(1) == 1.5 * median.latency_s(1)
    assert slower.latency_s(2) == 2.5 * median.latency_s(2)
    assert slower.load_s == median.load_s


def test_a_batch_is_as_large_as_its_queries() -> None:
    answers = [structs.replace(an_answer((DETECT,)), id=f"q-{number}") for number in range(2)]
    sizes = {"q-0": 30, "q-1": 4}
    assert [each.size for each in batches(answers, lambda answer: sizes[answer.id])] == [34]
    # The other query of its batch is unknown so far: it counts as large as the first.
    assert [each.size for each in batches(answers[1:], lambda answer: sizes[answer.id])] == [8]
