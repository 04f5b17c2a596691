"""Reports, and results of profilers, on their way to the controller.

Of a report that repeats its predecessor the controller hears a heartbeat; and where reports wait
behind other events, it hears that their nodes are alive.
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

# (logical topic, record) -> the event; None: of another pipeline.
Decode = Callable[[str, Fetched], Arrived | None]


class ReportIntake:
    """Batches of one reader, in the order of their arrival.

    ``read_from`` has the offsets by logical topic before which records are obsolete: earlier
    reports, and plans that are in the history or deleted.
    """

    def __init__(self, pipeline: str, decode: Decode) -> None:
        self.read_from: Mapping[str, int] = {}
        self._decode = decode
        self._reports_topic = physical(pipeline, REPORTS)
        self._delivery = ReportDelivery()
        self._repeated = RepeatedReports()
        self._waiting: deque[tuple[float, Sequence[Fetched]]] = deque()

    def begin(self, read_from: Mapping[str, int]) -> None:
        """Begin a term in charge: the controller is new, and so is the reading of reports."""
        self.read_from, self._repeated = read_from, RepeatedReports()
        self._delivery = ReportDelivery()

    def arrived(self, batch: Sequence[Fetched], now: float) -> None:
        """Take a batch, which waits until it is delivered."""
        if any(map(self._is_report, batch)):
            self._delivery.delivered()
        self._waiting.append((now, batch))

    def events(self, batch: Sequence[Fetched]) -> Iterator[Arrived | Heartbeats]:
        """Yield the events of a batch to the controller; heartbeats follow, all in one."""
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
        """Forget a batch, which is the first unless it was overdue."""
        if self._waiting and self._waiting[0][1] is batch:
            self._waiting.popleft()

    def overdue(self, now: float) -> tuple[Heartbeat, ...]:
        """Return the heartbeats of the reports that wait, once the first has for ``WAITED_S``.

        Where the broker is slow to take plans and sessions, the controller would else judge workers
        without reports that have arrived.
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
        """Return whether reports are written and none is delivered; ``ends`` are the topics'."""
        # The topics may have been recreated.
        self.read_from = {each: min(at, ends[each]) for each, at in self.read_from.items()}
        return self._delivery.stalled(ends[REPORTS], now)

    def _is_report(self, fetched: Fetched) -> bool:
        return fetched.topic == self._reports_topic


def heartbeat(report: Report) -> Heartbeat:
    """Return what a report says of its worker's life."""
    return Heartbeat(report.pipeline, report.node, report.incarnation, report.sent_s)
