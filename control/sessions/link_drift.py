"""Detect that a link of a session is slower or faster than planned, by the transfers over it.

The receiver of a stage counts what arrives from another tier: records, bytes, and the seconds that
the link was busy with them. A link takes ``bytes / rate + delay`` for a record; the delay is taken
as known, and the rate is estimated.
"""

from collections import deque
from dataclasses import dataclass

from control.problem.tiers import Link

LEAST = 3  # records; the newest ones are looked at
WINDOW_S = 1.0  # older ones are forgotten
FACTOR = 1.5  # between the seconds seen and those planned
FINER = 1.2  # the same once a link was estimated: its change may have fallen between two records
LEAST_S = 0.01  # a record: less is the broker's own time


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
        """Add the newest transfers; those of more than ``WINDOW_S`` ago are forgotten."""
        self._newest.append(transfers)
        while self._newest[0].at_s < transfers.at_s - WINDOW_S:
            self._newest.popleft()

    def forget(self) -> None:
        """Forget everything: another link is used, or it is believed to be another one."""
        self._newest.clear()

    def seen(self, planned: Link, factor: float = FACTOR) -> tuple[Link, float] | None:
        """Return the link as it is and the time of the first transfer that says so; None: as
        planned but for ``factor``, or too little is known."""
        count, sent, busy_s, since_s = 0, 0.0, 0.0, 0.0
        for each in reversed(self._newest):
            count, sent, busy_s = count + each.count, sent + each.bytes, busy_s + each.busy_s
            since_s = each.at_s
            if count >= LEAST:
                break
        else:
            return None
        expected_s = sent / planned.bytes_per_s + count * planned.delay_s
        slower = busy_s > expected_s * factor and busy_s - expected_s > count * LEAST_S
        faster = busy_s * factor < expected_s and expected_s - busy_s > count * LEAST_S
        if not (slower or faster):
            return None
        sending_s = max(busy_s - count * planned.delay_s, sent / planned.bytes_per_s / 100)
        return Link(sent / sending_s, planned.delay_s), since_s
