"""Deliver spans to a collector that may be busy or away for a while.

A request that may succeed later is sent again, as the OpenTelemetry protocol requires: after the
collector's ``Retry-After``, and not before a wait that doubles, with jitter. The exporter reads no
answers meanwhile, so the topic keeps them. Spans that the collector refuses, or does not take
within ``GIVE_UP_S``, are dropped and counted. A ``Retry-After`` above ``LONGEST_S`` counts as that:
it may come from a wrong clock, and its spans would be dropped until then.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.errors import Unsuccessful
from headrace.traces.otlp import NotTaken, spans_in

GIVE_UP_S = 60.0  # after the first attempt, and after the end of the export
FIRST_WAIT_S, MOST_WAIT_S = 1.0, 16.0
LONGEST_S = 3600.0  # of the waits that a collector may ask for


def backoff_s(attempt: int, after_s: float | None, chance: float) -> float:
    """Return the seconds before another attempt, after ``attempt`` (from 0) has failed.

    ``after_s`` is the collector's ``Retry-After``, ``chance`` in [0, 1) the jitter.
    """
    backed_off_s = min(MOST_WAIT_S, FIRST_WAIT_S * 2.0**attempt) * (1 + chance) / 2
    return max(backed_off_s, min(after_s or 0.0, LONGEST_S))


class Delivery:
    """Sends export requests one after the other, each until it is taken or given up.

    ``taken`` and ``dropped`` count spans. ``send`` raises ``NotTaken``; ``tell`` gets one sentence
    for each retry and each drop. The export ends ``length_s`` from now (None: never); undelivered
    spans then have ``GIVE_UP_S`` altogether.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        tell: Callable[[str], None],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: Callable[[], float],
        length_s: float | None = None,
    ) -> None:
        self._send, self._tell = send, tell
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._next_s = -math.inf  # before which the collector wants no request
        self._end_s = math.inf if length_s is None else clock() + length_s
        self._why = "the export has ended"  # or the last refusal
        self.taken = self.dropped = 0

    def deliver(self, request: dict[str, Any]) -> None:
        """Send a request until the collector takes it; drop it if that fails."""
        give_up_s, attempt = min(self._clock(), self._end_s) + GIVE_UP_S, 0
        while max(self._next_s, self._clock()) <= give_up_s:
            self._sleep(max(0.0, self._next_s - self._clock()))
            try:
                self._send(request)
            except NotTaken as error:
                if not error.again:
                    self._drop(error.spans, str(error))
                    self.taken += len(spans_in(request)) - error.spans
                    return
                self._refused(error, attempt)
                attempt += 1
            else:
                self.taken += len(spans_in(request))
                return
        self._drop(len(spans_in(request)), self._why)

    @property
    def ended(self) -> bool:
        """Whether the length of the export is over."""
        return self._clock() > self._end_s

    def check(self) -> None:
        """Raise ``Unsuccessful`` if spans were dropped."""
        if self.dropped:
            raise Unsuccessful(
                f"{self.dropped} of {self.taken + self.dropped} spans were dropped; once the "
                "collector takes spans, export the time again with --since"
            )

    def _refused(self, error: NotTaken, attempt: int) -> None:
        waits_s = backoff_s(attempt, error.after_s, self._chance())
        self._next_s = self._clock() + waits_s
        self._why = str(error)
        if waits_s > GIVE_UP_S:
            self._why += f"; it gets no request for {waits_s:.0f} s, by its Retry-After"
        elif attempt == 0:
            self._tell(f"{error}; retrying for {GIVE_UP_S:g} s")

    def _drop(self, spans: int, why: str) -> None:
        self.dropped += spans
        self._tell(f"{why}; {spans} spans dropped, {self.dropped} in all")


@contextmanager
def checked(delivery: Delivery) -> Iterator[None]:
    """Raise ``Unsuccessful`` after the block, also after Ctrl-C in it, if spans were dropped."""
    try:
        yield
    except KeyboardInterrupt:
        delivery.check()
        raise
    delivery.check()
