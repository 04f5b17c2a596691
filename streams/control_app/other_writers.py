"""Whether another control app has written since: two may believe that they are in charge.

An app whose connection was cut learns late that its consumer group has replaced it, and may handle
a command that its successor has carried out. Before it writes a plan or a command result, it looks
at what stands on these topics since its own last record.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.effects import COMMAND_RESULTS, PLANS

WRITTEN = (PLANS, COMMAND_RESULTS)


class Overtaken(Exception):
    """Another control app has written a plan or a command result of this pipeline."""


class Log(Protocol):
    """The shared topics; the method blocks and raises ``BrokerError``."""

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]: ...


class OtherWriters:
    """Compares the topics of plans and command results with what this app wrote."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: Mapping[str, int] = {}  # by logical topic: known up to this offset
        self._own: set[tuple[str, int]] = set()  # (logical topic, offset) written since

    def begin(self, ends: Mapping[str, int]) -> None:
        """Take everything before these offsets as known."""
        self._since = {topic: ends[topic] for topic in WRITTEN if topic in ends}
        self._own = set()

    def wrote(self, topic: str, offset: int) -> None:
        """Record an own record of a logical topic."""
        if topic in WRITTEN:
            self._own.add((topic, offset))

    def check(self) -> None:
        """Raise ``Overtaken`` if another app has written since, or ``BrokerError``; blocks."""
        self._since, others = self._log.written_by_others(self._since, self._own)
        self._own = set()
        if others:
            raise Overtaken
