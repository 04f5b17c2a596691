"""A hanging role is detected by the signs of life that it no longer gives."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.effects import REPORTS, Send, Woke
from schemas.enumerations import NodeState
from streams.observers.health import LIVE_S, Health
from tests.control_world import an_ingress_report
from tests.memory_transport import VirtualClock

REPORT = replace(an_ingress_report(0.0), epoch=3, state=NodeState.READY)


def seen(health: Health, node: str = "i", **changes: Any) -> None:
    health.saw(node, Woke(), [Send(REPORTS, replace(REPORT, **changes), 0)], 0.0)


def test_a_role_lives_as_long_as_each_of_its_nodes_reports() -> None:
    clock = VirtualClock()
    health = Health(clock)
    assert (health.live(), health.ready()) == ("", "not started yet")
    seen(health, "a")
    seen(health, "b")
    clock.now = LIVE_S
    seen(health, "a")
    assert health.live() == ""
    clock.now = LIVE_S + 1.0
    assert health.live() == health.ready() == "b has made no progress for 11 s"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"epoch": 0}, "i has no plan yet"),
        ({"state": NodeState.LOADING}, "i is loading"),
        ({"state": NodeState.STUCK}, "i is stuck"),
        ({"state": NodeState.IDLE}, ""),
    ],
)
def test_a_role_is_ready_when_its_nodes_can_take_work(changes: Any, why: str) -> None:
    health = Health(VirtualClock())
    seen(health, **changes)
    assert health.ready() == why


def test_a_sign_is_left_once_a_second() -> None:
    clock, touched = VirtualClock(), []
    health = Health(clock, lambda: touched.append(clock.now))
    for tick in range(16):
        clock.now = tick * 0.25
        health.beat("control")
    assert touched == [0.0, 1.0, 2.0, 3.0]
