"""The flow of a plan: route shares by sender, multiplied by observed fan-outs."""

import pytest

from headrace.dashboard.plan_flow import plan_flow
from schemas.records import Factor, Lease, Route
from tests.builders import a_pipeline, a_plan

PIPELINE = a_pipeline({"detect": ("read",), "read": ()})


def lease(worker: str, task: str, variant: str, slot: int) -> Lease:
    return Lease(worker=worker, task=task, variant=variant, batch=1, slots=(slot,), open_slot=slot)


def test_there_is_no_flow_without_a_plan() -> None:
    assert plan_flow(PIPELINE, None) == {"nodes": [], "links": []}


def test_items_go_by_the_routes_of_their_sender_and_grow_by_the_fan_out() -> None:
    plan = a_plan(
        [
            lease("a", "detect", "fast", 0),
            lease("b", "detect", "good", 1),
            lease("c", "read", "small", 0),
            lease("d", "read", "large", 1),
        ],
        routes=(
            Route("detect", 0, 0.75),
            Route("detect", 1, 0.25),
            Route("read", 0, 1.0),
            Route("read", 1, 1.0, source="detect/good"),
        ),
        factors=(Factor("detect/good", "read", 4.0, 100.0),),
    )
    found = plan_flow(PIPELINE, plan)
    links = {
        (x["source"], x["target"]): (x["items"], x["share"], x["part"]) for x in found["links"]
    }
    assert links == {
        ("detect", "detect/fast"): (0.75, 0.75, 0.75),
        ("detect/fast", "read"): (0.75, 1.0, pytest.approx(0.75 / 1.75)),
        ("detect", "detect/good"): (0.25, 0.25, 0.25),
        ("detect/good", "read"): (1.0, 4.0, pytest.approx(1 / 1.75)),
        ("read", "read/small"): (0.75, pytest.approx(0.75 / 1.75), pytest.approx(0.75 / 1.75)),
        ("read", "read/large"): (1.0, pytest.approx(1 / 1.75), pytest.approx(1 / 1.75)),
    }
    assert [(x["name"], x["items"], x["workers"]) for x in found["nodes"]] == [
        ("detect", 1.0, 0), ("detect/fast", 0.75, 1), ("detect/good", 0.25, 1),
        ("read", 1.75, 0), ("read/small", 0.75, 1), ("read/large", 1.0, 1),
    ]  # fmt: skip


def test_without_routes_the_workers_share_in_equal_parts() -> None:
    plan = a_plan([lease("a", "detect", "v", 0), lease("b", "detect", "v", 1),
                   lease("c", "detect", "w", 2)])  # fmt: skip
    shares = {x["target"]: x["share"] for x in plan_flow(PIPELINE, plan)["links"]}
    assert shares["detect/v"] == pytest.approx(2 / 3)
    assert shares["detect/w"] == pytest.approx(1 / 3)


def test_a_worker_that_only_drains_gets_nothing() -> None:
    drained = Lease(worker="a", task="detect", variant="v", batch=1, slots=(0,))
    assert plan_flow(PIPELINE, a_plan([drained]))["links"] == []
