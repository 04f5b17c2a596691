"""Inputs of the live driver: a transport to the broker, and an inbox that other threads feed."""

import queue
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct

from schemas.trace_context import Headers
from streams.codecs.wire import Fetched
from streams.topics import Place


class Transport(Protocol):
    """The driver's interface to a broker; ``streams/kafka/transport.py`` implements Kafka's."""

    def fetch(self, timeout_s: float) -> list[Fetched]: ...
    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int: ...
    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None: ...
    def send(
        self, topic: str, value: bytes, slot: int, key: str, headers: Headers = ()
    ) -> None: ...
    def done(self, place: Place, offset: int, note: str) -> None: ...
    def end_turn(self, now: float) -> None: ...
    def end_of(self, place: Place) -> int | None: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...
    @property
    def assigned(self) -> int: ...
    @property
    def patience_s(self) -> float: ...  # how long the next ``end_turn`` may be away


class Inbox:
    """The driver's queue of entries; ``put`` may be called from any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, entry: Any) -> None:
        self._queue.put(entry)

    @property
    def empty(self) -> bool:
        """Whether nothing is queued."""
        return self._queue.empty()

    def drain(self, timeout_s: float) -> list[Any]:
        """Wait for an entry, then return all queued ones; empty after the time-out."""
        try:
            entries = [self._queue.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._queue.empty():
            entries.append(self._queue.get_nowait())
        return entries


class FetchedBatch(Struct, frozen=True):
    """The records of one fetch, with the number of the assignment in effect."""

    assigned: int
    records: list[Fetched]
