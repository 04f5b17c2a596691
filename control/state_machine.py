"""State machine over a transition table; an impossible change raises with its history.

state' = table[state, change]
"""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from schemas.user_errors import HeadraceError

REMEMBERED = 12  # past transitions in an error message

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C", bound=StrEnum)


class ImpossibleTransition(HeadraceError, RuntimeError):
    """A change that the state does not allow; the message lists the past transitions."""


class StateMachine(Generic[S, C]):
    """A state; ``what`` names its owner in errors, ``table`` maps (state, change) to the next."""

    __slots__ = ("_story", "_table", "_what", "state")

    def __init__(self, what: str, table: Mapping[tuple[S, C], S], state: S) -> None:
        self.state = state
        self._what = what
        self._table = table
        self._story: deque[tuple[C, str, S]] = deque(maxlen=REMEMBERED)

    def go(self, change: C, about: str = "") -> S:
        """Take the transition; return the new state, or raise ``ImpossibleTransition``."""
        try:
            self.state = after = self._table[self.state, change]
        except KeyError:
            raise self._impossible(change, about) from None
        self._story.append((change, about, after))
        return after

    def _impossible(self, change: C, about: str) -> ImpossibleTransition:
        return ImpossibleTransition(
            f"{self._what} is {self.state} and cannot {_words(change, about)}; "
            f"before: {self._past() or 'nothing'}"
        )

    def _past(self) -> str:
        return ", ".join(f"{_words(change, about)} -> {to}" for change, about, to in self._story)


def _words(change: StrEnum, about: str) -> str:
    return f"{change} {about}" if about else str(change)
