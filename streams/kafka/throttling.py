"""Throttling by the broker's quotas: one log line when it begins, reminders, one when it has ended.

A broker delays the next request of a client that exceeds the quota of its user or client id, for
longer than a request may take if the excess is large. The client library logs nothing of it.
"""

import logging
from collections import deque
from typing import Protocol

from streams.kafka.kafka_config import KafkaConfig
from streams.observers.journal import tell

log = logging.getLogger("headrace.broker")

TOLD_S = 0.1  # a shorter delay is only counted
REMIND_S = 30.0  # between two lines; throttling has ended after this time without a delay
SENDS, READS, HEARTBEATS = "sends", "reads", "reports"  # kinds of clients
LEVELS = {"broker.throttled": logging.WARNING, "broker.unthrottled": logging.INFO}


class ThrottleEvent(Protocol):
    """The client library's event; ``throttle_time`` is the delay in seconds."""

    @property
    def throttle_time(self) -> float: ...


class Throttling:
    """The delays that the broker imposes on a process's clients.

    ``delayed`` may be called from any thread, the rest from one. ``delayed_s`` is the sum of all
    delays; ``until_s`` has by kind (``SENDS``, ``READS``, ``HEARTBEATS``) the time until which one
    lasts.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._events: deque[tuple[str, float]] = deque(maxlen=1000)
        self._longest: dict[str, float] = {}  # since the last line, by what is delayed
        self._began_s: float | None = None
        self._told_s = self._last_s = 0.0
        self.delayed_s = 0.0
        self.until_s = {SENDS: 0.0, READS: 0.0, HEARTBEATS: 0.0}

    def delayed(self, what: str, event: ThrottleEvent) -> None:
        """Record a delay of a client of a kind."""
        self._events.append((what, event.throttle_time))

    def look(self, now: float) -> None:
        """Process the recorded delays; log the lines that are due."""
        while self._events:
            what, delay_s = self._events.popleft()
            self.delayed_s += delay_s
            self.until_s[what] = max(self.until_s[what], now + delay_s)
            if delay_s >= TOLD_S:
                self._longest[what] = max(self._longest.get(what, 0.0), delay_s)
                self._last_s = now
        if self._began_s is not None and now - self._told_s < REMIND_S:
            return
        if self._longest:
            self._say_throttled(now)
        elif self._began_s is not None and now >= max(self.until_s.values()):
            self._say_ended(self._began_s)

    def _say_throttled(self, now: float) -> None:
        waits = " and ".join(f"{what} wait up to {s:.1f} s" for what, s in self._longest.items())
        text = (
            f"the broker at {self._config.bootstrap} throttles {self._config.who} by a quota: "
            f"{waits}; raise the quotas of the user and the client id (kafka-configs "
            "--entity-type users, clients), or lower the load"
        )
        self._tell("broker.throttled", text, max(self._longest.values()))
        self._began_s = now if self._began_s is None else self._began_s
        self._told_s, self._longest = now, {}

    def _say_ended(self, began_s: float) -> None:
        text = f"the broker at {self._config.bootstrap} no longer throttles {self._config.who}"
        self._tell("broker.unthrottled", text, self._last_s - began_s)
        self._began_s = None

    def _tell(self, event: str, text: str, seconds: float) -> None:
        fields = {"bootstrap": self._config.bootstrap, "seconds": round(seconds, 3)}
        tell(log, LEVELS[event], event, text, **fields)
