"""Time dilation: a run's processes use a clock that is slower than the wall clock by a factor.

A small machine can thus run a live load that would otherwise be too fast for it. Decisions, waits
and reports use inner time; the broker and the CPU take wall time, which is shorter by the factor in
inner time.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from streams.codecs.wire import Fetched
from streams.live.inbox import Inbox, Transport
from streams.live.steady_clock import Clock


@dataclass(frozen=True, slots=True)
class Dilation:
    """From ``since_s`` (Unix seconds) on, an inner second takes ``factor`` wall seconds."""

    factor: float = 1.0
    since_s: float = 0.0

    def inner(self, wall_s: float) -> float:
        """Return the inner time at a wall time."""
        return self.since_s + (wall_s - self.since_s) / self.factor

    def wall(self, inner_s: float) -> float:
        """Return the wall time at an inner time."""
        return self.since_s + (inner_s - self.since_s) * self.factor

    def clock(self, wall: Clock) -> Clock:
        """Return a clock of inner time."""
        return wall if self.factor == 1.0 else lambda: self.inner(wall())

    def inbox(self) -> Inbox:
        """Return an inbox whose time-outs are in inner time."""
        return Inbox() if self.factor == 1.0 else _Inbox(self.factor)

    def transport(self, transport: Transport) -> Transport:
        """Return a transport with time stamps in inner time; the broker keeps wall time."""
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
        self._factor = dilation.factor
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
        found = self._transport.fetch(timeout_s * self._factor)
        return [replace(each, at_s=inner(each.at_s)) for each in found]

    def end_turn(self, now: float) -> None:
        self._transport.end_turn(self._wall(now))

    @property
    def assigned(self) -> int:
        return self._transport.assigned

    @property
    def patience_s(self) -> float:
        return self._transport.patience_s / self._factor
