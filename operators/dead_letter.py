"""A record that nobody could read, on its way to where people look."""

from operators.input_place import GENERATION
from operators.record_size import MOST_BYTES
from schemas.effects import DEAD_LETTERS, Arrived, Send
from schemas.records import DeadLetter, Garbled


def dead_letter(event: Arrived, garbled: Garbled, node: str, now: float) -> Send:
    """The record as it came, with the reason; one over the size of a record is cut short."""
    whole = len(garbled.value) <= MOST_BYTES
    cut = "" if whole else f" (kept: the first {MOST_BYTES} of {len(garbled.value)} bytes)"
    letter = DeadLetter(
        topic=event.topic,
        partition=event.slot,
        offset=event.offset % GENERATION,
        reason=garbled.reason + cut,
        value=garbled.value[:MOST_BYTES],
        headers=garbled.headers,
        node=node,
        at_s=now,
    )
    return Send(DEAD_LETTERS, letter, key=garbled.id or node)
