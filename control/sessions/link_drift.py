"""Detect that a link of a session is slower or faster than planned, by the transfers over it.

The receiver of a stage counts records and bytes from other tiers, and the seconds that the link was
busy with them. A link takes ``bytes / rate + delay`` for a record. The delay is assumed to be
known. The rate is estimated from the newest transfers that all deviate from the plan in the same
direction, so that those before the change do not dilute the estimate.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from control.problem.tiers import Link

LEAST = 3  # records; the newest ones are used
WINDOW_S = 1.0  # older ones are discarded, except the newest ``LEAST``: a slow link carries few
FACTOR = 1.5  # between observed and planned seconds
FINER = 1.2  # the same for an estimated link, whose change may fall between two records
LEAST_S = 0.01  # per record; shorter times are the broker's own


@dataclass(frozen=True, slots=True)
class LinkSums:
    """Records over a link, in sums, that were counted at ``at_s``."""

    at_s: float
    count: int
    bytes: float
    busy_s: float


class LinkDrift:
    """The newest transfers of one session into one stage."""

    def __init__(self) -> None:
        self._newest: deque[LinkSums] = deque()

    def add(self, transfers: LinkSums) -> None:
        """Add the newest transfers; discard old ones. Those without bytes do not show the rate."""
        if not transfers.bytes:
            return
        self._newest.append(transfers)
        count = sum(each.count for each in self._newest)
        while (oldest := self._newest[0]).at_s < transfers.at_s - WINDOW_S:
            count -= oldest.count
            if count < LEAST:
                return
            self._newest.popleft()

    def forget(self) -> None:
        """Discard all transfers: the link, or its assumed rate, has changed."""
        self._newest.clear()

    def seen(self, planned: Link, factor: float = FACTOR) -> tuple[Link, float] | None:
        """Return the observed link and the time of the first transfer that shows it; None if it is
        within ``factor`` of the planned one, or if there are too few transfers."""
        newest = self._least()
        way = _way(newest, planned, factor)
        same = list(takewhile(lambda each: _way([each], planned, factor) == way, newest))
        if way == 0 or not same:
            return None
        count, sent, busy_s = _sums(same)
        sending_s = max(busy_s - count * planned.delay_s, sent / planned.bytes_per_s / 100)
        return Link(sent / sending_s, planned.delay_s), same[-1].at_s

    def _least(self) -> list[LinkSums]:
        """Return the newest transfers, the newest first: ``LEAST`` records or a few more; [] if
        there are fewer."""
        found: list[LinkSums] = []
        for each in reversed(self._newest):
            found.append(each)
            if sum(known.count for known in found) >= LEAST:
                return found
        return []


def _way(transfers: Sequence[LinkSums], planned: Link, factor: float) -> int:
    """Return 1 if transfers were slower than planned, -1 if they were faster, 0 for neither."""
    count, sent, busy_s = _sums(transfers)
    expected_s = sent / planned.bytes_per_s + count * planned.delay_s
    if busy_s > expected_s * factor and busy_s - expected_s > count * LEAST_S:
        return 1
    return -int(busy_s * factor < expected_s and expected_s - busy_s > count * LEAST_S)


def _sums(transfers: Sequence[LinkSums]) -> tuple[int, float, float]:
    """Return records, bytes and busy seconds."""
    return (
        sum(each.count for each in transfers),
        sum(each.bytes for each in transfers),
        sum(each.busy_s for each in transfers),
    )
