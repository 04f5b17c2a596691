"""Find a query's answer: search the results topic backwards from its newest record."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.client.formats import Read, answer_reader
from headrace.client.newest_records import newest_first
from headrace.errors import Unsuccessful
from headrace.terminal import waiting
from operators.outcomes import outcome_of
from schemas.codec.single_object import CodecError
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import LEASE_MS, physical

if TYPE_CHECKING:
    from confluent_kafka import Message

MOST_SEARCHED = 200_000  # records, unless a time bounds the search
_PLACE = re.compile(r"(\d+)-(\d+)")


class MatchingAnswer(Protocol):
    """Returns the answer in a record if it matches the search, else None."""

    def __call__(self, message: "Message", *, read: Read) -> Answer | None: ...


def find_answer(kafka: KafkaConfig, pipeline: Pipeline, name: str) -> Answer:
    """Return the newest answer to the query of that id or PARTITION-OFFSET of the input topic.

    Raises ``Unsuccessful`` without one, ``BrokerError`` if the topic cannot be read.
    """
    hint = "check the id, or wait: a query is answered by its deadline and grace at the latest, and"
    return _newest(kafka, pipeline, partial(answer_of, name=name), f"no answer to {name!r}", hint)


def answer_since(
    kafka: KafkaConfig, pipeline: Pipeline, name: str, since_s: float | None
) -> Answer | None:
    """Return the newest answer to the query of exactly that id, sent at ``since_s`` (epoch seconds)
    or later; None without one. Without ``since_s`` only the newest records are searched.

    Raises ``BrokerError`` if the topic cannot be read.
    """
    found = partial(answer_with_id, name=name, read=answer_reader(pipeline))
    looked_at = 0
    for stretch in newest_first(kafka, physical(pipeline.name, RESULTS)):
        answer = newest_answer(stretch, found)
        looked_at += len(stretch)
        if answer is not None:
            return answer
        if looked_at >= MOST_SEARCHED if since_s is None else reaches_back(stretch, since_s):
            return None
    return None


def reaches_back(stretch: Sequence["Message"], since_s: float) -> bool:
    """Return whether every partition in a stretch, newest first, has records older than
    ``since_s``."""
    oldest = {message.partition(): message.timestamp()[1] for message in stretch}
    return all(stamp_ms + LEASE_MS < since_s * 1e3 for stamp_ms in oldest.values())


def last_answer(kafka: KafkaConfig, pipeline: Pipeline, end: str | None) -> Answer:
    """Return the newest answer of all, or of those with that outcome (``operators.outcomes``).

    Raises as ``find_answer`` does.
    """
    what = f"no query that ended {end!r}" if end else "no answer"
    return _newest(kafka, pipeline, partial(answer_that_ended, end=end), what, "look again later:")


def _newest(
    kafka: KafkaConfig, pipeline: Pipeline, found: MatchingAnswer, nothing: str, hint: str
) -> Answer:
    topic = physical(pipeline.name, RESULTS)
    read = answer_reader(pipeline)
    looked_at = 0
    with waiting(f"searching {topic}"):
        for stretch in newest_first(kafka, topic):
            answer = newest_answer(stretch, partial(found, read=read))
            if answer is not None:
                return answer
            looked_at += len(stretch)
    raise Unsuccessful(
        f"{nothing} is among the {looked_at} on {topic}; {hint} answers are kept for an hour"
    )


def newest_answer(
    stretch: Sequence["Message"], found: Callable[["Message"], Answer | None]
) -> Answer | None:
    """Return the answer of a stretch, newest record first, that was given last.

    Records bear the time of their egress's lease, so those of the last seconds are compared by
    ``answered_s``.
    """
    matches: list[Answer] = []
    oldest_ms = 0
    for message in stretch:
        stamp_ms = message.timestamp()[1]
        if matches and stamp_ms < oldest_ms:
            break
        answer = found(message)
        if answer is not None:
            oldest_ms = oldest_ms or stamp_ms - LEASE_MS
            matches.append(answer)
    return max(matches, key=lambda answer: answer.answered_s, default=None)


def answer_of(message: "Message", name: str, read: Read) -> Answer | None:
    """Return the answer in a record of the results topic if ``name`` identifies it, else None."""
    place = _PLACE.fullmatch(name)
    by_key = message.key() == name.encode()
    if not by_key and place is None:
        return None
    record = _answer_in(message, read)
    if record is None:
        return None
    origin = (str(record.origin.partition), str(record.origin.offset))
    matches = record.id == name or (place is not None and origin == place.groups())
    return record if matches else None


def answer_with_id(message: "Message", name: str, read: Read) -> Answer | None:
    """Return the answer in a record of the results topic if its id is ``name``, else None.

    Callers choose ids, so PARTITION-OFFSET may be the id of another query than that of the record
    there.
    """
    record = _answer_in(message, read) if message.key() == name.encode() else None
    return record if record is not None and record.id == name else None


def answer_that_ended(message: "Message", end: str | None, read: Read) -> Answer | None:
    """Return the answer in a record if its outcome is ``end`` (None: any outcome), else None."""
    record = _answer_in(message, read)
    return record if record is not None and end in (None, outcome_of(record)) else None


def _answer_in(message: "Message", read: Read) -> Answer | None:
    try:
        return read(message.value() or b"")
    except CodecError:
        return None  # a foreign record
