"""A process of the data plane: its node under the product's live driver, in virtual time.

It starts as the modules of ``headrace/roles`` start it: it listens for a node of its name, egress
acquires its lease, it reads back what its earlier life committed, and then runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.schedules.faulty_broker import RETRY_S, Agenda, Broker, Link
from benchmarks.schedules.faulty_clients import FaultyTransport
from benchmarks.schedules.faulty_lease import FaultyLease
from benchmarks.schedules.node_recovery import NODES
from benchmarks.schedules.simulated_process import Making, Wall
from schemas.codec.single_object import decode
from schemas.effects import REPORTS, Effect, Event, Observer
from schemas.records import Report
from streams.codecs.wire import Fetched
from streams.fencing import Fenced
from streams.live.executors import EmulatedExecutor
from streams.live.inbox import FetchedBatch, Inbox
from streams.live.live_driver import Live
from streams.live.steady_clock import SteadyClock
from streams.topics import physical

LISTEN_S, WATCH_S = 0.7, 3.0  # as headrace/roles/namesakes.py
FENCE_S = 5.0  # as headrace/roles/role_process.py
LEAST_WAIT_S = 1e-6  # a wait by a slewed clock may be too short to be added to the time
GROUPS = {"ingress": "ingress", "egress": "egress", "dispatcher": "dispatchers"}
MOST_TURNS = 1000  # of one instant: more are an endless loop


class QueuedInbox(Inbox):
    """An inbox that never waits, and remembers how long the driver would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.patience_s = 0.0

    def drain(self, timeout_s: float) -> list[Any]:
        self.patience_s = timeout_s
        return super().drain(0.0) if self._queue.qsize() else []


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
        self._wake_s = float("inf")
        self._live: Live | None = None
        self._inbox = QueuedInbox()
        self._group = GROUPS.get(name.partition("-")[0], "workers")
        self._lease: FaultyLease | None = None
        if self._group == "egress":
            self._lease = FaultyLease(
                agenda, broker, self.link, life, range(making.pipeline.egress_partitions),
                lambda: self.alive and not self._frozen, careless=making.careless,
            )  # fmt: skip
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
        if self._lease is not None:
            self._lease.ended = True
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
        """Start once the broker is reached and nothing of an earlier egress can be written."""
        if not self.alive:
            return
        if self._frozen or not self._broker.reaches(self.link) or not self._leased():
            self._agenda.after(RETRY_S, self._begin)
            return
        self._listen()
        if self.alive:
            self._run()

    def _leased(self) -> bool:
        """Return whether the lease is acquired and every answer can be read, as far as the role has
        one; end for a rival."""
        lease = self._lease
        if lease is None:
            return True
        if lease.rival:
            self._fail(NamesakeHeard(f"{lease.rival} holds the lease"))
        elif lease.lost is not None:
            self._fail(lease.lost)
        results = self._broker.places(self._broker.leased)
        settled = self._making.hasty or all(map(self._broker.settled, results))
        return lease.acquired and settled

    def _run(self) -> None:
        making, group = self._making, self._group
        self._watching = self._watching and self._lease is None  # the lease tells a rival
        self._transport = FaultyTransport(
            self._agenda, self._broker, self.link, f"{making.pipeline.name}.{group}", self.life,
            self._clock, self._deliver, lease=self._lease, eager=making.eager,
            trusting=making.trusting, hasty=making.hasty,
        )  # fmt: skip
        node = NODES[group](making, self._broker, self.name, self._incarnation)
        self._live = Live(
            making.pipeline, {self.name: node}, self._transport, clock=self._clock,
            inbox=self._inbox, observers=(Named(self._observer, self.life),),
            fence_s=None if group == "workers" else FENCE_S,
        )  # fmt: skip
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
        except Fenced as error:
            self._transport.abandon()
            self._fail(error)
            return
        if self.alive:
            self._turn_at(self._agenda.now + max(self._inbox.patience_s, LEAST_WAIT_S))

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
