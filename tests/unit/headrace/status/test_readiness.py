"""Readiness of a pipeline, and what is missing before."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from headrace.errors import Unsuccessful
from headrace.status.readiness import Readiness
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Lease, Plan, Report, Selection, SelectionTable, Settings

PIPELINE = Pipeline(
    name="words",
    slo_s=1.0,
    tasks=(Task(name="shout", variants=(Variant(task="shout", name="careful", operator="a:B"),)),),
    policies=(Policy(name="static"),),
    policy="static",
)


def plan(epoch: int, *workers: str) -> Plan:
    leases = tuple(
        Lease(worker=w, task="shout", variant="careful", batch=1, slots=(at,), open_slot=at)
        for at, w in enumerate(workers)
    )
    settings = Settings(policy="static", slo_s=1.0)
    return Plan(
        pipeline="words", epoch=epoch, issued_s=0.0, reason="", settings=settings, leases=leases
    )


def report(node: str, epoch: int, state: str = "ready", incarnation: float = 10.0) -> Report:
    role = "worker" if node.startswith("cpu") else "ingress"
    return Report(
        node=node, role=role, pipeline="words", epoch=epoch, incarnation=incarnation, sent_s=11.0,
        state=state,
    )  # fmt: skip


def fresh(*, answered: bool = True) -> Readiness:
    return Readiness(PIPELINE, ("cpu-0", "ingress-0"), since_s=10.0, answered=answered)


def test_a_pipeline_is_ready_when_all_follow_the_newest_plan() -> None:
    told = fresh()
    told.see([plan(2, "cpu-0"), report("cpu-0", 2), report("ingress-0", 2)])
    assert (told.missing(), told.settled()) == ("", 2)


def test_reports_of_an_earlier_life_do_not_count() -> None:
    told = fresh()
    told.see([plan(2, "cpu-0"), report("cpu-0", 2, incarnation=9.0), report("ingress-0", 2)])
    assert told.missing() == "waiting for cpu-0"


def test_an_old_plan_without_a_control_app_is_not_ready() -> None:
    told = fresh(answered=False)
    told.see([plan(2, "cpu-0"), report("cpu-0", 2), report("ingress-0", 2)])
    assert told.missing() == "waiting for the first plan"


def test_loading_variants_of_a_worker_are_reported() -> None:
    told = fresh()
    told.see([plan(2, "cpu-0"), report("cpu-0", 2, "loading"), report("ingress-0", 1)])
    assert told.missing() == "loading: cpu-0 (shout/careful), ingress-0"


def test_only_a_few_of_many_workers_are_named() -> None:
    told = Readiness(PIPELINE, tuple(f"cpu-{n}" for n in range(60)), since_s=10.0)
    assert told.missing() == "waiting for cpu-0, cpu-1, cpu-2, cpu-3 and 56 more"


def test_a_plan_that_leaves_a_task_without_worker_is_reported() -> None:
    told = fresh()
    told.see([plan(2), report("cpu-0", 2, "idle"), report("ingress-0", 2)])
    assert (told.missing(), told.underserved) == ("the plan has no worker for shout", True)


def test_a_worker_that_cannot_load_ends_the_wait() -> None:
    with pytest.raises(Unsuccessful, match="worker cpu-0 failed: no such weights"):
        fresh().see([structs.replace(report("cpu-0", 2, "failed"), error="no such weights")])


def under_tables(*records: object) -> str:
    """Return what is missing for a pipeline whose worker follows tables, after these records."""
    pipeline = replace(PIPELINE, policies=(Policy(name="static", kind="ramsis"),))
    told = Readiness(pipeline, ("cpu-0", "ingress-0"), since_s=10.0, answered=True)
    told.see([plan(2, "cpu-0"), report("cpu-0", 2), report("ingress-0", 2), *records])
    return told.missing()


def tables(**changes: Any) -> Selection:
    made = Selection(
        pipeline="words", task="shout", policy="static", issued_s=0.0, slo_s=1.0, workers=1,
        variants=("careful", "quick"), levels_s=(0.0,),
        tables=(SelectionTable(qps=1.0, rows=((0, 0, 1),)),),
    )  # fmt: skip
    return structs.replace(made, **changes)


def test_where_workers_follow_tables_these_and_all_their_variants_are_awaited() -> None:
    being_made = "building the tables of shout"
    assert under_tables() == being_made
    assert under_tables(tables(complete=False)) == being_made
    assert under_tables(tables(policy="other")) == being_made
    held = {"load_s/shout/careful": 1.0}
    assert under_tables(tables(), structs.replace(report("cpu-0", 2), counts=held)) == (
        "loading: cpu-0 (shout/quick)"
    )
    both = {**held, "load_s/shout/quick": 1.0}
    assert under_tables(tables(), structs.replace(report("cpu-0", 2), counts=both)) == ""


def test_tables_that_cannot_be_made_are_not_awaited() -> None:
    assert under_tables(tables(tables=(), variants=(), reason="raise the SLO")) == ""
