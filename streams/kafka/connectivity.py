"""Is the broker there? One line when it goes, one when it is back, and a reminder now and then.

Client libraries tell of every failed attempt, twenty a second and client, but say nothing when
they are through again. So: away once a client knows of no broker that is up, back once something
came through that was sent since. Every node reports five times a second, so that is soon.
"""

import logging
from collections import deque

from confluent_kafka import KafkaError

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import turned_away, unadorned
from streams.observers.journal import tell

log = logging.getLogger("headrace.broker")

REMIND_S = 30.0
CALM_S = 5.0  # so long after it is back, Faust still speaks of its being away
PERSIST_S = 10.0  # what aiokafka retries for so long does not mend itself

LEVELS = {
    "broker.away": logging.WARNING,
    "broker.back": logging.INFO,
    "broker.error": logging.DEBUG,
}


class Connectivity:
    """What the clients of one process know. ``told`` may be called from any thread, the rest from
    one."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._errors: deque[tuple[str, bool]] = deque(maxlen=100)
        self._why = ""
        self._remind_s = 0.0
        self.since_s = 0.0  # when it went away or came back
        self.away = False

    def told(self, error: KafkaError) -> None:
        """An error of librdkafka's that concerns no single record."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.failed("", none_left=True)
        else:
            self.failed(turned_away(self._config, error) or unadorned(error))

    def failed(self, why: str, *, none_left: bool = False) -> None:
        """A connection failed; ``none_left``: no broker is known to be up."""
        self._errors.append((self._config.hide(why), none_left))

    def look(self, now: float) -> None:
        """Take in what was told; write the lines that are due."""
        while self._errors:
            why, none_left = self._errors.popleft()
            self._why = why or self._why
            if self.away:
                continue
            if none_left:
                self.away, self.since_s, self._remind_s = True, now, now + REMIND_S
                self._say("broker.away", "is away", now)
            else:
                self._say("broker.error", "had an error", now)
        if self.away and now >= self._remind_s:
            self._remind_s = now + REMIND_S
            self._say("broker.away", f"is still away after {now - self.since_s:.0f} s", now)

    def heard(self, now: float) -> None:
        """Something came through that was sent while the broker was thought away."""
        if self.away:
            self._say("broker.back", f"is back after {now - self.since_s:.1f} s", now)
            self.away, self.since_s = False, now

    def _say(self, event: str, what: str, now: float) -> None:
        away_s = 0.0 if event == "broker.error" else round(now - self.since_s, 3)
        why = f": {self._why}" if self._why and event != "broker.back" else ""
        text = f"the broker at {self._config.bootstrap} {what}{why}"
        fields = {"bootstrap": self._config.bootstrap, "reason": self._why, "away_s": away_s}
        tell(log, LEVELS[event], event, text, **fields)


class QuietFilter(logging.Filter):
    """Turns what aiokafka, and Faust on top of it, say of an absent broker into its absence.

    What else aiokafka warns of it also retries: a coordinator that moves, or is not known yet
    after a restart. That is news only once it has gone on for a while.
    """

    LIBRARIES = ("aiokafka", "faust", "mode")
    NONE_LEFT = "Unable to update metadata"
    MARKS = ("Unable connect to node", NONE_LEFT, "KafkaConnectionError", "NodeNotReadyError")

    def __init__(self, presence: Connectivity) -> None:
        super().__init__()
        self._connectivity = presence
        self._spans: dict[tuple[str, str], tuple[float, float]] = {}  # of each line: first, last

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        if library not in self.LIBRARIES or record.levelno >= logging.CRITICAL:
            return True
        text, presence = record.getMessage(), self._connectivity
        if any(mark in text for mark in self.MARKS):
            _, _, why = text.partition(": ")
            presence.failed(why, none_left=text.startswith(self.NONE_LEFT))
            return False
        if presence.away or record.created - presence.since_s <= CALM_S:
            return False
        return library != "aiokafka" or bool(record.exc_info) or self._persists(record)

    def _persists(self, record: logging.LogRecord) -> bool:
        """Has this line come again and again for ``PERSIST_S``?"""
        key, now = (record.name, str(record.msg)), record.created
        first, last = self._spans.get(key, (now, now))
        if now - last > PERSIST_S:
            first = now
        self._spans[key] = first, now
        return now - first >= PERSIST_S
