"""A state with a transition table: accepted and refused transitions, with their history."""

from enum import StrEnum

import pytest

from control.state_machine import REMEMBERED, ImpossibleTransition, StateMachine


class Door(StrEnum):
    OPEN = "open"
    SHUT = "shut"


class Push(StrEnum):
    CLOSE = "close"
    UNLOCK = "unlock"


TABLE = {(Door.OPEN, Push.CLOSE): Door.SHUT, (Door.SHUT, Push.UNLOCK): Door.OPEN}


def test_state_machine_accepts_the_transitions_of_its_table() -> None:
    door = StateMachine("the door", TABLE, Door.OPEN)
    door.go(Push.CLOSE)
    assert door.state is Door.SHUT
    door.go(Push.UNLOCK, "with a key")
    assert door.state is Door.OPEN


def test_invalid_transition_raises_with_its_history() -> None:
    door = StateMachine("the door", TABLE, Door.OPEN)
    door.go(Push.CLOSE, "hard")
    with pytest.raises(ImpossibleTransition) as raised:
        door.go(Push.CLOSE, "again")
    assert str(raised.value) == (
        "the door is shut and cannot close again; before: close hard -> shut"
    )
    assert door.state is Door.SHUT


def test_transition_history_starts_empty_and_stays_short() -> None:
    door = StateMachine("the door", TABLE, Door.OPEN)
    with pytest.raises(ImpossibleTransition, match="before: nothing"):
        door.go(Push.UNLOCK)
    for _ in range(REMEMBERED):
        door.go(Push.CLOSE)
        door.go(Push.UNLOCK)
    with pytest.raises(ImpossibleTransition) as raised:
        door.go(Push.UNLOCK)
    assert str(raised.value).count("->") == REMEMBERED
