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

    def go(self, change: C, about: str = "") -> None:
        """Take the transition; raise ``ImpossibleTransition`` if the table has none."""
        after = self._table.get((self.state, change))
        if after is None:
            raise ImpossibleTransition(
                f"{self._what} is {self.state} and cannot {_words(change, about)}; "
                f"before: {self._past() or 'nothing'}"
            )
        self._story.append((change, about, after))
        self.state = after

    def _past(self) -> str:
        return ", ".join(f"{_words(change, about)} -> {to}" for change, about, to in self._story)


def _words(change: StrEnum, about: str) -> str:
    return f"{change} {about}" if about else str(change)
