"""Writes of the control app, unless another app has written: two may consider themselves in charge.

An app whose connection was cut learns late that its consumer group has replaced it, and may handle
a command that its successor has already executed. Before it writes a plan, a command result or a
session's record, it checks for records on these topics since its own last one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from schemas.codec.single_object import encode
from schemas.effects import COMMAND_RESULTS, PLANS, SESSIONS, Forget, Send
from schemas.pipeline import Pipeline
from schemas.records import Plan
from schemas.release import UNDECLARED
from schemas.user_errors import NO_BROKER, HeadraceError
from streams.codecs.size_gate import fitting
from streams.kafka.missing_copies import ASK_AFTER_S, Ask, MissingCopies
from streams.topics import physical

WRITTEN = (PLANS, COMMAND_RESULTS, SESSIONS)

# (topic, value, partition (None: by key), key); returns the offset once the record is on the broker
Write = Callable[[str, bytes | None, int | None, bytes | None], Awaitable[int]]


class Overtaken(Exception):
    """Another control app has written a plan, a command result or a session of this pipeline."""


class WriteRefused(HeadraceError):
    """The broker refuses a record for good; the control app ends."""

    exit_code = NO_BROKER


class SharedLog(Protocol):
    """The shared topics; the method blocks and raises ``BrokerError``."""

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]: ...


class OtherWriters:
    """Compares the topics of plans, command results and sessions with what this app wrote."""

    def __init__(self, log: SharedLog) -> None:
        self._log = log
        self._since: Mapping[str, int] = {}  # by logical topic: known up to here
        self._own: set[tuple[str, int]] = set()  # (logical topic, offset) of records written since

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


class ControlWriter:
    """Writes the controller's records with ``write``; before each plan, ``write_as`` sets the
    plan's schema release."""

    write: Write

    def __init__(
        self, pipeline: Pipeline, log: SharedLog, write_as: Callable[[int], None] | None
    ) -> None:
        self._pipeline = pipeline
        self._others = OtherWriters(log)
        self._write_as = write_as

    def begin(self, ends: Mapping[str, int]) -> None:
        """Begin a term in charge; everything before these offsets is known."""
        self._others.begin(ends)

    async def send(self, effect: Send) -> None:
        """Write a record; raise ``RecordTooLarge``, ``Overtaken`` or ``BrokerError``."""
        topic = physical(self._pipeline.name, effect.topic)
        slot = effect.slot if effect.slot >= 0 else None
        if isinstance(effect.record, Plan) and self._write_as is not None:
            self._write_as(effect.record.release or UNDECLARED)  # applies from this plan on
        pieces = [*fitting(effect, encode, self._pipeline.egress_partitions)]
        await self._check(effect.topic)
        for send, value in pieces:
            offset = await self.write(topic, value, slot, send.key.encode() or None)
            self._others.wrote(effect.topic, offset)

    async def forget(self, effect: Forget) -> None:
        """Delete a key of a compacted topic; raise ``Overtaken`` or ``BrokerError``."""
        await self._check(effect.topic)
        topic = physical(self._pipeline.name, effect.topic)
        self._others.wrote(effect.topic, await self.write(topic, None, 0, effect.key.encode()))

    async def _check(self, topic: str) -> None:
        if topic in WRITTEN:
            await asyncio.get_running_loop().run_in_executor(None, self._others.check)


class CopiesWait:
    """Holds back further records until the topic has enough copies; ``ask`` waits for the broker.

    Otherwise the app would read its topics back and decide anew again and again, for a record that
    no broker takes.
    """

    def __init__(self, ask: Ask) -> None:
        self._missing = MissingCopies(ask)
        self._topic = ""  # "": none waits
        self._asked_s = float("-inf")

    def refused(self, topic: str) -> None:
        """Begin to wait: this topic took no record in time."""
        self._topic, self._asked_s = topic, float("-inf")

    def waits(self, now: float) -> bool:
        """Return whether copies are missing, by an answer of the last ``ASK_AFTER_S``; blocks."""
        if self._topic and now >= self._asked_s + ASK_AFTER_S:
            self._asked_s = now
            if not self._missing.ask(now, {(self._topic, -1)}):
                self._missing.look(now, None, tuple)  # logs that they are back
                self._topic = ""
        return bool(self._topic)
