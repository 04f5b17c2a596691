"""The plan in force at the gateway, and whether it accepts queries."""

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.gateway.plans_in_force import NewestPlans, fault
from schemas.codec.single_object import encode
from schemas.records import Lease, Plan, Settings
from tests.builders import a_pipeline

PIPELINE = a_pipeline({"read": ["look"], "look": []})


def a_lease(task: str, open_slot: int = 0) -> Lease:
    return Lease(
        worker="w", task=task, variant="v", batch=1, slots=(max(open_slot, 0),), open_slot=open_slot
    )


def a_plan(leases: Sequence[Lease] = (), *, paused: bool = False, **more: Any) -> Plan:
    values = {"epoch": 3, "issued_s": 10.0, **more}
    settings = Settings(policy="static", slo_s=1.0, paused=paused)
    return Plan(
        pipeline=PIPELINE.name, reason="", settings=settings, leases=tuple(leases), **values
    )


BOTH = (a_lease("read"), a_lease("look"))


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (None, "has no plan yet"),
        (a_plan(BOTH, paused=True), "is paused"),
        (a_plan(BOTH[1:]), "serves task read"),
        (a_plan((a_lease("read", -1), BOTH[1])), "serves task read"),
    ],
)
def test_a_pipeline_that_takes_no_queries_says_why(plan: Plan | None, told: str) -> None:
    assert told in fault(PIPELINE, plan)


def test_a_pipeline_with_a_worker_for_its_first_task_takes_queries() -> None:
    assert (fault(PIPELINE, a_plan(BOTH)), fault(PIPELINE, a_plan(BOTH[:1]))) == ("", "")


@pytest.mark.parametrize(
    ("epoch", "issued_s", "takes_its_place"),
    [(4, 11.0, True), (3, 10.0, True), (2, 9.0, False), (1, 20.0, True)],  # the last: purged
)
def test_the_newest_plan_is_in_force(epoch: int, issued_s: float, takes_its_place: bool) -> None:
    assert a_plan(epoch=epoch, issued_s=issued_s).supersedes(a_plan()) == takes_its_place
    assert a_plan(epoch=epoch, issued_s=issued_s).supersedes(None)


def test_a_pipeline_that_is_purged_has_no_plan_until_it_is_made_anew() -> None:
    plans = NewestPlans()
    plans.see(b"words/1", encode(a_plan(epoch=8)))
    plans.see(b"words/2", encode(a_plan(epoch=9)))
    plans.see(b"words/1", b"")  # outdated
    assert plans.of(PIPELINE.name) == a_plan(epoch=9)
    plans.see(b"words/2", b"")
    assert plans.of(PIPELINE.name) is None
    plans.see(b"words/1", encode(a_plan(epoch=1)))
    assert plans.of(PIPELINE.name) == a_plan(epoch=1)
