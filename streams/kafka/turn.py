"""The sends of one driver turn until the broker has confirmed them all."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from streams.kafka.offset_ledger import Commit
from streams.topics import Place

# The broker refuses the whole batch of a record that is too old; the others get their own code.
TOO_OLD = (
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,
)


class Turn:
    """The unconfirmed sends of one driver turn, and the offsets that it reported done."""

    __slots__ = (
        "absent", "done", "ended_s", "error", "held", "refused", "stamp_ms", "topic", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.refused: list[Any] = []  # messages that the broker refused as too old
        self.stamp_ms = 0  # of the first stamped record; a delivery does not include it
        self.ended_s = 0.0  # or the time at which a refused record of it was sent again
        self.waiting = 0
        self.held = 0  # of them refused as too old, and not sent again yet
        self.absent = False  # sent while the broker counted as away
        self.done: dict[Place, Commit] = {}
        self.error: KafkaError | None = None
        self.topic = ""  # topic of the refused send


def unconfirmed_since(turns: Iterable[Turn]) -> float | None:
    """Return since when the oldest turn with sends in flight waits for the broker, or None.

    Refused records wait not for the broker but until the topic shows whether they were written.
    """
    return next((turn.ended_s for turn in turns if turn.waiting > turn.held), None)
