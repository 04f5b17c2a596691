"""Control apps and the consumer group that puts one of them in charge, in virtual time.

A control app follows ``streams/control_app/control_driver.py``: it acts while the group assigns it
the control topics, waits for the broker to take each record, and reads the topics back after a
stall.
"""

from collections import deque
from collections.abc import Callable

from benchmarks.schedules.faulty_broker import HOP_S, RETRY_S, Agenda, Broker, Link
from benchmarks.schedules.simulated_process import Making, Wall
from control.controller.controller import Controller
from control.estimation.demand import counted
from control.policies.solvers import solve
from control.problem.problem import PlanError
from schemas.codec.single_object import encode
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    PROFILE_RESULTS,
    QUERIES,
    REPORTS,
    Count,
    Effect,
    Event,
    Failed,
    Forget,
    Observer,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from streams.control_app.control_driver import PUBLISH_S, STALL_S
from streams.control_app.control_effects import READ
from streams.control_app.control_records import arrived, past
from streams.control_app.election import SESSION_TIMEOUT_S
from streams.control_app.host import ControlHost
from streams.live.steady_clock import SteadyClock
from streams.topics import physical

SOLVE_S = 0.05
INPUTS = tuple(each for each in READ if each != PROFILE_RESULTS)  # schedules have no sessions


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
        self._profile = making.profile
        self._observer, self._workers = observer, workers
        self._clock = SteadyClock(self.wall, lambda: agenda.now)
        self._host: ControlHost | None = None
        self._charged = False  # the group assigned the topics
        self._frozen = self._busy = self._stalled = self._pumping = False
        self._awake_s = agenda.now
        self._inbox: deque[tuple[ControlHost | None, Event]] = deque()
        self._effects: deque[Effect] = deque()
        self._late: list[Callable[[], None]] = []  # events that come due while frozen
        self._positions: dict[str, int] = {}
        for logical in INPUTS:
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
        self._host = ControlHost(Controller(self._pipeline, self._profile, self._workers))
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
        for logical in INPUTS:
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
