"""Missing copies: partitions that take no record until more of their copies are in sync.

The client library repeats such a send without a word, and delivers it once the copies are back. So
the role waits: nothing that it has read is committed before. It logs which topics wait, and why.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

from streams.kafka.admin.topic_copies import Copies
from streams.kafka.background_call import BackgroundCall
from streams.kafka.kafka_errors import BrokerError
from streams.observers.journal import tell
from streams.topics import Place

log = logging.getLogger("headrace.broker")

ASK_AFTER_S = 5.0  # without a confirmation, and since the last answer, until the next question
REMIND_S = 30.0
LEVELS = {"broker.copies_missing": logging.WARNING, "broker.copies_back": logging.INFO}

Ask = Callable[[Collection[Place]], Sequence[Copies]]


class MissingCopies:
    """Asks for the copies of partitions whose records stay unconfirmed; logs what is missing.

    ``ask`` may wait for the broker and raise ``BrokerError``. ``missed_s`` is the newest time at
    which copies were missing; ``missing``: they were by the last answer.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._question: BackgroundCall[Sequence[Copies]] | None = None
        self._asked_s = self._began_s = self._told_s = 0.0
        self.missed_s = 0.0
        self.missing = False

    def look(
        self, now: float, sent_s: float | None, places: Callable[[], Collection[Place]]
    ) -> None:
        """Ask again if it is due, and take the answer.

        ``sent_s`` is the time of the oldest unconfirmed send, ``places`` returns those of all.
        """
        if self._question is not None and self._question.ended:
            if sent_s is not None and sent_s <= self._asked_s:
                self.take(now, self._question.result or ())
            self._question, self._asked_s = None, now
        if self.missing and (sent_s is None or sent_s > self.missed_s):
            self._end(now)
        if sent_s is None or self._question is not None:
            return
        if now - max(sent_s, self._asked_s) > ASK_AFTER_S:
            self._asked_s = now
            self._question = BackgroundCall("copies", partial(self._ask, places()))

    @property
    def asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._question is not None

    def ask(self, now: float, places: Collection[Place]) -> bool:
        """Ask, wait for the answer, and take it; return whether copies are missing by it."""
        try:
            found = self._ask(places)
        except BrokerError:
            return False
        self.take(now, found)
        return any(each.missing for each in found)

    def take(self, now: float, found: Sequence[Copies]) -> None:
        """Take an answer: the copies of the partitions that records wait for."""
        missing = [each for each in found if each.missing]
        if not missing:
            return
        if not self.missing:
            self.missing, self._began_s, self._told_s = True, now, float("-inf")
        self.missed_s = now
        if now - self._told_s >= REMIND_S:
            self._told_s = now
            topics = sorted({each.topic for each in missing})
            self._say("broker.copies_missing", told(missing), topics=topics)

    def _end(self, now: float) -> None:
        self.missing = False
        text = "the brokers take what waited for missing copies"
        self._say("broker.copies_back", text, seconds=round(now - self._began_s, 3))

    def _say(self, event: str, text: str, **fields: object) -> None:
        tell(log, LEVELS[event], event, text, **fields)


def told(missing: Sequence[Copies]) -> str:
    """Return a sentence about partitions without enough copies, with the remedy."""
    first, topics = missing[0], ", ".join(sorted({each.topic for each in missing}))
    place = f"{first.topic}-{first.partition}"
    if first.led:
        why = (
            f"of the {first.copies} copies of {place} {first.in_sync} are in sync, and its "
            f"min.insync.replicas is {first.needed}"
        )
        remedy = f"bring the other brokers back, or lower min.insync.replicas of {topics}"
    else:
        why, remedy = f"{place} has no leader", "bring the brokers of its copies back"
    return f"{topics}: the brokers take no record, and this role waits: {why}; {remedy}"
