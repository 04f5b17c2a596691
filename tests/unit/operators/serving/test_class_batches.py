"""operators/serving/variant_serving.py: the batches of a pipeline with SLO classes."""

import pytest
from msgspec import structs

from operators.serving.worker import Worker
from schemas.effects import Event, Infer, Woke
from tests.builders import a_lease, a_pipeline, a_plan, a_work, an_item, arrived, loaded, told


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
