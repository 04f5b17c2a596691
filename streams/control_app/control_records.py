"""Decoding of the control topics into events, and replay of their history."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from schemas.codec.json_form import decode_any
from schemas.codec.single_object import CodecError, decode
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    PROFILE_RESULTS,
    REPORTS,
    SESSIONS,
    Arrived,
)
from schemas.pipeline import Pipeline
from schemas.records import CommandResult, Garbled, Record
from streams.codecs.wire import Fetched
from streams.kafka.kafka_client import reach
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import read_to_end
from streams.topics import physical

AGAIN_S = 1.0  # between two attempts to start while the broker is away
LED_WITHIN_S = 20.0  # brokers that answer have a leader for every partition within this time


def arrived(pipeline: str, logical: str, fetched: Fetched) -> Arrived | None:
    """Return the event of a control topic's record.

    Return None for a tombstone, and for an unreadable command that names another pipeline.
    """
    if fetched.value is None and logical != COMMANDS:
        return None
    value = fetched.value or b""
    read: Callable[[bytes], Record] = decode_any if logical == COMMANDS else decode
    try:
        record = read(value)
    except CodecError as error:
        typed = _typed(value)
        if typed.get("pipeline", pipeline) not in ("", pipeline):
            return None
        name = typed.get("id")
        record = Garbled(value, str(error), id=_sayable(name) if isinstance(name, str) else "")
    return Arrived(record, logical, fetched.slot, fetched.offset, fetched.at_s)


def _sayable(name: str) -> str:
    # JSON can spell strings that UTF-8 cannot encode; the answer must be sendable.
    return name.encode("utf-8", "replace").decode()


def retained_records(kafka: KafkaConfig, pipeline: Pipeline) -> list[Arrived]:
    """Return every retained plan, command result and command, oldest first within each kind; with
    sessions, also the sessions and their profiles.

    Deleted records are omitted, whether or not compaction has run; a command whose result was
    deleted counts as answered. Raise ``BrokerError`` if a topic cannot be read.
    """
    events: list[Arrived] = []
    more = (SESSIONS, PROFILE_RESULTS) if pipeline.sessions else ()
    for logical in (PLANS, COMMAND_RESULTS, *more, COMMANDS):
        messages = read_to_end(kafka, physical(pipeline.name, logical))
        events += past(pipeline.name, logical, map(fetched_from, messages))
    return events


def past(pipeline: str, logical: str, records: Iterable[Fetched]) -> list[Arrived]:
    """Return the events of a control topic's records, without superseded and deleted ones."""
    listed = list(records)
    if logical != COMMANDS:
        last = {each.key: each.offset for each in listed}
        listed = [each for each in listed if last[each.key] == each.offset]
    found = [arrived(pipeline, logical, each) for each in listed]
    if logical == COMMAND_RESULTS:
        found += [_deleted(pipeline, each) for each in listed]
    return [event for event in found if event is not None]


def _deleted(pipeline: str, fetched: Fetched) -> Arrived | None:
    """Return a substitute for a deleted command result, so that the command is not run again."""
    owner, _, name = (fetched.key or b"").decode("utf-8", "replace").partition("/")
    if fetched.value is not None or owner != pipeline:
        return None
    result = CommandResult(
        id=name, pipeline=pipeline, action="", ok=False, message="deleted", epoch=0,
        finished_s=fetched.at_s,
    )  # fmt: skip
    return Arrived(result, COMMAND_RESULTS, fetched.slot, fetched.offset, fetched.at_s)


def fetched_from(message: Any) -> Fetched:
    """Return a message of the Kafka library as a record of a control topic."""
    _, milliseconds = message.timestamp()
    return Fetched(
        message.topic(), message.partition(), message.offset(), milliseconds / 1e3, message.key(),
        message.value(), None,
    )  # fmt: skip


def _typed(value: bytes) -> dict[str, Any]:
    """Return the value as a JSON object; {} if it is not one."""
    try:
        typed = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return typed if isinstance(typed, dict) else {}


class SharedEnds(Protocol):
    """The ends of the shared topics by logical name; blocks and raises ``BrokerError``."""

    def shared_ends(self) -> dict[str, int]: ...


async def read_back(
    ends: SharedEnds, past: Callable[[], list[Arrived]], kafka: KafkaConfig
) -> tuple[list[Arrived], Mapping[str, int]]:
    """Return the control topics' history, and the offsets from which to read reports, plans and
    profiles. Wait while the broker is away or a partition has no leader."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LED_WITHIN_S
    while True:
        try:
            before = await loop.run_in_executor(None, ends.shared_ends)
            found = await loop.run_in_executor(None, past)
            reports = (await loop.run_in_executor(None, ends.shared_ends))[REPORTS]
            return found, {**before, REPORTS: reports}
        except BrokerError:
            if not await asyncio.to_thread(reachable, kafka):
                until_s = loop.time() + LED_WITHIN_S
            elif loop.time() > until_s:
                raise
            await asyncio.sleep(AGAIN_S)


def reachable(kafka: KafkaConfig) -> bool:
    """Return whether a broker answers."""
    try:
        reach(kafka, AGAIN_S)
    except BrokerError:
        return False
    return True
