"""Processes of the simulated system: roles under the live driver, and control apps.

A role starts as ``headrace/roles/wiring.py`` starts it: it listens for a node of its name, reads
back what its earlier life committed, and then runs. A control app follows
``streams/control_app/control_driver.py``: it acts while the group assigns it the control topics,
waits for the broker to take each record, and reads the topics back after a stall.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.schedules.faulty_broker import HOP_S, RETRY_S, Agenda, Broker, Link
from benchmarks.schedules.faulty_clients import FaultyTransport
from control.controller.controller import Controller
from control.estimation.demand import counted
from control.policies.solvers import solve
from control.problem.problem import PlanError
from operators.egress import Egress, made_s, upto_of_all
from operators.ingress import Ingress
from operators.input_place import next_generation, note_of_base, place_of
from operators.serving.worker import Worker
from schemas.codec.single_object import decode, encode
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    OUTPUTS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
    Count,
    Effect,
    Event,
    Failed,
    Forget,
    Node,
    Observer,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Report
from streams.codecs.wire import Fetched, origins
from streams.control_app.app import SESSION_TIMEOUT_S
from streams.control_app.control_driver import PUBLISH_S, READ, STALL_S
from streams.control_app.control_records import arrived, past
from streams.control_app.host import ControlHost
from streams.kafka.egress_recovery import Committed, answers_from_s
from streams.live.executors import EmulatedExecutor, Emulation
from streams.live.inbox import FetchedBatch, Inbox
from streams.live.live_driver import Live, StoodStill
from streams.live.steady_clock import SteadyClock
from streams.topics import physical

LISTEN_S, WATCH_S = 0.7, 3.0  # as headrace/roles/namesakes.py
FENCE_S = 5.0  # as headrace/roles/wiring.py
PARTITIONS = 4
SOLVE_S = 0.05
MOST_TURNS = 1000  # of one instant: more are an endless loop


class Wall:
    """The wall clock of a process's host: it may be off, and step."""

    def __init__(self, agenda: Agenda, off_s: float) -> None:
        self._agenda = agenda
        self.off_s = off_s

    def __call__(self) -> float:
        return self._agenda.now + self.off_s


class QueuedInbox(Inbox):
    """An inbox that never waits, and remembers how long the driver would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.patience_s = 0.0

    def drain(self, timeout_s: float) -> list[Any]:
        self.patience_s = timeout_s
        return super().drain(0.0) if self._queue.qsize() else []


@dataclass(frozen=True, slots=True)
class Making:
    """What the roles of a world are made of; tests replace parts to break an invariant."""

    pipeline: Pipeline
    model: Callable[[str, str], Emulation]
    load_s: float
    eager: bool = False  # commit before sends are confirmed
    forgetful: bool = False  # egress does not read its answers back


class Process(Protocol):
    """A process of the system."""

    name: str
    life: str
    alive: bool
    link: Link
    wall: Wall

    def die(self, late_s: float | None = None) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class DataProcess:
    """A role of the data plane: its node under ``Live``."""

    def __init__(
        self, agenda: Agenda, broker: Broker, making: Making, name: str, life: str,
        off_s: float, observer: Observer, ended: Callable[["DataProcess", Exception], None],
    ) -> None:  # fmt: skip
        self.name, self.life, self.alive, self.link = name, life, True, Link()
        self.wall = Wall(agenda, off_s)
        self._agenda, self._broker, self._making = agenda, broker, making
        self._observer, self._ended = observer, ended
        self._clock = SteadyClock(self.wall, lambda: agenda.now)
        self._frozen = False
        self._turning = False
        self._wake_s = float("inf")
        self._live: Live | None = None
        self._inbox = QueuedInbox()
        self._began_s = agenda.now
        self._incarnation = self._clock()
        self._watching = True
        broker.subscribers.setdefault((physical("", REPORTS), 0), []).append(self._listen)
        self._heard = broker.end((physical("", REPORTS), 0))
        agenda.after(LISTEN_S, self._begin)

    # ------------------------------------------------------------------ faults

    def die(self, late_s: float | None = None) -> None:
        """End as by SIGKILL; ``late_s``: see ``FaultyTransport.die``."""
        self.alive = self._watching = False
        if self._live is not None:
            self._transport.die(late_s)

    def freeze(self) -> None:
        """Stop as by SIGSTOP."""
        self._frozen = True
        if self._live is not None:
            self._transport.frozen = True

    def thaw(self) -> None:
        """Continue as by SIGCONT."""
        self._frozen = False
        if self._live is not None:
            self._transport.thaw()
            self._turn_at(self._agenda.now)

    # ------------------------------------------------------------------ start

    def _listen(self) -> None:
        """End if an older node of this name reports."""
        if not self._watching or self._frozen or not self._broker.reaches(self.link):
            return
        place = (physical("", REPORTS), 0)
        log = self._broker.log(place)
        while self._heard < len(log):
            report = decode(log[self._heard].value or b"")
            self._heard += 1
            mine = isinstance(report, Report) and report.node == self.name
            if mine and report.incarnation < self._incarnation:
                self._fail(NamesakeHeard(f"{self.name} reports already"))
                return
        if self._agenda.now - self._began_s > LISTEN_S + WATCH_S:
            self._watching = False

    def _begin(self) -> None:
        if not self.alive:
            return
        if self._frozen or not self._broker.reaches(self.link):
            self._agenda.after(RETRY_S, self._begin)
            return
        self._listen()
        if not self.alive:
            return
        kind = self.name.partition("-")[0]
        group = {"ingress": "ingress", "egress": "egress"}.get(kind, "workers")
        pipeline = self._making.pipeline
        self._transport = FaultyTransport(
            self._agenda, self._broker, self.link, f"{pipeline.name}.{group}", self.life,
            self._clock, self._deliver, eager=self._making.eager,
        )  # fmt: skip
        node = _NODES[group](self._making, self._broker, self.name, self._incarnation)
        self._live = Live(
            pipeline, {self.name: node}, self._transport, clock=self._clock, inbox=self._inbox,
            observers=(Named(self._observer, self.life),),
            fence_s=None if group == "workers" else FENCE_S,
        )  # fmt: skip
        making = self._making
        self._live.attach(self.name, EmulatedExecutor(
            lambda variant: making.model(self.name, variant), lambda _: making.load_s,
            self._live.post_at(self.name), self._clock,
        ))  # fmt: skip
        self._live.start()
        self._turn_at(self._agenda.now)

    # ------------------------------------------------------------------ turns

    def _deliver(self, assigned: int, records: list[Fetched]) -> None:
        self._inbox.put(FetchedBatch(assigned, records))
        self._turn_at(self._agenda.now)

    def _turn_at(self, at_s: float) -> None:
        if at_s < self._wake_s:
            self._wake_s = at_s
            self._agenda.at(at_s, lambda: self._turn(at_s))

    def _turn(self, at_s: float) -> None:
        """Turn until the driver would wait."""
        if at_s > self._wake_s or not self.alive or self._live is None:
            return  # an earlier turn was scheduled since, and has happened
        self._wake_s = float("inf")
        if self._frozen:
            return
        try:
            for _ in range(MOST_TURNS):
                self._live.turn()
                if not self.alive or self._inbox.patience_s > 0:
                    break
            else:
                raise AssertionError(f"{self.name} never waits at {self._agenda.now:g} s")
        except StoodStill as error:
            self._transport.abandon()
            self._fail(error)
            return
        if self.alive:
            self._turn_at(self._agenda.now + self._inbox.patience_s)

    def _fail(self, error: Exception) -> None:
        self.die()
        self._ended(self, error)


class NamesakeHeard(Exception):
    """An older node of this name reports."""


@dataclass(frozen=True, slots=True)
class Named:
    """Gives an observer the life in place of the node's name."""

    observer: Observer
    life: str

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.observer.saw(self.life, event, effects, now)


# ---------------------------------------------------------------------- nodes


def _ingress(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    """As ``headrace.roles.wiring.input_places`` resumes."""
    pipeline = making.pipeline
    group, topic = f"{pipeline.name}.ingress", physical(pipeline.name, QUERIES)
    found = broker.notes(group, topic)
    places = {p: place_of(offset, note) for p, (offset, note) in found.items()}
    outputs = broker.notes(f"{pipeline.name}.egress", physical(pipeline.name, OUTPUTS))
    closed = upto_of_all(note for _, note in outputs.values())
    first = {p: 0 for p in range(PARTITIONS) if p not in places}
    anew = {p: next_generation(closed[p] - 1) for p in first if closed.get(p)}
    start = {(topic, p): (0, note_of_base(base)) for p, base in (first | anew).items()}
    broker.commit(group, start, name)
    return Ingress(name, pipeline, range(PARTITIONS), incarnation=incarnation, upto=places | anew)


def _egress(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    """As ``streams/kafka/egress_recovery.py`` recovers."""
    pipeline = making.pipeline
    topic = physical(pipeline.name, OUTPUTS)
    notes = broker.notes(f"{pipeline.name}.egress", topic)
    places = []
    for _, slot in broker.places(topic):
        offset, note = notes.get(slot, (0, ""))
        times = [
            at_s
            for each in broker.log((topic, slot))[offset:]
            for at_s in (each.at_s, *made_s(decode(each.value or b"")))
        ]
        places.append(Committed(slot, offset, note, min(times, default=None)))
    since_s = answers_from_s(places)
    read = origins(pipeline)
    answered = [
        origin
        for place in broker.places(physical(pipeline.name, RESULTS))
        for each in broker.log(place)
        if since_s is not None and each.at_s >= since_s
        for origin in read(each.value or b"")
    ]
    return Egress(
        name, pipeline, range(pipeline.egress_partitions), incarnation=incarnation,
        upto=upto_of_all(each.note for each in places),
        answered=() if making.forgetful else answered,
    )  # fmt: skip


def _worker(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    return Worker(
        name, making.pipeline, "emulated", incarnation=incarnation, latency=lambda v, n: 0.004 * n
    )


_NODES: dict[str, Callable[[Making, Broker, str, float], Node]] = {
    "ingress": _ingress,
    "egress": _egress,
    "workers": _worker,
}


# ---------------------------------------------------------------------- control apps


class ControlGroup:
    """The consumer group that elects the control app in charge."""

    def __init__(self, agenda: Agenda, broker: Broker) -> None:
        self._agenda, self._broker = agenda, broker
        self._members: list[ControlProcess] = []
        self._seen_s: dict[str, float] = {}
        self._in_charge: ControlProcess | None = None
        self._look()

    def join(self, app: "ControlProcess") -> None:
        """Add an app."""
        self._members.append(app)
        self._seen_s[app.life] = self._agenda.now

    def _look(self) -> None:
        """Take heartbeats; expire silent members; assign the topics."""
        now = self._agenda.now
        self._agenda.after(0.5, self._look)
        if not self._broker.up:
            self._seen_s = dict.fromkeys(self._seen_s, now)
            return
        for app in self._members:
            if app.beats:
                self._seen_s[app.life] = now
        self._members = [
            a for a in self._members if a.alive or now - self._seen_s[a.life] < SESSION_TIMEOUT_S
        ]
        living = [a for a in self._members if now - self._seen_s[a.life] < SESSION_TIMEOUT_S]
        if self._in_charge not in living:
            self._in_charge = next((a for a in living if a.alive), None)
        for app in self._members:
            if app.beats:
                app.assign(app is self._in_charge)


class ControlProcess:
    """A control app: the controller's host and its driver."""

    def __init__(
        self, agenda: Agenda, broker: Broker, making: Making, name: str, life: str,
        off_s: float, observer: Observer, workers: int,
    ) -> None:  # fmt: skip
        self.name, self.life, self.alive, self.link = name, life, True, Link()
        self.wall = Wall(agenda, off_s)
        self._agenda, self._broker, self._pipeline = agenda, broker, making.pipeline
        self._observer, self._workers = observer, workers
        self._clock = SteadyClock(self.wall, lambda: agenda.now)
        self._host: ControlHost | None = None
        self._charged = False  # the group assigned the topics
        self._frozen = self._busy = self._stalled = self._pumping = False
        self._awake_s = agenda.now
        self._inbox: deque[tuple[ControlHost | None, Event]] = deque()
        self._effects: deque[Effect] = deque()
        self._late: list[Callable[[], None]] = []  # what comes due while frozen
        self._positions: dict[str, int] = {}
        for logical in READ:
            place = (physical(self._pipeline.name, logical), 0)
            broker.subscribers.setdefault(place, []).append(self._fetch_soon)

    # ------------------------------------------------------------------ faults

    def die(self, late_s: float | None = None) -> None:
        """End as by SIGKILL."""
        self.alive = False

    def freeze(self) -> None:
        """Stop as by SIGSTOP."""
        self._frozen = True

    def thaw(self) -> None:
        """Continue as by SIGCONT."""
        self._frozen = False
        due, self._late = self._late, []
        for do in due:
            do()
        self._fetch_soon()
        self._next()

    @property
    def beats(self) -> bool:
        """Whether the group hears this app."""
        return self.alive and not self._frozen and self._broker.reaches(self.link)

    def assign(self, charged: bool) -> None:
        """Take charge, or give it up."""
        if charged and not self._charged:
            self._charged = True
            self._begin()
        elif not charged and self._charged:
            self._charged, self._host = False, None
            self._inbox.clear()
            self._effects.clear()

    # ------------------------------------------------------------------ one at a time

    def _begin(self) -> None:
        """Replay the topics into a fresh controller, once the broker can be reached."""
        self._busy = True
        self._when_reached(self._replay)

    def _replay(self) -> None:
        self._busy = self._stalled = False
        if not self._charged:
            return
        name = self._pipeline.name
        self._host = ControlHost(Controller(self._pipeline, None, self._workers))
        self._inbox.clear()
        self._effects.clear()
        for logical in (PLANS, COMMAND_RESULTS, COMMANDS):
            log = self._broker.log((physical(name, logical), 0))
            for event in past(name, logical, log):
                self._host.handle(event, self._clock())
            self._positions[logical] = len(log)
        self._positions[REPORTS] = self._broker.end((physical(name, REPORTS), 0))
        self._post(self._host, Woke())
        self._fetch_soon()

    def _post(self, host: ControlHost | None, event: Event) -> None:
        if host is self._host and self.alive:
            self._inbox.append((host, event))
            self._next()

    def _next(self) -> None:
        """Perform effects and handle events until a record waits for the broker."""
        if self._frozen or not self.alive:
            return
        now = self._agenda.now
        self._stalled = self._stalled or now - self._awake_s > STALL_S
        while not self._busy and self._charged and self._host is not None:
            self._awake_s = now
            if self._stalled:
                self._begin()
            elif self._effects:
                self._perform(self._effects.popleft(), self._host)
            elif self._inbox:
                host, event = self._inbox.popleft()
                if host is self._host:
                    local_s = self._clock()
                    effects = self._host.handle(event, local_s)
                    self._observer.saw(self.life, event, effects, local_s)
                    self._effects.extend(effects)
            else:
                return
        self._awake_s = now

    def _perform(self, effect: Effect, host: ControlHost) -> None:
        if isinstance(effect, Send):
            self._write(effect.topic, effect.key.encode(), encode(effect.record))
        elif isinstance(effect, Forget):
            self._write(effect.topic, effect.key.encode(), None)
        elif isinstance(effect, Wake):
            self._later(effect.at_s - self._clock(), lambda: self._post(host, Woke()))
        elif isinstance(effect, Count):
            self._later(2 * HOP_S, lambda: self._post(host, self._counted()))
        elif isinstance(effect, Solve):
            self._later(SOLVE_S, lambda: self._post(host, _solved(effect)))

    def _counted(self) -> Event:
        if not self._broker.reaches(self.link):
            return Failed(QUERIES, "the broker is away")
        topic = physical(self._pipeline.name, QUERIES)
        ends = {slot: self._broker.end((t, slot)) for t, slot in self._broker.places(topic)}
        done = {
            p: o
            for p, (o, _) in self._broker.notes(f"{self._pipeline.name}.ingress", topic).items()
        }
        return counted(self._clock(), ends, done)

    def _write(self, logical: str, key: bytes, value: bytes | None) -> None:
        """Write a record and wait for its confirmation; give up after ``PUBLISH_S``."""
        self._busy = True
        place, until_s = (physical(self._pipeline.name, logical), 0), self._agenda.now + PUBLISH_S
        at_s, landed = self._clock(), False

        def attempt() -> None:
            nonlocal landed
            if not self.alive:
                return
            if self._frozen:
                self._late.append(attempt)
                return
            if not landed and self._broker.up and self.link.out:
                self._broker.append(place, key, value, at_s)
                landed = True
            if landed and self._broker.reaches(self.link):
                self._agenda.after(HOP_S, lambda: self._written(True))
            elif self._agenda.now < until_s:
                self._agenda.after(RETRY_S, attempt)
            else:
                self._written(False)

        self._agenda.after(HOP_S + self.link.delay_s, attempt)

    def _written(self, confirmed: bool) -> None:
        if self._frozen:
            self._late.append(lambda: self._written(confirmed))
            return
        self._busy = False
        self._stalled = self._stalled or not confirmed
        self._awake_s = self._agenda.now
        self._next()

    # ------------------------------------------------------------------ time and records

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        def due() -> None:
            if self._frozen:
                self._late.append(do)
            elif self.alive:
                do()

        self._agenda.after(seconds, due)

    def _when_reached(self, do: Callable[[], None]) -> None:
        def attempt() -> None:
            if not self.alive:
                return
            if self._frozen or not self._broker.reaches(self.link):
                self._agenda.after(RETRY_S, attempt)
            else:
                do()

        self._agenda.after(2 * HOP_S + self.link.delay_s, attempt)

    def _fetch_soon(self) -> None:
        if not self._pumping and self._host is not None and self.alive and not self._frozen:
            self._pumping = True
            self._agenda.after(HOP_S + self.link.delay_s, self._fetch)

    def _fetch(self) -> None:
        self._pumping = False
        if not self.alive or self._frozen or self._host is None:
            return
        if not self._broker.reaches(self.link):
            self._pumping = True
            self._agenda.after(RETRY_S, self._fetch)
            return
        for logical in READ:
            log = self._broker.log((physical(self._pipeline.name, logical), 0))
            new, self._positions[logical] = log[self._positions[logical] :], len(log)
            for each in new:
                event = arrived(self._pipeline.name, logical, each)
                if event is not None:
                    self._inbox.append((self._host, event))
        self._next()


def _solved(effect: Solve) -> Event:
    try:
        return Solved(effect.job, solve(effect.solver, effect.problem))
    except PlanError as error:
        return Failed(effect.job, str(error))


__all__ = ["PARTITIONS", "ControlGroup", "ControlProcess", "DataProcess", "Making", "Process"]
