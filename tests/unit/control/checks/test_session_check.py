"""Query plans of sessions are checked independently of the code that placed them."""

from collections.abc import Callable
from dataclasses import replace as with_changes

import pytest
from msgspec.structs import replace

from control.checks.session_check import check_sessions
from control.checks.violations import Constraint, Violation
from schemas.records import Lease, Plan, SessionPlan, SessionStage
from tests.builders import a_lease, a_plan
from tests.session_world import a_space, seats

SPACE = a_space()
DEVICES = seats(SPACE)


def a_seat_lease(worker: str, task: str, slot: int) -> Lease:
    return a_lease(worker, slots=(slot,), task=task)


def a_stage(task: str, tier: str, device: str, slot: int, quarters: int) -> SessionStage:
    return SessionStage(
        task=task, setting=f"{task}/v@x=1", tier=tier, device=device, slot=slot, quarters=quarters
    )


LEASES = [
    a_seat_lease("handheld-0-scan", "scan", 0),
    a_seat_lease("handheld-1-scan", "scan", 1),
    a_seat_lease("cloud-0-read", "read", 0),
]
ONE = SessionPlan(
    session="a", number=1, slo_s=1.0, admits=True,
    stages=(
        a_stage("scan", "handheld", "handheld-0", 0, 0), a_stage("read", "cloud", "cloud-0", 0, 2),
    ),
)  # fmt: skip
OTHER = replace(
    ONE, session="b",
    stages=(a_stage("scan", "handheld", "handheld-1", 1, 0), ONE.stages[1]),
)  # fmt: skip


def stage(number: int, **changes: object) -> SessionPlan:
    stages = list(ONE.stages)
    stages[number] = replace(stages[number], **changes)
    return replace(ONE, stages=tuple(stages))


READ_IN_BATCHES = with_changes(
    SPACE,
    space=with_changes(
        SPACE.space,
        stages=(SPACE.space.stages[0], with_changes(SPACE.space.stages[1], batched=True)),
    ),
)


MUTATIONS: dict[Constraint, Callable[[], tuple[SessionPlan, ...]]] = {
    Constraint.SESSION_TIER: lambda: (stage(1, tier="handheld"), OTHER),
    Constraint.SESSION_SLOT: lambda: (stage(1, slot=3), OTHER),
    Constraint.SESSION_SHARE: lambda: (stage(1, quarters=3), OTHER),
    Constraint.SESSION_DEVICE: lambda: (stage(0, device="handheld-1", slot=1), OTHER),
    Constraint.SESSION_ONCE: lambda: (ONE, replace(ONE, number=2), OTHER),
}


def the_plan(*sessions: SessionPlan) -> Plan:
    return replace(a_plan(LEASES), sessions=sessions)


def test_two_sessions_share_a_device_and_have_one_each_of_their_own() -> None:
    assert check_sessions(the_plan(ONE, OTHER), SPACE, DEVICES) == ()


@pytest.mark.parametrize("constraint", MUTATIONS, ids=lambda each: each.value)
def test_a_mutated_plan_is_caught(constraint: Constraint) -> None:
    found = check_sessions(the_plan(*MUTATIONS[constraint]()), SPACE, DEVICES)
    assert constraint in {each.constraint for each in found}


def test_the_newest_plan_of_a_session_keeps_its_share_while_it_drains() -> None:
    closing = replace(stage(1, quarters=3), admits=False)
    assert check_sessions(the_plan(closing, OTHER), SPACE, DEVICES) == (
        Violation(Constraint.SESSION_SHARE, ("cloud-0",), 1.25, 1),
    )
    assert check_sessions(the_plan(closing, replace(ONE, number=2), OTHER), SPACE, DEVICES) == ()


def test_a_tier_that_has_no_seat_for_the_task_is_named() -> None:
    plan = the_plan(stage(1, tier="handheld", device="handheld-0"), OTHER)
    found = check_sessions(plan, SPACE, DEVICES)
    assert [each.constraint for each in found] == [Constraint.SESSION_TIER, Constraint.SESSION_SLOT]


def test_a_seat_whose_worker_serves_another_task_is_none() -> None:
    plan = replace(
        the_plan(ONE), leases=(LEASES[0], LEASES[1], a_seat_lease("cloud-0-read", "scan", 0))
    )
    slot = Violation(Constraint.SESSION_SLOT, ("a", "read"), 0)
    assert check_sessions(plan, SPACE, DEVICES) == (slot,)


def test_a_plan_that_drains_may_name_a_worker_that_is_gone() -> None:
    gone = replace(ONE, stages=(a_stage("scan", "handheld", "handheld-9", 7, 0),), admits=False)
    newer = replace(ONE, number=2)
    assert check_sessions(the_plan(gone, newer, OTHER), SPACE, DEVICES) == ()


def test_a_device_has_seats_in_batches_of_one_setting_only() -> None:
    """Quarters alone do not tell: two settings of two quarters each filled a device of seats."""
    other = replace(OTHER.stages[1], setting="read/v@x=2")
    plan = the_plan(ONE, replace(OTHER, stages=(OTHER.stages[0], other)))
    assert check_sessions(plan, SPACE, DEVICES) == ()
    assert check_sessions(the_plan(ONE, OTHER), READ_IN_BATCHES, DEVICES) == ()
    assert check_sessions(plan, READ_IN_BATCHES, DEVICES) == (
        Violation(Constraint.SESSION_POOL, ("cloud-0", "read/v@x=1", "read/v@x=2")),
    )
