"""A worker with shadows: they wait for idle time and do not affect counts and commits."""

from msgspec.structs import replace

from control.per_query.shadowing import VALID_S, Ways, shadow_of
from operators.serving.worker import Worker
from schemas.effects import (
    OUTPUTS,
    SHADOWS,
    Arrived,
    Assign,
    Done,
    Effect,
    Failed,
    Send,
    Wake,
    Woke,
)
from schemas.pipeline import Labels, Policy
from schemas.records import Work
from tests.builders import (
    SLO_S,
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    arrived,
    inferred,
    inferring,
    loaded,
    reports,
    sent,
)

TAKES_S = 0.1
LEASE = a_lease("w0", batch=4)
WAYS: Ways = (("read/v", (LEASE,)),)


def a_worker(share: float = 0.01, batching: str = "idle") -> Worker:
    static = Policy(name="static", batching=batching)
    labels = Labels(within_s=100.0, shadow_share=share)
    pipeline = a_pipeline(labels=labels, policies=(static,))
    node = Worker("w0", pipeline, "d", incarnation=0.0, latency=lambda v, n: TAKES_S)
    node.handle(Woke(), 0.0)
    node.handle(arrived(a_plan([LEASE])), 0.0)
    node.handle(loaded("read/v"), 0.0)
    return node


def a_shadow(offset: int, now: float = 0.0) -> Arrived:
    event = arrived(shadow_of(a_work(offset), WAYS, 0, now), offset)
    assert isinstance(event, Arrived)
    return event


def woken(node: Worker, now: float) -> list[Effect]:
    return list(node.handle(Woke(), now))


def test_an_idle_worker_runs_a_shadow_whose_offset_was_committed_as_it_came() -> None:
    node = a_worker()
    effects = node.handle(a_shadow(0), 0.0)
    assert Assign("work.read", done=(Done(0, 1),)) in effects
    (batch,) = inferring(woken(node, 0.0))
    ended = node.handle(inferred(batch.job, b"y", finished_s=0.1), 0.1)
    (record,) = sent(ended, SHADOWS)
    assert isinstance(record, Work)
    assert record.items[0].value == b"y"
    assert sent(ended, OUTPUTS) == []
    assert not any(isinstance(effect, Assign) for effect in ended)


def test_an_idle_worker_wakes_for_a_shadow_and_one_whose_items_wait_runs_none() -> None:
    assert a_worker().handle(a_shadow(0), 0.0)[-1] == Wake(0.0)
    node = a_worker(batching="patient")
    node.handle(arrived(a_work(1), 1), 0.0)
    node.handle(a_shadow(0), 0.0)
    assert inferring(woken(node, 0.0)) == []  # the item waits for others
    (batch,) = inferring(woken(node, 0.2))
    assert len(sent(node.handle(inferred(batch.job, b"y", finished_s=0.3), 0.3), OUTPUTS)) == 1


def test_a_shadow_that_is_read_twice_runs_once() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    assert node.handle(a_shadow(0), 0.0) == []
    (batch,) = inferring(woken(node, 0.0))
    assert inferring(node.handle(inferred(batch.job, b"y", finished_s=0.1), 0.1)) == []


def test_a_worker_whose_file_samples_no_shadows_passes_them_over() -> None:
    node = a_worker(share=0.0)
    assert node.handle(a_shadow(0), 0.0) == [Assign("work.read", done=(Done(0, 1),))]
    assert inferring(woken(node, 0.0)) == []


def test_shadows_are_in_no_count_of_the_worker() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    (batch,) = inferring(woken(node, 0.0))
    node.handle(inferred(batch.job, b"y", finished_s=0.1), 0.1)
    (report,) = reports(woken(node, 1.0))
    assert [name for name in report.counts if "/" in name] == ["load_s/read/v"]
    assert report.slots[0].queued == 0


def test_items_of_queries_go_first() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    node.handle(arrived(a_work(1), 1), 0.0)
    (batch,) = inferring(woken(node, 0.0))
    ended = node.handle(inferred(batch.job, b"y", finished_s=0.1), 0.1)
    assert len(sent(ended, OUTPUTS)) == 1
    assert len(inferring(ended)) == 1  # now the shadow


def test_a_worker_whose_items_have_no_slack_runs_none_until_they_have() -> None:
    node = a_worker()
    node.handle(arrived(a_work(0, deadline_s=0.15), 0), 0.0)
    (batch,) = inferring(woken(node, 0.0))
    node.handle(a_shadow(1, now=1.0), 0.0)
    ended = node.handle(inferred(batch.job, b"y", finished_s=0.1), 0.1)
    assert inferring(ended) == []  # it ended 0.05 s early, and a shadow takes 0.1 s
    assert inferring(woken(node, 1.0)) == []
    assert len(inferring(woken(node, 10.5))) == 1  # two windows later


def test_a_worker_that_just_dropped_an_item_runs_no_shadow() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    node.handle(arrived(a_work(1, deadline_s=0.05), 1), 0.0)
    assert inferring(woken(node, 0.0)) == []
    assert len(inferring(woken(node, 10.0))) == 1  # two windows later


def test_a_shadow_is_judged_by_the_longest_batches_of_this_worker() -> None:
    """One batch planned for 0.1 s takes 0.35 s, so a slack of 0.2 s leaves no room."""
    node = a_worker()
    for number, took_s in enumerate((9.0, 0.1, 0.1, 0.35, 0.1, 0.1, 0.1)):
        at_s = 20.0 * number
        work = a_work(number, deadline_s=at_s + took_s + 0.2)
        node.handle(arrived(work, number), at_s)
        (batch,) = inferring(woken(node, at_s))
        ends_s = at_s + took_s
        node.handle(inferred(batch.job, b"y", started_s=at_s, finished_s=ends_s), ends_s)
    node.handle(a_shadow(9, now=ends_s), ends_s)
    assert inferring(woken(node, ends_s)) == []


def test_a_shadow_is_given_up_in_time_and_where_the_variant_is_another() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    assert inferring(woken(node, VALID_S + 0.1)) == []
    late = a_shadow(1, now=20.0)
    assert isinstance(late.record, Work)
    assert late.record.session is not None
    stage = replace(late.record.session.stages[0], setting="read/w")
    other = replace(late.record, session=replace(late.record.session, stages=(stage,)))
    node.handle(replace(late, record=other), 20.0)
    assert inferring(woken(node, 20.0)) == []


def test_a_shadow_that_fails_ends_as_a_shadow() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    (batch,) = inferring(woken(node, 0.0))
    ended = node.handle(inferred(batch.job, ValueError("no"), finished_s=0.1), 0.1)
    (record,) = sent(ended, SHADOWS)
    assert isinstance(record, Work)
    end = record.items[0].end
    assert end is not None
    assert end.outcome == "failed"
    assert [e for e in ended if isinstance(e, Send) and e.topic == OUTPUTS] == []
    assert SLO_S < VALID_S


def test_a_shadow_that_fails_with_its_batch_is_in_no_count() -> None:
    node = a_worker()
    node.handle(a_shadow(0), 0.0)
    (batch,) = inferring(woken(node, 0.0))
    node.handle(Failed(batch.job, "no"), 0.1)
    (report,) = reports(woken(node, 1.0))
    assert "failed/read/v" not in report.counts
