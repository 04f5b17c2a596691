"""List and show dead letters (records that no codec could decode), and replay them.

A letter's name is PARTITION-OFFSET, its position on the dead-letters topic.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from headrace.client.newest_records import newest_first, one_record
from headrace.client.topic_clients import ACKNOWLEDGED_WITHIN_S
from headrace.errors import Unsuccessful
from schemas.codec.raw import ID_HEADER
from schemas.codec.single_object import CodecError, decode
from schemas.effects import DEAD_LETTERS, QUERIES
from schemas.records import DeadLetter
from schemas.visible_text import one_line
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

_NAME = re.compile(r"(\d+)-(\d+)")
STRETCH = 50  # records may be large
PREVIEW = 256  # bytes
PER_LINE = 16


@dataclass(frozen=True, slots=True)
class Filed:
    """A letter and its name on the dead-letters topic."""

    name: str
    letter: DeadLetter

    def as_json(self, *, with_value: bool) -> dict[str, Any]:
        """Return the letter as JSON; ``with_value`` adds its value in base64."""
        letter = self.letter
        row: dict[str, Any] = {
            "letter": self.name,
            "at_s": letter.at_s,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "node": letter.node,
            "reason": letter.reason,
            "bytes": len(letter.value),
            "headers": {name: held.decode(errors="replace") for name, held in letter.headers},
        }
        if with_value:
            row["value"] = base64.b64encode(letter.value).decode()
        return row


def newest_letters(kafka: KafkaConfig, pipeline: str, last: int) -> list[Filed]:
    """Return the last letters, newest first. Raises ``BrokerError``."""
    topic = physical(pipeline, DEAD_LETTERS)
    messages = (m for stretch in newest_first(kafka, topic, STRETCH) for m in stretch)
    found = (_filed(f"{m.partition()}-{m.offset()}", m.value() or b"") for m in messages)
    return list(islice((each for each in found if each is not None), last))


def one_letter(kafka: KafkaConfig, pipeline: str, name: str) -> Filed:
    """Return the letter of that name; raises ``Unsuccessful`` without one, and ``BrokerError``."""
    place = _NAME.fullmatch(name)
    topic = physical(pipeline, DEAD_LETTERS)
    if place is None:
        raise Unsuccessful(f"{name!r} names no letter; a letter is PARTITION-OFFSET, as in 0-17")
    message = one_record(kafka, topic, int(place[1]), int(place[2]))
    filed = None if message is None else _filed(name, message.value() or b"")
    if filed is None:
        raise Unsuccessful(
            f"no letter {name} is on {topic}; `headrace dead-letters list FILE` has those there are"
        )
    return filed


def _filed(name: str, value: bytes) -> Filed | None:
    try:
        record = decode(value)
    except CodecError:
        return None  # a foreign record
    return Filed(name, record) if isinstance(record, DeadLetter) else None


# ---------------------------------------------------------------------- shown


def letter_rows(letters: Sequence[Filed]) -> list[str]:
    """Return one line for each letter."""
    return [
        f"{each.name:<8} {_moment(each.letter)}  {each.letter.topic} "
        f"{each.letter.partition}-{each.letter.offset}  {len(each.letter.value)} bytes  "
        f"{one_line(each.letter.reason)}"
        for each in letters
    ]


def letter_lines(filed: Filed) -> list[str]:
    """Return the lines that show a letter with the beginning of its value."""
    letter = filed.letter
    lines = [
        f"letter {filed.name}: {one_line(letter.reason)}",
        f"found {_moment(letter)} UTC by {letter.node} at {letter.partition}-{letter.offset} of "
        f"{letter.topic}",
        *(f"header {_printable(name)}: {_readable(held)}" for name, held in letter.headers),
        f"value of {len(letter.value)} bytes"
        + (f", the first {PREVIEW}:" if len(letter.value) > PREVIEW else ":"),
        *preview(letter.value[:PREVIEW]),
    ]
    return lines


def preview(value: bytes) -> list[str]:
    """Return a hex dump, 16 bytes a line, and the UTF-8 text in a last line if it is printable."""
    rows = [value[at : at + PER_LINE] for at in range(0, len(value), PER_LINE)]
    lines = [
        f"  {at * PER_LINE:04x}  {row.hex(' '):<{3 * PER_LINE}} {_ascii(row)}"
        for at, row in enumerate(rows)
    ]
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        # The end of the preview may cut a character in two.
        text = value[: error.start].decode() if error.start >= len(value) - 3 else ""
    return [*lines, f"  text: {text!r}"] if text.strip() and text.isprintable() else lines


def _ascii(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)


def _readable(held: bytes) -> str:
    return _printable(held[:PREVIEW].decode(errors="replace"))


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _moment(letter: DeadLetter) -> str:
    return datetime.fromtimestamp(letter.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


# ---------------------------------------------------------------------- replayed


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed letter, with the id of its query and answer."""

    letter: str
    topic: str
    query: str


def replayable(filed: Filed) -> None:
    """Raise ``Unsuccessful`` for a letter that is not from the input topic."""
    if filed.letter.topic != QUERIES:
        raise Unsuccessful(
            f"letter {filed.name} came from {filed.letter.topic}, which only Headrace's own roles "
            f"write; only letters from {QUERIES} can be replayed"
        )


def replay(kafka: KafkaConfig, pipeline: str, letters: Sequence[Filed]) -> list[Replayed]:
    """Write values and headers back to the input topic unchanged.

    Raises ``BrokerError`` if the broker does not take every letter.
    """
    topic = physical(pipeline, QUERIES)
    client = producer(kafka, **{"delivery.timeout.ms": int(ACKNOWLEDGED_WITHIN_S * 1e3)})
    places: dict[str, str] = {}
    refused: list[str] = []

    def on_delivery_of(name: str) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                refused.append(error.str())
            else:
                places[name] = f"{message.partition()}-{message.offset()}"

        return delivered

    for filed in letters:
        replayable(filed)
        headers = list(filed.letter.headers)
        client.produce(
            topic, filed.letter.value, headers=headers, on_delivery=on_delivery_of(filed.name)
        )
    client.flush(ACKNOWLEDGED_WITHIN_S)
    if refused or len(places) < len({filed.name for filed in letters}):
        why = refused[0] if refused else f"no word within {ACKNOWLEDGED_WITHIN_S:g} s"
        raise BrokerError(f"the broker took {len(places)} of {len(letters)} letters: {why}")
    return [Replayed(f.name, topic, _query_id(f.letter, places[f.name])) for f in letters]


def _query_id(letter: DeadLetter, place: str) -> str:
    named = dict(letter.headers).get(ID_HEADER, b"")
    try:
        return named.decode() or place
    except UnicodeDecodeError:
        return place
