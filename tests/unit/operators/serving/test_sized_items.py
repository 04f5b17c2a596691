"""Item sizes: given by the upstream operator, and batches limited by total size."""

from typing import Any

import pytest
from msgspec import structs

from headrace import Sized
from operators.serving.worker import Worker
from schemas.effects import COMPLETIONS, OUTPUTS, Infer, Inferred, Send, Woke
from schemas.pipeline import QuerySize
from schemas.records import FAILED, Work
from tests.builders import a_lease, a_pipeline, a_plan, a_work, an_item, arrived, loaded

CHAIN = {"locate": ["read"], "read": []}


def a_sized_worker(task: str, batch: int = 0, type_: str = "") -> Worker:
    pipeline = a_pipeline(CHAIN, size=QuerySize(most=100, batch=batch))
    worker = Worker("w", pipeline, "cpu", incarnation=0.0)
    lease = structs.replace(a_lease(task=task, batch=1), type=type_)
    worker.handle(Woke(), 0.0)
    worker.handle(arrived(a_plan([lease, a_lease("r", slots=(5,), task="read")])), 0.0)
    worker.handle(loaded(f"{task}/v"), 0.0)
    return worker


def begun(worker: Worker, *sizes: int) -> Infer:
    """Return the batch that starts when queries of these sizes wait."""
    for offset, size in enumerate(sizes):
        work = a_work(offset, an_item(value=offset), task="read", size=size)
        worker.handle(arrived(work, offset=offset), 0.1)
    (batch,) = [e for e in worker.handle(Woke(), 0.1) if isinstance(e, Infer)]
    return batch


@pytest.mark.parametrize(
    ("bound", "sizes", "values", "total"),
    [
        (0, (40, 50, 30), (0,), 40),  # without a bound every query is a batch of its own
        (100, (40, 50, 30), (0, 1), 90),
        (100, (40, 60, 30), (0, 1), 100),
        (50, (90, 10), (0,), 90),  # a query above the bound runs alone
    ],
)
def test_a_batch_takes_the_first_queries_up_to_a_total_size(
    bound: int, sizes: tuple[int, ...], values: tuple[int, ...], total: int
) -> None:
    batch = begun(a_sized_worker("read", bound), *sizes)
    assert (batch.values, batch.size) == (values, total)


def test_items_that_take_the_places_of_late_ones_keep_to_the_total_size() -> None:
    worker = a_sized_worker("read", 100)
    sizes = {0: 10, 1: 10, 2: 80, 3: 60, 4: 20}
    for offset, size in sizes.items():
        deadline_s = 0.05 if size == 10 else 9.0
        work = a_work(offset, an_item(value=offset), task="read", size=size, deadline_s=deadline_s)
        worker.handle(arrived(work, offset=offset), 0.1)
    (batch,) = [e for e in worker.handle(Woke(), 0.1) if isinstance(e, Infer)]
    assert (batch.values, batch.size) == ((2,), 80)
    (batch,) = [
        e for e in worker.handle(Inferred(1, (b"",), 0.1, 0.2), 0.2) if isinstance(e, Infer)
    ]
    assert (batch.values, batch.size) == ((3, 4), 80)


def test_a_query_that_ingress_dispatched_is_a_batch_of_its_own() -> None:
    batch = begun(a_sized_worker("read", 100, type_="gpu"), 10, 10)
    assert (batch.values, batch.size) == ((0,), 10)


def test_a_dispatcher_hears_of_a_query_after_its_answer_has_left() -> None:
    worker = a_sized_worker("read", 100, type_="gpu")
    batch = begun(worker, 10)
    effects = worker.handle(Inferred(batch.job, ["a"], 0.1, 0.11), 0.11)
    assert [e.topic for e in effects if isinstance(e, Send)] == [OUTPUTS, COMPLETIONS]


def made(*output: Any) -> list[Work]:
    """Return what a worker of the first task forwards for one query of size 40."""
    worker = a_sized_worker("locate")
    worker.handle(arrived(a_work(0, an_item(), task="locate", size=40)), 0.1)
    (batch,) = [e for e in worker.handle(Woke(), 0.1) if isinstance(e, Infer)]
    event = Inferred(batch.job, (list(output),), 0.1, 0.11)
    sent = [e for e in worker.handle(event, 0.11) if isinstance(e, Send)]
    return [e.record for e in sent if isinstance(e.record, Work)]


def test_the_operator_above_gives_its_items_sizes() -> None:
    found = made(Sized("a", 7), "b", Sized("c", 7), Sized("d", 9))
    assert [(w.size, [item.value for item in w.items]) for w in found] == [
        (7, ["a", "c"]),
        (40, ["b"]),
        (9, ["d"]),
    ]


def test_items_without_a_size_have_that_of_their_query() -> None:
    assert [(w.task, w.size, len(w.items)) for w in made("a", "b")] == [("read", 40, 2)]


def test_an_item_above_the_largest_size_fails_and_says_why() -> None:
    small, large = made(Sized("a", 100), Sized("b", 101))
    assert (small.task, small.size) == ("read", 100)
    (item,) = large.items
    assert item.end is not None
    assert item.end.outcome == FAILED
    assert "size 101" in item.end.reason
    assert "size.most of 100" in item.end.reason


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_size_is_a_whole_number_from_1(size: Any) -> None:
    with pytest.raises(ValueError, match="whole number from 1"):
        Sized("a", size)
