"""Dead letters: records that cannot be decoded, sent to the dead-letter topic with the reason."""

from operators.input_place import GENERATION
from operators.record_size import MOST_BYTES, MOST_HEADER_BYTES, brief
from schemas.effects import DEAD_LETTERS, Arrived, Send
from schemas.records import DeadLetter, Garbled


def dead_letter(event: Arrived, garbled: Garbled, node: str, now: float) -> Send:
    """Return the dead letter of a garbled record; value and headers are truncated to fit."""
    whole = len(garbled.value) <= MOST_BYTES
    cut = "" if whole else f" (kept: the first {MOST_BYTES} of {len(garbled.value)} bytes)"
    headers = _fitting(garbled.headers)
    if headers != garbled.headers:
        cut += f" (kept: {len(headers)} of {len(garbled.headers)} headers)"
    letter = DeadLetter(
        topic=event.topic,
        partition=event.slot,
        offset=event.offset % GENERATION,
        reason=brief(garbled.reason) + cut,
        value=garbled.value[:MOST_BYTES],
        headers=headers,
        node=node,
        at_s=now,
    )
    return Send(DEAD_LETTERS, letter, key=garbled.id or node)


def _fitting(headers: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the longest prefix of the headers that fits ``MOST_HEADER_BYTES``."""
    room = MOST_HEADER_BYTES
    for at, (name, held) in enumerate(headers):
        room -= len(name.encode("utf-8", "replace")) + len(held)
        if room < 0:
            return headers[:at]
    return headers
