"""Reports, and results of profilers, on their way to the controller.

A report that repeats its predecessor reaches the controller as a heartbeat. While reports wait
behind other events, heartbeats tell the controller that their nodes are alive.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from schemas.codec.repeated_reports import RepeatedReports
from schemas.effects import PROFILE_RESULTS, REPORTS, Arrived, Heartbeat, Heartbeats
from schemas.records import Report
from streams.codecs.wire import Fetched
from streams.control_app.topic_ends import ReportDelivery
from streams.topics import physical

WAITED_S = 0.1  # half the interval of reports

# (logical topic, record) to the event; None if it is another pipeline's
Decode = Callable[[str, Fetched], Arrived | None]


class ReportIntake:
    """Batches of one reader, in order of arrival.

    ``read_from`` has by logical topic the offset before which records are obsolete: earlier
    reports, and plans that are deleted or part of the history.
    """

    def __init__(self, pipeline: str, decode: Decode) -> None:
        self.read_from: Mapping[str, int] = {}
        self._decode = decode
        self._reports_topic = physical(pipeline, REPORTS)
        self._delivery = ReportDelivery()
        self._repeated = RepeatedReports()
        self._waiting: deque[tuple[float, Sequence[Fetched]]] = deque()

    def begin(self, read_from: Mapping[str, int]) -> None:
        """Begin a term in charge with a new controller and a new reading of reports."""
        self.read_from, self._repeated = read_from, RepeatedReports()
        self._delivery = ReportDelivery()

    def arrived(self, batch: Sequence[Fetched], now: float) -> None:
        """Add a batch, which waits until it is delivered."""
        if any(map(self._is_report, batch)):
            self.answered()
        self._waiting.append((now, batch))

    def answered(self) -> None:
        """Record that the reader gets answers: reports, or a delay by a quota."""
        self._delivery.delivered()

    def events(self, batch: Sequence[Fetched]) -> Iterator[Arrived | Heartbeats]:
        """Yield the events of a batch for the controller; its heartbeats come last, in one."""
        beats: list[Heartbeat] = []
        for fetched in batch:
            topic = REPORTS if self._is_report(fetched) else PROFILE_RESULTS
            if fetched.offset < self.read_from.get(topic, 0):
                continue
            beat = self._repeated.beat(fetched.value or b"")
            if beat is not None:
                beats.append(beat)
            elif (event := self._decode(topic, fetched)) is not None:
                if isinstance(event.record, Report):
                    self._repeated.remember(fetched.value or b"", event.record)
                yield event
        if beats:
            yield Heartbeats(tuple(beats))

    def delivered(self, batch: Sequence[Fetched]) -> None:
        """Forget a delivered batch: the first one, unless ``overdue`` has cleared it."""
        if self._waiting and self._waiting[0][1] is batch:
            self._waiting.popleft()

    def overdue(self, now: float) -> tuple[Heartbeat, ...]:
        """Return the heartbeats of the waiting reports once the first has waited ``WAITED_S``.

        While the broker is slow to accept plans and sessions, the controller would otherwise judge
        workers without the reports that have arrived.
        """
        if not self._waiting or now - self._waiting[0][0] < WAITED_S:
            return ()
        waiting = [fetched for _, batch in self._waiting for fetched in batch]
        self._waiting.clear()
        least = self.read_from.get(REPORTS, 0)
        events = [
            self._decode(REPORTS, each)
            for each in waiting
            if self._is_report(each) and each.offset >= least
        ]
        return tuple(heartbeat(e.record) for e in events if e and type(e.record) is Report)

    def stalled(self, ends: Mapping[str, int], now: float) -> bool:
        """Return whether reports are written but none is delivered; ``ends`` are the topics'."""
        # The topics may have been recreated.
        self.read_from = {each: min(at, ends[each]) for each, at in self.read_from.items()}
        return self._delivery.stalled(ends[REPORTS], now)

    def _is_report(self, fetched: Fetched) -> bool:
        return fetched.topic == self._reports_topic


def heartbeat(report: Report) -> Heartbeat:
    """Return the heartbeat that a report contains."""
    return Heartbeat(report.pipeline, report.node, report.incarnation, report.sent_s)
