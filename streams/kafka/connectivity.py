"""Broker connectivity: one log line when the broker goes away, one when it is back, and reminders.

Client libraries log every failed attempt, twenty per second and client, but not the recovery. The
broker counts as away once a client knows of no broker that is up. It counts as back once a record
that was sent since then is delivered; as nodes report five times a second, recovery shows soon.
"""

import logging
from collections import deque

from confluent_kafka import KafkaError

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import turned_away, unadorned
from streams.observers.journal import tell

log = logging.getLogger("headrace.broker")

REMIND_S = 30.0
CALM_S = 5.0  # for this long after the recovery, Faust still logs the absence
PERSIST_S = 10.0  # an aiokafka warning that repeats for this long is not transient

LEVELS = {
    "broker.away": logging.WARNING,
    "broker.back": logging.INFO,
    "broker.error": logging.DEBUG,
}


class Connectivity:
    """The broker's state as seen by a process's clients.

    ``failed_request`` and ``failed`` may be called from any thread, the rest from one.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._errors: deque[tuple[str, bool]] = deque(maxlen=100)
        self._why = ""
        self._remind_s = 0.0
        self.since_s = 0.0  # the time of the last change of ``away``
        self.away = False

    def failed_request(self, error: KafkaError) -> None:
        """Record a client-wide error of librdkafka."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.failed("", none_left=True)
        else:
            self.failed(turned_away(self._config, error) or unadorned(error))

    def failed(self, why: str, *, none_left: bool = False) -> None:
        """Record a failed connection; ``none_left``: no broker is known to be up."""
        self._errors.append((self._config.hide(why), none_left))

    def look(self, now: float) -> None:
        """Process the recorded errors; log the lines that are due."""
        while self._errors:
            why, none_left = self._errors.popleft()
            self._why = why or self._why
            if self.away:
                continue
            if none_left:
                self.away, self.since_s, self._remind_s = True, now, now + REMIND_S
                self._say("broker.away", "is unreachable", now)
            else:
                self._say("broker.error", "reported an error", now)
        if self.away and now >= self._remind_s:
            self._remind_s = now + REMIND_S
            self._say("broker.away", f"is still unreachable after {now - self.since_s:.0f} s", now)

    def answered(self, now: float) -> None:
        """Record the delivery of a record that was sent while the broker counted as away."""
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
    """Suppresses aiokafka's and Faust's lines on an absent broker; records the absence instead.

    aiokafka retries its other warnings too (a coordinator that moves or is unknown after a
    restart), so they pass only after ``PERSIST_S``. It does not retry after an error that it calls
    fatal, such as a session timeout that the brokers do not allow.
    """

    LIBRARIES = ("aiokafka", "faust", "mode")
    NONE_LEFT = "Unable to update metadata"
    FATAL = "fatal error"
    MARKS = ("Unable connect to node", NONE_LEFT, "KafkaConnectionError", "NodeNotReadyError")

    def __init__(self, connectivity: Connectivity) -> None:
        super().__init__()
        self._connectivity = connectivity
        self._spans: dict[tuple[str, str], tuple[float, float]] = {}  # by line: first, last

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        if library not in self.LIBRARIES or record.levelno >= logging.CRITICAL:
            return True
        text, broker = record.getMessage(), self._connectivity
        if self.FATAL in text:
            return True
        if any(mark in text for mark in self.MARKS):
            _, _, why = text.partition(": ")
            broker.failed(why, none_left=text.startswith(self.NONE_LEFT))
            return False
        if broker.away or record.created - broker.since_s <= CALM_S:
            return False
        return library != "aiokafka" or bool(record.exc_info) or self._persists(record)

    def _persists(self, record: logging.LogRecord) -> bool:
        """Return whether this line has repeated for ``PERSIST_S``."""
        key, now = (record.name, str(record.msg)), record.created
        first, last = self._spans.get(key, (now, now))
        if now - last > PERSIST_S:
            first = now
        self._spans[key] = first, now
        return now - first >= PERSIST_S
