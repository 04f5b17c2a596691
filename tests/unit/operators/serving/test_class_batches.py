"""operators/serving/variant_serving.py: the batches of a pipeline with SLO classes."""

import pytest
from msgspec import structs

from operators.serving.worker import Worker
from schemas.effects import Event, Infer, Woke
from tests.builders import (
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    an_item,
    arrived,
    inferred,
    loaded,
    told,
)


def work(offset: int, name: str, deadline_s: float, slo_s: float) -> Event:
    made = a_work(offset, an_item(value=name.encode()), deadline_s=deadline_s)
    return arrived(structs.replace(made, created_s=deadline_s - slo_s), offset)


def ran(worker: Worker, *events: Event, now: float = 0.1) -> list[bytes]:
    """Return the inputs of the batches that begin after the events."""
    effects = told(worker, *[(event, now) for event in (*events, Woke())])
    return [value for each in effects if isinstance(each, Infer) for value in each.values]


@pytest.mark.parametrize(
    ("classes", "behind_s", "values"),
    [({}, 5.0, [b"bulk"]), ({"gold": 0.25}, 5.0, [b"gold"]), ({"gold": 0.25}, 0.25, [b"bulk"])],
)
def test_item_is_not_dropped_for_the_sake_of_items_of_slacker_classes(
    classes: dict[str, float], behind_s: float, values: list[bytes]
) -> None:
    """Batches have one item. The first has 0.15 s left; most took 0.5 s to egress."""
    lease, pipeline = a_lease(batch=1), a_pipeline(slo_classes=classes)
    worker = Worker("w", pipeline, "cpu", incarnation=0.0)
    plan = a_plan([lease, a_lease("r", slots=(5,))], to_egress_s={"read": 0.5})
    told(worker, *[(event, 0.0) for event in (Woke(), arrived(plan), loaded("read/v"))])
    assert ran(worker, work(0, "gold", 0.25, 0.25), work(1, "bulk", 0.75, behind_s)) == values


@pytest.mark.parametrize(("took_s", "size"), [(0.04, 4), (0.048, 3)])
def test_slack_items_join_by_the_time_that_recent_batches_took(took_s: float, size: int) -> None:
    """Batches of four take 0.16 s by the profile, and the first item has 0.18 s left."""
    pipeline = a_pipeline(slo_classes={"gold": 0.25})
    worker = Worker("w", pipeline, "cpu", incarnation=0.0, latency=lambda _, size: 0.04 * size)
    plan = a_plan([a_lease(batch=4), a_lease("r", slots=(5,))])
    told(worker, *[(event, 0.0) for event in (Woke(), arrived(plan), loaded("read/v"))])
    for job in range(1, 14):  # the first of which may have loaded libraries
        assert ran(worker, work(job - 1, "gold", job + 0.25, 0.25), now=float(job))
        worker.handle(inferred(job, "a", started_s=job, finished_s=job + took_s), job + took_s)
    slack = [work(each, "bulk", 25.0, 5.0) for each in (14, 15, 16)]
    assert len(ran(worker, work(13, "gold", 20.25, 0.25), *slack, now=20.07)) == size
