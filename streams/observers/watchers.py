"""The observers of a role, each of which looks at few of the events that a node handles.

Most events are queries and work, at which no observer looks. One pass finds that for all observers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from schemas.effects import Arrived, Effect, Event, Observer, Send

Saw = Callable[[str, Event, Sequence[Effect], float], None]


class Watcher(Observer, Protocol):
    """An observer that looks at events only which have one of ``kinds``: the type of the event, of
    one of its effects, or of the record that arrived or is sent."""

    @property
    def kinds(self) -> frozenset[type]: ...


class Watchers:
    """An observer that passes each event on to the watchers that look at it."""

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        self._by_kind: dict[type, tuple[Saw, ...]] = {}
        for each in watchers:
            for kind in each.kinds:
                self._by_kind[kind] = (*self._by_kind.get(kind, ()), each.saw)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        by_kind = self._by_kind
        kind: type = type(event)
        if kind is Arrived:
            kind = type(event.record)  # type: ignore[union-attr]
        found = by_kind.get(kind, ())
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                kind = type(effect.record)  # type: ignore[union-attr]
            if kind in by_kind:
                found += by_kind[kind]
        if found:
            for saw in dict.fromkeys(found):
                saw(node, event, effects, now)
