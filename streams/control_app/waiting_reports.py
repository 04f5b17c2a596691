"""Reports that have arrived at the control app and wait behind events that it handles."""

from collections import deque
from collections.abc import Sequence

from schemas.effects import Heartbeat
from schemas.records import Report
from streams.codecs.wire import Fetched

WAITED_S = 0.1  # half the interval of reports


class WaitingReports:
    """Batches of reports in the order of their arrival, until they are delivered."""

    def __init__(self) -> None:
        self._batches: deque[tuple[float, Sequence[Fetched]]] = deque()

    def arrived(self, batch: Sequence[Fetched], now: float) -> None:
        """Add a batch."""
        self._batches.append((now, batch))

    def delivered(self, batch: Sequence[Fetched]) -> None:
        """Forget a batch, which is the first unless it was overdue."""
        if self._batches and self._batches[0][1] is batch:
            self._batches.popleft()

    def overdue(self, now: float) -> list[Fetched]:
        """Forget and return all reports, once the first has waited for ``WAITED_S``."""
        if not self._batches or now - self._batches[0][0] < WAITED_S:
            return []
        found = [fetched for _, batch in self._batches for fetched in batch]
        self._batches.clear()
        return found


def heartbeat(report: Report) -> Heartbeat:
    """Return what a report says of its worker's life."""
    return Heartbeat(report.pipeline, report.node, report.incarnation, report.sent_s)
