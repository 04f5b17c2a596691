"""The ends of a worker's items: what is sent, counted and told to a dispatcher."""

from typing import Any

import pytest
from msgspec import structs

from operators.serving.worker import Worker
from schemas.effects import COMPLETIONS, OUTPUTS, Event, Failed, Woke
from schemas.records import ANSWERED, DROPPED, FAILED, Completion, Work
from tests.builders import (
    a_hop,
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    an_item,
    arrived,
    inferred,
    loaded,
    reports,
    sent,
)

LEASE = structs.replace(a_lease(batch=2), type="fast")  # a dispatcher sends to it


def serving(**changes: Any) -> Worker:
    """Return a worker that serves ``LEASE``; a batch takes 0.1 s."""
    worker = Worker("w", a_pipeline(), "cpu", incarnation=0.0, latency=lambda v, n: 0.1, **changes)
    for event in (Woke(), arrived(a_plan([LEASE])), loaded()):
        worker.handle(event, 0.0)
    return worker


def completions(worker: Worker, *events: tuple[Event, float]) -> list[Completion]:
    """Return what the worker tells its dispatcher during the events."""
    records = [r for event, now in events for r in sent(worker.handle(event, now), COMPLETIONS)]
    return [each for each in records if isinstance(each, Completion)]


def test_each_item_of_a_record_keeps_its_own_path() -> None:
    worker, ways = serving(), [(a_hop(variant="v"),), (a_hop(variant="w"),)]
    items = [an_item(branch=(each,), path=way) for each, way in enumerate(ways)]
    worker.handle(arrived(a_work(0, *items)), 0.1)
    worker.handle(Woke(), 0.1)
    (work,) = sent(worker.handle(inferred(1, "a", "b"), 0.2), OUTPUTS)
    assert isinstance(work, Work)
    assert [item.path[:-1] for item in work.items] == ways


def test_a_dispatcher_is_told_how_long_each_query_waited_and_ran() -> None:
    def times(*events: tuple[Event, float]) -> list[tuple[str, float, float]]:
        worker = serving()
        worker.handle(arrived(a_work(0, deadline_s=1.0)), 0.25)
        told = completions(worker, (Woke(), 0.5), *events)
        return [(each.outcome, each.queued_s, each.run_s) for each in told]

    ran = inferred(1, "a", started_s=0.5, finished_s=0.75)
    assert times((ran, 0.8)) == [(ANSWERED, 0.25, 0.25)]
    assert times((Failed(1, "no"), 1.0)) == [(FAILED, 0.25, 0.5)]
    late = serving()
    late.handle(arrived(a_work(0)), 0.25)
    (dropped,) = completions(late, (Woke(), 0.75))
    assert (dropped.outcome, dropped.queued_s, dropped.run_s) == (DROPPED, 0.5, 0.0)


def test_only_the_item_whose_process_died_names_the_crash_as_it_is_dropped() -> None:
    worker = serving(strikes={"0-0@0.0/": 1})
    for offset in (0, 1):
        worker.handle(arrived(a_work(offset), offset), 0.1)
    records = [r for _ in range(2) for r in sent(worker.handle(Woke(), 0.6), OUTPUTS)]
    works = [each for each in records if isinstance(each, Work)]
    reasons = {work.origin.offset: work.items[0].end.reason for work in works if work.items[0].end}
    assert [("died" in reasons[offset]) for offset in (0, 1)] == [True, False]


@pytest.mark.parametrize("end", [Failed(1, "no"), inferred(1, ValueError("no"))])
def test_an_item_that_fails_counts_once_however_it_fails(end: Event) -> None:
    worker = serving()
    worker.handle(arrived(a_work(0)), 0.1)
    worker.handle(Woke(), 0.1)
    worker.handle(end, 0.2)
    (report,) = reports(worker.handle(Woke(), 1.0))
    assert report.counts["failed/read/v"] == 1
