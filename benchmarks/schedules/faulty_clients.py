"""The transport of one process over the faulty broker, by the rules of streams/kafka/transport.py.

Sends are in order, retried until they arrive, and confirmed by a second hop; a turn's offsets are
committed once its sends and those of every earlier turn are confirmed; a slot is given up after the
sends so far are confirmed, or after ``HAND_OVER_S``. A process that dies loses its unsent records.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from zlib import crc32

from benchmarks.schedules.faulty_broker import HOP_S, RETRY_S, Agenda, Broker, Link, Place
from benchmarks.schedules.faulty_lease import FaultyLease
from schemas.effects import REPORTS
from schemas.trace_context import Headers
from streams.codecs.wire import Fetched
from streams.kafka.reading.partition_reader import MOST_PER_FETCH
from streams.kafka.transport import COMMIT_S, HAND_OVER_S, IDLE_S, UNSETTLED_S
from streams.topics import physical

_REPORTS = physical("", REPORTS)
REQUEST_S = 2.0  # a producer repeats a request that was not confirmed within this time
Offsets = dict[Place, tuple[int, str]]


@dataclass(slots=True)
class Turn:
    """The unconfirmed sends of one driver turn, and the offsets that it reported done."""

    waiting: int = 0
    refused: list["Outgoing"] = field(default_factory=list)  # for a stamp that is too old
    done: Offsets = field(default_factory=dict)


@dataclass(slots=True)
class Outgoing:
    """A record on its way; ``turn`` waits for its confirmation."""

    place: Place
    key: bytes
    value: bytes
    at_s: float
    turn: Turn


@dataclass(slots=True)
class HandOver:
    """A change of the slots read; it waits until ``behind`` turns are confirmed."""

    number: int
    new: tuple[Place, ...]
    gone: tuple[Place, ...]
    commits: bool
    behind: int
    by_s: float


class FaultyTransport:
    """Implements the live driver's ``Transport``; ``deliver`` takes fetched records.

    Deliberate errors, for tests of the checker: ``eager`` commits before the sends are confirmed;
    ``trusting`` resends refused records without checking whether they were written; ``hasty``
    checks before every written record can be read.
    """

    def __init__(
        self,
        agenda: Agenda,
        broker: Broker,
        link: Link,
        group: str,
        life: str,
        clock: Callable[[], float],
        deliver: Callable[[int, list[Fetched]], None],
        *,
        lease: FaultyLease | None = None,
        eager: bool = False,
        trusting: bool = False,
        hasty: bool = False,
    ) -> None:
        self._agenda, self._broker, self._link = agenda, broker, link
        self._group, self._life, self._clock, self._deliver = group, life, clock, deliver
        self._eager, self._trusting, self._hasty, self._lease = eager, trusting, hasty, lease
        self.assigned = self._asked = 0
        self.alive = True
        self.frozen = False
        self._lands_s = float("-inf")  # of what was under way at a late death
        self._turn = Turn()
        self._turns: deque[Turn] = deque()
        self._ended = self._confirmed = 0
        self._outbox: deque[Outgoing] = deque()
        self._unstamped: deque[Outgoing] = deque()  # they wait for a fresh lease
        self._sending = False
        self._ready: Offsets = {}
        self._commit_at = 0.0
        self._hand_overs: deque[HandOver] = deque()
        self._ledger: deque[Callable[[], None]] = deque()
        self._asking = False
        self._positions: dict[Place, int] = {}
        self._left: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._ends: dict[Place, int] = {}
        self._pumping = False

    # ------------------------------------------------------------------ the protocol

    @property
    def patience_s(self) -> float:
        unsettled = self._turns or self._ready or self._hand_overs or self._ledger
        return UNSETTLED_S if unsettled else IDLE_S

    def fetch(self, timeout_s: float) -> list[Fetched]:
        raise AssertionError("the broker delivers")

    def send(self, topic: str, value: bytes, slot: int, key: str, headers: Headers = ()) -> None:
        at = slot if slot >= 0 else crc32(key.encode()) % self._broker.slots[topic]
        out = Outgoing((topic, at), key.encode(), value, self._clock(), self._turn)
        if topic == _REPORTS:
            # Reports are sent once, without a place in the turn.
            if self._broker.up and self._link.out:
                self._agenda.after(self._hop_s, lambda: self._land_report(out))
            return
        self._turn.waiting += 1
        if self._lease is not None and topic == self._broker.leased:
            self._unstamped.append(out)
            self._stamp_and_send(self._lease)
        else:
            self._outbox.append(out)
            self._send_soon(0.0)

    def _stamp_and_send(self, lease: FaultyLease) -> None:
        """Send the records that wait for a stamp, if the lease has a fresh one."""
        while self._unstamped and lease.fresh:
            out = self._unstamped.popleft()
            out.at_s = lease.stamp_s
            self._outbox.append(out)
        self._send_soon(0.0)

    def done(self, place: Place, offset: int, note: str) -> None:
        self._turn.done[place] = (offset, note)

    def end_turn(self, now: float) -> None:
        self._close_turn()
        if self._lease is not None:
            self._send_again(self._lease)
        self._settle()
        self._hand_over()
        if self._ready and self._agenda.now >= self._commit_at:
            self._commit_at = self._agenda.now + COMMIT_S
            self._commit()

    def _send_again(self, lease: FaultyLease) -> None:
        """Send what waits for a stamp, and refused records that are not on the topic; raise
        ``LeaseLost``."""
        if lease.lost is not None:
            raise lease.lost
        for turn in self._turns:
            refused, turn.refused = turn.refused, []
            for out in refused:
                if not (self._trusting or self._hasty or self._broker.settled(out.place)):
                    turn.refused.append(out)
                elif not self._trusting and self._written(out):
                    turn.waiting -= 1
                else:
                    self._unstamped.append(out)
        self._stamp_and_send(lease)

    def _written(self, out: Outgoing) -> bool:
        """Return whether an earlier attempt was written, as ``refused_records.py`` does."""
        identity = (out.key, out.value)
        return any((each.key, each.value) == identity for each in self._broker.readable(out.place))

    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int:
        gone = tuple(gone)
        self._asked += 1
        if gone:
            self._close_turn()
            self._paused -= set(gone)
            for place in gone:
                self._leave(place)
        behind = self._ended if gone else 0
        by_s = self._agenda.now + HAND_OVER_S
        self._hand_overs.append(HandOver(self._asked, tuple(new), gone, commits, behind, by_s))
        self._hand_over()
        return self._asked

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        among = set(among)
        self._paused = (self._paused - among) | (set(places) & among)
        self._pump_soon(self._hop_s)

    def end_of(self, place: Place) -> int | None:
        return self._ends.get(place)

    def abandon(self) -> None:
        self._outbox.clear()
        self._unstamped.clear()
        self._turns.clear()
        self._turn, self._ready = Turn(), {}

    def close(self) -> None:
        """Disconnect; the world ends the process."""
        self.die(None)

    # ------------------------------------------------------------------ faults

    def die(self, late_s: float | None) -> None:
        """End with the process: unsent records are lost or, with ``late_s``, arrive that much later
        (from buffers of the operating system), as do those under way."""
        self.alive = False
        for place in list(self._positions):
            self._leave(place)
        if late_s is not None:
            self._lands_s = self._agenda.now + late_s
            self._arrive_late(list(self._outbox))
        self._outbox.clear()

    def thaw(self) -> None:
        """Continue after a freeze."""
        self.frozen = False
        self._send_soon(0.0)
        self._pump_soon(0.0)

    # ------------------------------------------------------------------ sends

    @property
    def _hop_s(self) -> float:
        return HOP_S + self._link.delay_s

    @property
    def _runs(self) -> bool:
        return self.alive and not self.frozen

    def _send_soon(self, seconds: float) -> None:
        if self._outbox and not self._sending and self._runs:
            self._sending = True
            self._agenda.after(seconds, self._depart)

    def _depart(self) -> None:
        """Send all waiting records as one request; the next one follows once it has arrived, to
        keep the order of a slot as an idempotent producer does."""
        self._sending = False
        if not self._runs:
            return
        if not (self._broker.up and self._link.out):
            self._send_soon(RETRY_S)
            return
        self._sending = True
        request, self._outbox = list(self._outbox), deque()
        self._agenda.after(self._hop_s, lambda: self._land(request))

    def _land(self, request: list[Outgoing]) -> None:
        self._sending = False
        if self._agenda.now < self._lands_s:
            self._arrive_late(request)
            return
        if not (self._broker.up and self._link.out):
            if self.alive:  # lost on the way: the client repeats it in order
                self._outbox.extendleft(reversed(request))
                self._send_soon(RETRY_S)
            return
        taken, repeats_s = [self._append(out) for out in request], self._agenda.now + REQUEST_S
        self._agenda.after(self._hop_s, lambda: self._acknowledge(request, taken, repeats_s))
        self._send_soon(0.0)

    def _arrive_late(self, request: list[Outgoing]) -> None:
        def arrive() -> None:
            for out in request if self._broker.up else ():
                self._append(out)

        self._agenda.at(self._lands_s, arrive)

    def _append(self, out: Outgoing) -> bool:
        return self._broker.append(out.place, out.key, out.value, out.at_s)

    def _land_report(self, out: Outgoing) -> None:
        if self._broker.up and self._link.out:
            self._append(out)

    def _acknowledge(self, request: list[Outgoing], taken: list[bool], repeats_s: float) -> None:
        """Confirm a request once its records can be read. From ``repeats_s`` on, and if its
        confirmation was lost, the producer repeats it. The broker confirms repeated records that it
        has, except those whose stamps have expired meanwhile, which it checks first."""
        if not self.alive:
            return
        reached = self._broker.reaches(self._link) and self._runs
        if not reached:
            repeats_s = self._agenda.now
        elif self._agenda.now > repeats_s:
            taken = [
                is_taken and not self._broker.expired(out.place, out.at_s)
                for out, is_taken in zip(request, taken, strict=True)
            ]
        written = {out.place for out, is_taken in zip(request, taken, strict=True) if is_taken}
        if not (reached and all(map(self._broker.settled, written))):
            self._agenda.after(RETRY_S, lambda: self._acknowledge(request, taken, repeats_s))
            return
        for out, is_taken in zip(request, taken, strict=True):
            if is_taken:
                out.turn.waiting -= 1
            else:
                out.turn.refused.append(out)

    # ------------------------------------------------------------------ turns and commits

    def _close_turn(self) -> None:
        if self._turn.waiting or self._turn.done:
            self._turns.append(self._turn)
            self._ended += 1
            self._turn = Turn()

    def _settle(self) -> None:
        while self._turns and (self._eager or self._turns[0].waiting == 0):
            self._ready.update(self._turns.popleft().done)
            self._confirmed += 1

    def _commit(self) -> None:
        offsets, self._ready = self._ready, {}
        if offsets:
            self._ask(lambda: self._broker.commit(self._group, offsets, self._life))

    def _ask(self, do: Callable[[], None]) -> None:
        """Run a job of the ledger at the broker, after the earlier ones."""
        self._ledger.append(do)
        if not self._asking:
            self._asking = True
            self._agenda.after(self._hop_s, self._serve)

    def _serve(self) -> None:
        if not self.alive:
            return
        if not (self._broker.reaches(self._link) and not self.frozen):
            self._agenda.after(RETRY_S, self._serve)
            return
        self._ledger.popleft()()
        self._asking = bool(self._ledger)
        if self._ledger:
            self._agenda.after(2 * self._hop_s, self._serve)

    # ------------------------------------------------------------------ reading

    def _hand_over(self) -> None:
        while self._hand_overs:
            change = self._hand_overs[0]
            if self._confirmed < change.behind and self._agenda.now < change.by_s:
                return
            self._hand_overs.popleft()
            if change.gone:
                self._commit()
            self._ask(lambda change=change: self._look_up(change))  # type: ignore[misc]

    def _look_up(self, change: HandOver) -> None:
        if change.commits:
            starts = {place: self._broker.start_of(self._group, place) for place in change.new}
        else:
            starts = dict.fromkeys(change.new, 0)
            self._ends.update({place: self._broker.end(place) for place in change.new})
        self._agenda.after(self._hop_s, lambda: self._read_from(starts, change.number))

    def _read_from(self, starts: dict[Place, int], number: int) -> None:
        if not self.alive:
            return
        for place, at in starts.items():
            if self._left.get(place, 0) <= number:
                self._positions[place] = at
                self._broker.subscribers.setdefault(place, []).append(self._wake)
        self.assigned = number
        self._pump_soon(self._hop_s)

    def _leave(self, place: Place) -> None:
        self._left[place] = self._asked
        if self._positions.pop(place, None) is not None:
            self._broker.subscribers[place].remove(self._wake)

    def _wake(self) -> None:
        self._pump_soon(self._hop_s)

    def _pump_soon(self, seconds: float) -> None:
        if not self._pumping and self._runs:
            self._pumping = True
            self._agenda.after(seconds, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        if not self._runs:
            return
        if not self._broker.reaches(self._link):
            self._pump_soon(RETRY_S)
            return
        found: list[Fetched] = []
        for place, position in self._positions.items():
            if place not in self._paused:
                new = self._broker.readable(place, position, MOST_PER_FETCH)
                self._positions[place] = position + len(new)
                found += new
        if found:
            self._deliver(self.assigned, found)
            self._pump_soon(self._hop_s)
