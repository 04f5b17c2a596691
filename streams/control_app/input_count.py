"""Counts of the input topic by its offsets, and whether reports arrive at this app."""

from collections.abc import Mapping

from msgspec.structs import replace

from control.estimation.demand import counted
from schemas.effects import Counted
from streams.control_app.report_intake import ReportIntake
from streams.control_app.topic_ends import (
    STALLED_S,
    AddedPartitions,
    Inputs,
    UnreadPartitions,
)
from streams.kafka.kafka_errors import BrokerError
from streams.live.steady_clock import Clock

LISTEN_S = 0.25  # between two checks that reports arrive
REMIND_S = 30.0  # between two lines on offsets that cannot be read


class InputCount:
    """Counts queries; ``counted`` and ``shared_ends`` wait for the broker."""

    def __init__(self, inputs: Inputs, intake: ReportIntake, now: Clock) -> None:
        self._inputs, self._intake, self._now = inputs, intake, now
        self._added, self._unread = AddedPartitions(), UnreadPartitions()
        self._listened_s, self._listening = float("-inf"), False
        self._told_s = float("-inf")

    def counted(self) -> tuple[Counted, Mapping[int, int]]:
        """Return how many queries came and how many of them are done, and the queries that wait in
        unread partitions."""
        ends = self._inputs.ends()
        now = self._now()
        done = self._inputs.done()
        found = counted(now, ends, done)
        arrived = found.arrived - self._added.held(ends)
        return replace(found, arrived=arrived), self._unread.look(ends, done, now)

    def blind(self, now: float) -> bool:
        """Restart the search for unread partitions: ingress could not read either. End a check that
        reports arrive. Return whether to log it: at most every ``REMIND_S``."""
        self._unread.blind()
        self._listening = False
        tells = now >= self._told_s + REMIND_S
        self._told_s = now if tells else self._told_s
        return tells

    def listens(self, now: float) -> bool:
        """Return whether to begin a check that reports arrive: none is under way, and the last is
        ``LISTEN_S`` ago. ``listen`` or ``blind`` ends it."""
        begins = not (self._listening or 0.0 <= now - self._listened_s < LISTEN_S)
        self._listening = self._listening or begins
        return begins

    def shared_ends(self) -> Mapping[str, int]:
        """Return the ends of the shared topics, for ``listen``."""
        return self._inputs.shared_ends()

    def listen(self, ends: Mapping[str, int], now: float) -> None:
        """Raise ``BrokerError`` if reports are written and this app's consumer delivers none."""
        self._listened_s, self._listening = now, False
        if self._intake.stalled(ends, now):
            raise BrokerError(
                f"reports were written for {STALLED_S:g} s and this consumer delivered none; "
                "restart the control app"
            )
