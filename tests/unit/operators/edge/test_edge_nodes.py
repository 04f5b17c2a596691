"""The nodes of an edge's process, event by event."""

import numpy as np

from control.problem.seats import bound_device
from operators.edge.edge_nodes import edge_nodes, handed
from operators.edge.local_slots import LocalSlots
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces
from operators.serving.worker import Worker
from schemas.effects import (
    COMMANDS,
    PLANS,
    QUERIES,
    Arrived,
    Assign,
    Deliver,
    Effect,
    Event,
    Node,
    Send,
)
from schemas.records import Command, Settings
from tests.builders import a_lease, a_plan, a_work, an_item
from tests.session_world import a_session_pipeline

PARTITIONS = (4096, 4097)
SCAN = f"{bound_device('handheld', 'cam')}-scan"


def the_nodes() -> dict[str, Node]:
    """Return the nodes of a restarted process: partition 4096 has a commit."""
    pipeline, places = a_session_pipeline(), InputPlaces({4096: 17})
    ingress = Ingress("ingress", pipeline, PARTITIONS, incarnation=0.0, places=places)
    worker = Worker(SCAN, pipeline, "scan@handheld", incarnation=0.0)
    return edge_nodes(ingress, "ingress", places, {SCAN: worker}, pipeline, "cam")


def a_session_plan() -> Event:
    plan = a_plan(
        [a_lease(SCAN, "scan", slots=(0,))], settings=Settings(policy="compass", slo_s=1.0)
    )
    return Arrived(plan, PLANS, 0, 0, 0.0)


def of_the_input(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if isinstance(each, Assign) and each.topic == QUERIES]


def test_work_in_memory_keeps_the_values_that_it_was_handed_over_with() -> None:
    local, buffer, boxes = LocalSlots(), np.zeros(2), [1]
    local.read(SCAN, "work.scan", [0])
    items = (an_item(value=buffer), an_item(value={"boxes": boxes}))
    found = handed(Send("work.scan", a_work(0, *items), 0), local, 1.0)
    buffer += 1
    boxes.append(2)
    assert isinstance(found, Deliver)
    assert isinstance(found.event, Arrived)
    first, second = found.event.record.items  # type: ignore[union-attr]
    assert (first.value.tolist(), second.value) == ([0.0, 0.0], {"boxes": [1]})


def test_an_ingress_that_has_read_nothing_leaves_at_once() -> None:
    ingress = the_nodes()["ingress"]
    assert of_the_input([*ingress.handle(a_session_plan(), 0.0)]) == [Assign(QUERIES, PARTITIONS)]
    drain = Command(id="", pipeline="p", action="drain", arguments={})
    effects = ingress.handle(Arrived(drain, COMMANDS, 0, -1, 1.0), 1.0)
    assert of_the_input([*effects]) == [
        Assign(QUERIES, paused=PARTITIONS), Assign(QUERIES, ()),
    ]  # fmt: skip
