"""The live driver: drain, handle, perform, commit; on the wall clock.

One thread handles the entries of one inbox and the due timers in order, and performs their effects
before the next turn. Other threads only feed the inbox: each worker's threads run and load its
models, and a reading thread reads from Kafka. A process without models reads on the deciding
thread.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from queue import SimpleQueue
from typing import Any

from schemas.effects import (
    COMMANDS,
    Arrived,
    Assign,
    Deliver,
    Effect,
    Event,
    Infer,
    Load,
    Node,
    Observer,
    Send,
    Unload,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Command, Plan
from schemas.release import UNDECLARED
from streams.codecs.size_gate import MOST_ENCODED_BYTES, fitting
from streams.codecs.wire import Encode, encoder
from streams.fencing import Fenced, StoodStill
from streams.kafka.kafka_errors import BrokerError
from streams.live.executors import Executor, Post, PostAt
from streams.live.fatal_records import FatalRecords
from streams.live.inbox import FetchedBatch, Inbox, Transport
from streams.live.slot_readers import InputLog, SlotReaders
from streams.live.steady_clock import Clock
from streams.topics import physical

LOOK_S = 0.2  # interval between two checks for a hanging executor
# A node that ends still handles what is due by then: ingress notices its last queries, and egress
# commits its last records.
PENDING_S = 0.1
MOST_FETCHES = 4  # unhandled fetches at a time; beyond it the backlog stays on the broker
Room = SimpleQueue[None]  # an entry for each further fetch; a semaphore without Python's code


class Live:
    """Runs the nodes of one process over a transport."""

    def __init__(
        self,
        pipeline: Pipeline,
        nodes: Mapping[str, Node],
        transport: Transport,
        *,
        clock: Clock = time.time,
        inbox: Inbox | None = None,
        observers: Sequence[Observer] = (),
        fence_s: float | None = None,
        fatal: FatalRecords | None = None,
        write_as: Callable[[int], None] | None = None,
        input_log: InputLog | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._fence_s = fence_s  # the longest stall that the process survives; None: any
        self._fenced_s: float | None = None  # time of the last check of the fence
        self._nodes = dict(nodes)
        self._transport = transport
        self._clock = clock
        self._inbox = inbox or Inbox()
        self._observers = tuple(observer.saw for observer in observers)
        # What they are yet to see: queries do not wait for them.
        self._unseen: list[tuple[str, Event, Sequence[Effect], float]] = []
        self._executor: dict[str, Executor] = {}
        self._look_at_s = 0.0
        self._began = self._told = False  # in this turn: a batch began; the transport was notified
        self._timers: list[tuple[float, int, str, Event]] = []
        self._count = 0
        self._routes: dict[str, tuple[str, Any]] = {}
        self._fatal = fatal
        self._write_as = write_as  # sets the schema release in which this process writes
        self._slots = SlotReaders(pipeline, transport, clock, fatal, input_log)
        self._epoch = 0  # epoch of the plan that set the release to write
        self._stopping = False
        self._leave_by: float | None = None

    # ------------------------------------------------------------------ from other threads

    def attach(self, node: str, executor: Executor) -> None:
        """Attach the executor of a worker's models."""
        self._executor[node] = executor

    def post(self, node: str) -> Post:
        """Return a function by which an executor posts events from its threads."""
        return lambda event: self._inbox.put((node, event))

    def post_at(self, node: str) -> PostAt:
        """Return a function by which an executor schedules events from the driver's thread."""
        return lambda at_s, event: self._later(at_s, node, event)

    def fail(self, error: BaseException) -> None:
        """End ``run`` with this error; may be called from any thread."""
        self._inbox.put(error)

    def stop(self) -> None:
        """End ``run`` after the turn; may be called from a signal handler."""
        self._stopping = True
        self._inbox.put(None)

    def leave(self, within_s: float) -> None:
        """Drain every node; end ``run`` once no slots are held or ``within_s`` has passed.

        May be called from a signal handler; a second call ends ``run`` at once.
        """
        if self._leave_by is not None:
            return self.stop()
        now = self._clock()
        self._leave_by = now + within_s
        for node in self._nodes:
            drain = Command(
                id="", pipeline=self._pipeline.name, action="drain", arguments={"target": node}
            )
            self._inbox.put((node, Arrived(drain, COMMANDS, 0, -1, now)))

    @property
    def has_left(self) -> bool:
        """Whether ``leave`` was called and no slots are held, or its time has passed."""
        if self._leave_by is None:
            return False
        return self._slots.free or self._clock() > self._leave_by

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Drive until ``stop`` or ``leave``; then flush the sends, commit and close."""
        try:
            self.start()
            if self._executor:
                self._run_beside_reader()
            else:
                self._run_alone()
        except Fenced:
            self._transport.abandon()
            raise
        finally:
            self._show()
            for executor in self._executor.values():
                executor.close()
            self._transport.close()

    def _run_alone(self) -> None:
        """Fetch on this thread: a record that is passed between threads arrives later."""
        due_s = 0.0
        while not (self._stopping or self.has_left):
            self._fetch(max(due_s - self._clock(), 0.0) if self._inbox.empty else 0.0)
            if not self._inbox.empty or self._clock() >= due_s:
                self.turn(wait_s=0.0)
                due_s = self._clock() + self._patience()
        self._end_pending()

    def _end_pending(self) -> None:
        """Stop fetching, and handle everything that is due within ``PENDING_S``."""
        self.turn(wait_s=0.0)
        now = self._clock()
        due = [at_s for at_s, *_ in self._timers if at_s <= now + PENDING_S]
        if due:
            self.turn(wait_s=max(due) - now)

    def _run_beside_reader(self) -> None:
        """Fetch on a separate thread: the end of a batch must not wait for a fetch."""
        room: Room = SimpleQueue()
        for _ in range(MOST_FETCHES):
            room.put(None)
        reader = threading.Thread(target=self._read, args=(room,), name="reader", daemon=True)
        reader.start()
        try:
            while not (self._stopping or self.has_left):
                self.turn(room)
        finally:
            self._stopping = True
            room.put(None)
            reader.join()

    def _read(self, room: Room) -> None:
        while not self._stopping:
            try:
                self._fetch(0.1, room)
            except Exception as error:  # noqa: BLE001 - the driver's thread raises it
                self._inbox.put(error)
                return

    def _fetch(self, timeout_s: float, room: Room | None = None) -> None:
        if found := self._transport.fetch(timeout_s):
            if room is not None:
                room.get()
            self._inbox.put(FetchedBatch(self._transport.assigned, found))

    def start(self) -> None:
        """Send every node its first event."""
        for name in self._nodes:
            self._handle(name, Woke(), self._now())

    def turn(self, room: Room | None = None, wait_s: float | None = None) -> None:
        """Handle the inbox, waiting if it is empty; then timers; then confirmations and commits."""
        for entry in self._inbox.drain(self._patience() if wait_s is None else wait_s):
            self._take(entry, room)
        now = self._now()
        while self._timers and self._timers[0][0] <= now:
            _, _, node, event = heappop(self._timers)
            self._handle(node, event, self._now())
        if self._slots.catching_up:
            for node, event in self._slots.complete(now):
                self._deliver(node, event, self._now())
        if self._began and not self._told:
            # The batch waits for the interpreter's lock; the next turn ends this one, too.
            self._began = False
            return
        self._began = self._told = False
        self._transport.end_turn(now)
        self._show()
        if now >= self._look_at_s:
            self._look_at_s = now + LOOK_S
            for executor in self._executor.values():
                executor.look(now)

    def _now(self) -> float:
        """Return the time. Raise ``StoodStill`` after any stall since the last call: another
        process may have done the work."""
        now = self._clock()
        if self._fence_s is not None:
            before_s, self._fenced_s = self._fenced_s, now
            if before_s is not None and now - before_s > self._fence_s:
                raise StoodStill(
                    f"this process stood still for {now - before_s:.1f} s; another may have taken "
                    "its place, so it ends and is to be restarted"
                )
        return now

    def _take(self, entry: Any, room: Room | None) -> None:
        if type(entry) is FetchedBatch:
            if room is not None:
                room.put(None)
            self._records(entry)
        elif type(entry) is tuple:
            node, event = entry
            self._handle(node, event, self._now())
        elif entry is not None:
            raise entry

    def _records(self, batch: FetchedBatch) -> None:
        try:
            now = self._now()
            for node, event in self._slots.events(batch):
                self._deliver(node, event, now)
                now = self._now()  # here: the next record is not charged with this one's time
        except Exception as error:
            self._blame(error)
            raise

    def _blame(self, error: Exception) -> None:
        """Charge the end of this process to the record that it handles, if the record caused it."""
        handled = self._slots.handling
        if self._fatal is None or handled is None:
            return
        # A decoder or a user's function that takes too long does so in every life.
        if isinstance(error, BrokerError | Fenced) and not isinstance(error, StoodStill):
            self._fatal.ended()
        else:
            self._fatal.ended_at(handled, error)

    def _deliver(self, node: str, event: Arrived, now: float) -> None:
        if type(event.record) is Plan:
            self._follow(event.record)
        self._handle(node, event, now)

    def _follow(self, plan: Plan) -> None:
        """Write in the release of the newest plan."""
        newer = plan.pipeline == self._pipeline.name and plan.epoch > self._epoch
        if newer and self._write_as is not None:
            self._epoch = plan.epoch
            self._write_as(plan.release or UNDECLARED)

    def _patience(self) -> float:
        patience_s = self._transport.patience_s
        if not self._timers:
            return patience_s
        return min(max(self._timers[0][0] - self._clock(), 0.0), patience_s)

    def _handle(self, node: str, event: Event, now: float) -> None:
        effects = self._nodes[node].handle(event, now)
        for effect in effects:
            self._perform(node, effect)
        if self._observers:
            self._unseen.append((node, event, effects, now))

    def _show(self) -> None:
        """Show the observers what was handled, once its effects have left."""
        unseen, self._unseen = self._unseen, []
        for node, event, effects, now in unseen:
            for saw in self._observers:
                saw(node, event, effects, now)

    # ------------------------------------------------------------------ effects

    def _perform(self, node: str, effect: Effect) -> None:
        kind = type(effect)
        if kind is Send:
            self._send(effect)  # type: ignore[arg-type]
        elif kind is Infer:
            self._began = True
            self._executor[node].infer(effect)  # type: ignore[arg-type]
        elif kind is Assign:
            self._assign(node, effect)  # type: ignore[arg-type]
        elif kind is Wake:
            self._later(effect.at_s, node, Woke())  # type: ignore[union-attr]
        elif kind is Load:
            self._executor[node].load(effect)  # type: ignore[arg-type]
        elif kind is Unload:
            self._executor[node].unload(effect)  # type: ignore[arg-type]
        elif kind is Deliver:
            self._later(self._clock(), effect.node, effect.event)  # type: ignore[union-attr]
        else:
            raise TypeError(f"{node} asked for {effect!r}, which the live driver does not perform")

    def _send(self, effect: Send) -> None:
        self._told = True
        route = self._routes.get(effect.topic)
        if route is None:
            name = physical(self._pipeline.name, effect.topic)
            route = self._routes[effect.topic] = (name, encoder(self._pipeline, effect.topic))
        topic, encode = route
        value = encode(effect.record)
        if len(value) <= MOST_ENCODED_BYTES:
            self._transport.send(topic, value, effect.slot, effect.key, effect.headers)
        else:
            self._send_smaller(effect, encode)

    def _send_smaller(self, effect: Send, encode: Encode) -> None:
        for send, value in fitting(effect, encode, self._pipeline.egress_partitions):
            topic = physical(self._pipeline.name, send.topic)
            self._transport.send(topic, value, send.slot, send.key, send.headers)

    def _later(self, at_s: float, node: str, event: Event) -> None:
        # The count breaks ties in order of scheduling and keeps events from being compared.
        self._count += 1
        heappush(self._timers, (at_s, self._count, node, event))

    def _assign(self, node: str, effect: Assign) -> None:
        self._told = True
        topic = physical(self._pipeline.name, effect.topic)
        if effect.done:
            for done in effect.done:
                self._transport.done((topic, done.slot), done.offset, done.note)
        if effect.slots is not None:
            self._slots.lease(node, effect.topic, effect.slots)
        if effect.paused is not None:
            self._slots.pause(node, topic, effect.paused)
