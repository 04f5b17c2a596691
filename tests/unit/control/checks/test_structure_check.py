"""control/checks/structure_check.py: all violated constraints are found and no others."""

import pytest
from msgspec.structs import replace

from control.checks.structure_check import check_structure
from control.checks.violations import Constraint, Violation, sentences
from schemas.records import Lease, Plan, Route, Settings
from tests.control_world import a_lease, a_pipeline

PIPELINE = a_pipeline(slots=4)
LEASES = (
    a_lease("a", "locate", "net", [0], 0),
    a_lease("b", "read", "forest", [0, 2], 0),
    a_lease("c", "read", "vit", [1], 1),
)
GOOD = Plan(
    pipeline="postcode",
    epoch=1,
    issued_s=1.0,
    reason="",
    settings=Settings(policy="static", slo_s=0.3),
    leases=LEASES,
    routes=(Route("locate", 0, 1.0), Route("read", 0, 0.25), Route("read", 1, 0.75)),
)


def with_lease(lease: Lease) -> Plan:
    leases = {each.worker: each for each in LEASES} | {lease.worker: lease}
    return replace(GOOD, leases=tuple(leases.values()))


def test_a_good_plan_breaks_nothing() -> None:
    assert check_structure(GOOD, PIPELINE) == ()


@pytest.mark.parametrize(
    ("plan", "clause"),
    [
        (replace(GOOD, leases=(*LEASES, a_lease("a", "read", "vit", [3]))), "'a' has 2 leases"),
        (with_lease(a_lease("c", "read", "vit", [0], 0)), "slot 0 of task 'read' is open for 2"),
        (with_lease(a_lease("c", "read", "vit", [1, 2], 1)), "slot 2 of task 'read' is read 2"),
        (with_lease(a_lease("c", "read", "vit", [3], 1)), "does not read slot 1, which it has"),
        (with_lease(a_lease("a", "locate", "net", [1], 0)), "does not read slot 0, which it has"),
        (with_lease(a_lease("c", "read", "vit", [1, 4], 1)), "slot 4 of task 'read'"),
        (with_lease(a_lease("c", "read", "ocr", [1], 1)), "'read/ocr', which its task"),
        (with_lease(a_lease("c", "read", "vit", [1], 1, batch=0)), "batches of 0"),
        (with_lease(a_lease("d", "sort", "x", [])), "'d' is to serve 'sort', which is no task"),
        (with_lease(a_lease("c", "read", "vit", [1])), "slot 1 of task 'read', which is not open"),
        (with_lease(a_lease("a", "locate", "net", [0])), "'locate' has no open slot"),
        (replace(GOOD, routes=GOOD.routes[:2]), "shares of task 'read' sum to 0.25"),
        (replace(GOOD, routes=GOOD.routes[1:]), "shares of task 'locate' sum to 0;"),
        (replace(GOOD, routes=(*GOOD.routes, GOOD.routes[0])), "has 2 routes from one sender"),
        (replace(GOOD, routes=(*GOOD.routes, Route("read", 0, 0.5, "net"))),
         "shares of task 'read' from 'net' sum to 0.5"),
        (replace(GOOD, routes=(GOOD.routes[0], Route("read", 0, -0.5), Route("read", 1, 1.5))),
         "a share of task 'read' is -0.5"),
        (replace(GOOD, routes=(replace(GOOD.routes[0], spare_qps=-1.0), *GOOD.routes[1:])),
         "a route of task 'locate' states a spare capacity or latency below 0"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(plan: Plan, clause: str) -> None:
    assert clause in sentences(check_structure(plan, PIPELINE))


def test_a_draining_worker_reads_its_slots_and_gets_no_route() -> None:
    draining = with_lease(a_lease("d", "read", "vit", [3]))
    assert check_structure(draining, PIPELINE) == ()
    routed = replace(draining, routes=(*GOOD.routes, Route("read", -1, 0.0)))
    assert check_structure(routed, PIPELINE) == (Violation(Constraint.ROUTE_OPEN, ("read", "-1")),)
    last = replace(GOOD, leases=(LEASES[0], a_lease("b", "read", "vit", [0])), feasible=False)
    assert check_structure(replace(last, routes=GOOD.routes[:1]), PIPELINE) == ()


def test_every_slot_of_a_task_may_be_open() -> None:
    plan = replace(GOOD, leases=(*LEASES[:1], a_lease("b", "read", "vit", [0], 0), LEASES[2]))
    assert check_structure(plan, a_pipeline(slots=2)) == ()


def test_the_figure_below_0_of_a_route_is_named() -> None:
    plan = replace(GOOD, routes=(replace(GOOD.routes[0], latency_s=-1.0), *GOOD.routes[1:]))
    figures = Violation(Constraint.ROUTE_FIGURES, ("locate",), -1.0)
    assert check_structure(plan, PIPELINE) == (figures,)


def test_more_replicas_than_slots_are_found() -> None:
    pipeline = a_pipeline(slots=1)
    plan = replace(GOOD, leases=(*LEASES[:2], a_lease("c", "read", "vit", [1], 1)))
    slots = Violation(Constraint.TASK_SLOTS, ("read",), 2, 1)
    assert slots in check_structure(plan, pipeline)


def test_an_infeasible_plan_may_leave_a_task_alone() -> None:
    plan = replace(GOOD, leases=LEASES[:1], routes=GOOD.routes[:1], feasible=False)
    assert check_structure(plan, PIPELINE) == ()
