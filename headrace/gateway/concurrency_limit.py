"""The adaptive limit on a model's queries in flight: one more would be answered too late.

A plan's capacity covers neither the way to the pipeline and back nor other work on the machine, and
ingress refuses a query only after it has crossed the broker. If R queries per second end and N are
in flight, the next one ends after N / R (Little's law). So queries end after ``AIM`` of their time
T with

    aim = AIM x R x T

in flight. A window lasts at least T. Of the queries that end in it answered or without an answer, m
is the share that missed its time, and N+ the mean number in flight of the others. At the window's
end

    m > MISSED                    limit <- max(LEAST, aim, N+)
    some refused for the limit    limit <- max(limit x GROWTH, aim)
    none refused                  limit <- limit x RETURN; none at all above what was in flight

While there is no limit, a window ends at ``FEWEST`` misses: those in flight are late already.
Without misses there is no limit, so that a burst enters whole. A model that needs more than ``AIM``
of T even for a single query keeps the load that it can answer. Queries that the pipeline itself
drops or refuses do not count: the pipeline observes that load and plans for it, which it could not
if the gateway hid it. Envoy's adaptive concurrency and Netflix' concurrency limits aim at a
measured latency; here a query has a deadline.
"""

from dataclasses import dataclass
from math import inf
from operator import attrgetter

from msgspec import Struct

from schemas.records import ANSWERED, Answer

AIM = 0.35  # the rest is for the client and the network, which the gateway does not see
MISSED = 0.1
GROWTH, RETURN = 1.05, 2.0
FEWEST = 10  # queries that must end in a window for a verdict
LEAST = 4.0
SHORTEST_S = 0.25  # of a window
STALE = 4.0  # times its shortest length, after which an unfinished window says nothing
LATELY_S = 1.0  # an older answer does not show how long queries take now
PROMISED = 0.8  # of its SLO: a query with less time is not judged


class InFlight(Struct, frozen=True):
    """A query that joined ``ahead`` others at ``came_s``. ``had_s``: the time it may take; None: it
    is not judged."""

    came_s: float
    had_s: float | None
    ahead: int


@dataclass(slots=True)
class _Window:
    began_s: float
    ended: int = 0
    missed: int = 0
    had_s: float = 0.0  # all of them together
    good_s: float = 0.0  # sum of the times of those that did not miss
    refused: int = 0
    most: int = 0  # in flight
    least_s: float = inf  # the least time of an answered query
    ahead: int = 0  # of that one


def within_s(timeout_s: float | None, slo_s: float) -> float:
    """Return the time within which an answer is of use to the caller and the pipeline."""
    return slo_s if timeout_s is None else min(timeout_s, slo_s)


def time_to_answer_s(timeout_s: float | None, slo_s: float) -> float | None:
    """Return the time by which a query is judged; None if its caller gives it much less than its
    SLO, since it may then miss its deadline at any load."""
    given_s = within_s(timeout_s, slo_s)
    return given_s if given_s >= PROMISED * slo_s else None


def too_late(model: str, takes_s: float, left_s: float) -> str:
    """Return the sentence for a caller whose deadline is nearer than any answer."""
    if left_s <= 0:
        return "the caller's deadline has passed"
    return (
        f"the caller's deadline is {left_s * 1e3:.0f} ms away, but queries of {model} take "
        f"{takes_s * 1e3:.0f} ms at least now"
    )


class ConcurrencyLimit:
    """The limit, from the endings of queries. Times are seconds of a clock that only moves
    forward."""

    def __init__(self, now: float) -> None:
        self.limit = inf  # the most queries in flight; inf: any number
        self._window = self._before = _Window(now)
        self._answered_s = -inf

    def takes_s(self, in_flight: int, now: float) -> float:
        """Return the least time of a query that joins those in flight; 0 if it is not known.

        It is the shortest time in this window and the last, reduced in proportion if fewer queries
        are in flight than when that query came.
        """
        least = min(self._before, self._window, key=attrgetter("least_s"))
        if now >= self._answered_s + LATELY_S or least.least_s == inf:
            return 0.0
        return least.least_s * min(1.0, (in_flight + 1) / (least.ahead + 1))

    def admits(self, in_flight: int, now: float) -> bool:
        """Return whether a query may join those in flight; count it if it may not."""
        self._judge(now)
        self._window.most = max(self._window.most, in_flight + 1)
        if in_flight < self.limit:
            return True
        self._window.refused += 1
        return False

    def ended(self, query: InFlight, answer: Answer | None, now: float) -> None:
        """Count a query that ended with this answer; None: without one."""
        self._judge(now)
        took_s, window = now - query.came_s, self._window
        if answer is not None and answer.outcome == ANSWERED:
            self._answered_s = now
            if took_s < window.least_s:
                window.least_s, window.ahead = took_s, query.ahead
        if query.had_s is None or _ended_inside(answer):
            return
        missed = answer is None or took_s > query.had_s
        window.ended += 1
        window.had_s += query.had_s
        window.missed += missed
        window.good_s += 0.0 if missed else took_s

    def _judge(self, now: float) -> None:
        """End the window if it is long enough, with enough queries if it refused some; or at the
        first misses, as those in flight are late already."""
        window, seconds = self._window, now - self._window.began_s
        if seconds < SHORTEST_S and window.missed < FEWEST:
            return
        had_s = window.had_s / window.ended if window.ended else 0.0
        shortest_s, enough = max(SHORTEST_S, had_s), window.ended >= FEWEST
        missed = window.missed > MISSED * window.ended
        first = missed and window.missed >= FEWEST and self.limit == inf
        stale = seconds >= STALE * shortest_s
        if not first and (seconds < shortest_s or (window.refused and not enough and not stale)):
            return
        self._before, self._window = window, _Window(now)
        seconds = max(seconds, SHORTEST_S)
        aim = AIM * window.ended / seconds * had_s
        if stale:
            self.limit = inf
        elif enough and missed:
            self.limit = max(LEAST, aim, window.good_s / seconds)
        elif window.refused:
            self.limit = max(self.limit * GROWTH, aim)
        else:
            self.limit = inf if self.limit * RETURN > window.most else self.limit * RETURN


def _ended_inside(answer: Answer | None) -> bool:
    """Return whether the pipeline itself ended a query: it observes that load and plans for it."""
    return answer is not None and answer.outcome != ANSWERED
