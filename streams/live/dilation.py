"""Inner time: a clock for all processes of a run that goes so many times slower than the wall's.

A small machine can so carry live what would be too fast for it. Everything that is decided,
waited for or told happens in inner time; the broker and the CPU alone take wall time, which is
that many times less, seen from within.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streams.codecs.wire import Fetched
from streams.live.live_driver import Inbox, Transport

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Dilation:
    """From ``since_s`` (epoch seconds) on, ``factor`` wall seconds pass in an inner one."""

    factor: float = 1.0
    since_s: float = 0.0

    def inner(self, wall_s: float) -> float:
        """The inner time at a time of the wall."""
        return self.since_s + (wall_s - self.since_s) / self.factor

    def wall(self, inner_s: float) -> float:
        """The time of the wall at an inner time."""
        return self.since_s + (inner_s - self.since_s) * self.factor

    def clock(self, wall: Clock) -> Clock:
        """A clock of inner time."""
        return wall if self.factor == 1.0 else lambda: self.inner(wall())

    def inbox(self) -> Inbox:
        """An inbox that is waited for in inner time."""
        return Inbox() if self.factor == 1.0 else _Inbox(self.factor)

    def transport(self, transport: Transport) -> Transport:
        """A transport that stamps records in inner time; with the broker it keeps the wall's."""
        return transport if self.factor == 1.0 else _Transport(transport, self)


REAL = Dilation()


class _Inbox(Inbox):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def drain(self, timeout_s: float) -> list[object]:
        return super().drain(timeout_s * self._factor)


class _Transport:
    def __init__(self, transport: Transport, dilation: Dilation) -> None:
        self._wall = dilation.wall
        self._inner = dilation.inner
        self._transport = transport
        self.assign = transport.assign
        self.pause = transport.pause
        self.send = transport.send
        self.done = transport.done
        self.end_of = transport.end_of
        self.abandon = transport.abandon
        self.close = transport.close

    def fetch(self, timeout_s: float) -> list[Fetched]:
        inner = self._inner
        return [each._replace(at_s=inner(each.at_s)) for each in self._transport.fetch(timeout_s)]

    def end_turn(self, now: float) -> None:
        self._transport.end_turn(self._wall(now))

    @property
    def assigned(self) -> int:
        return self._transport.assigned

    @property
    def unsettled(self) -> bool:
        return self._transport.unsettled
