"""The wait for missing copies of a topic that took no record of the control app."""

from streams.kafka.missing_copies import ASK_AFTER_S, Ask, MissingCopies


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
