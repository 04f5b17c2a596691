"""The live driver: drain, handle, perform, commit; on the wall clock.

One thread handles the entries of one inbox and the due timers in order, and performs their effects
before the next turn. Other threads only feed the inbox: one reads from Kafka, and each worker's
threads run and load its models.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from operators.operator_error import OperatorFailed
from operators.plan_follower import CatchUp
from operators.user_frames import sentence, trace, with_frames
from schemas.effects import (
    COMMANDS,
    PLANS,
    QUERIES,
    Arrived,
    Assign,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Load,
    Loaded,
    Node,
    Send,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Command
from schemas.user_errors import UNSUCCESSFUL, HeadraceError
from streams.codecs.size_gate import MOST_ENCODED_BYTES, Encode, fitting
from streams.codecs.wire import Fetched, decoder, encoder
from streams.live.crash_journal import CrashJournal
from streams.topics import physical

Place = tuple[str, int]
Clock = Callable[[], float]
Post = Callable[[Event], None]
PostAt = Callable[[float, Event], None]

CATCH_UP_S = 2.0  # a history without a further record for this long is complete
IDLE_S = 0.05  # the longest that confirmations wait for the next turn
LOAD_S = 600.0  # a longer load ends the process; large models come over a network
STUCK_S = 60.0  # a longer batch of a variant without a time limit ends the process
MOST_FETCHES = 4  # unhandled fetches at a time; beyond it the backlog stays on the broker


class Transport(Protocol):
    """The driver's interface to a broker; ``streams/kafka/transport.py`` implements Kafka's."""

    def fetch(self, timeout_s: float) -> list[Fetched]: ...
    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int: ...
    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None: ...
    def send(self, topic: str, value: bytes, slot: int, key: str) -> None: ...
    def done(self, place: Place, offset: int, note: str) -> None: ...
    def end_turn(self, now: float) -> None: ...
    def end_of(self, place: Place) -> int | None: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...
    @property
    def assigned(self) -> int: ...
    @property
    def unsettled(self) -> bool: ...


class Executor(Protocol):
    """The performer of a worker's ``Infer`` and ``Load`` effects."""

    def infer(self, effect: Infer) -> None: ...
    def load(self, effect: Load) -> None: ...
    def look(self, now: float) -> None: ...
    def close(self) -> None: ...


class OperatorStuck(HeadraceError):
    """A batch or a load does not end, or its thread died; only a new process helps."""

    exit_code = UNSUCCESSFUL


class StoodStill(HeadraceError):
    """The process stalled for so long that another may have taken its place."""

    exit_code = UNSUCCESSFUL


class LogWentBack(HeadraceError):
    """A slot's offsets went back while it was read; a restarted role reads its present records."""

    exit_code = UNSUCCESSFUL


class Observer(Protocol):
    """Sees every event with its effects; changes nothing."""

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None: ...


class Inbox:
    """The driver's queue of entries; ``put`` may be called from any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, entry: Any) -> None:
        self._queue.put(entry)

    def drain(self, timeout_s: float) -> list[Any]:
        """Wait for an entry, then return all queued ones; empty after the time-out."""
        entries: list[Any] = []
        with contextlib.suppress(queue.Empty):
            entries.append(self._queue.get(timeout=timeout_s))
            while True:
                entries.append(self._queue.get_nowait())
        return entries


class FetchedBatch(NamedTuple):
    """The records of one fetch, with the number of the assignment in effect."""

    assigned: int
    records: list[Fetched]


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
    ) -> None:
        self._pipeline = pipeline
        self._fence_s = fence_s  # the longest stall that the process survives; None: any
        self._turned_s: float | None = None  # end of the last turn
        self._nodes = dict(nodes)
        self._transport = transport
        self._clock = clock
        self._inbox = inbox or Inbox()
        self._observers = tuple(observers)
        self._executor: dict[str, Executor] = {}
        self._timers: list[tuple[float, int, str, Event]] = []
        self._count = 0
        self._logical: dict[str, str] = {}
        self._decoders: dict[str, Any] = {}
        self._routes: dict[str, tuple[str, Any]] = {}
        self._readers: dict[Place, tuple[str, ...]] = {}
        self._since: dict[Place, int] = {}  # the assignment under which a slot is read
        self._next: dict[Place, int] = {}  # the offset after a slot's last record
        self._past: dict[Place, tuple[CatchUp, float]] = {}  # history, time of its last record
        self._stopping = False
        self._leave_by: float | None = None

    # ------------------------------------------------------------------ from other threads

    def give_hands(self, node: str, executor: Executor) -> None:
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
        plans = physical(self._pipeline.name, PLANS)
        free = all(topic == plans for topic, _ in self._readers)
        return free or self._clock() > self._leave_by

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Drive until ``stop`` or ``leave``; then flush the sends, commit and close."""
        room = threading.Semaphore(MOST_FETCHES)
        reader = threading.Thread(target=self._read, args=(room,), name="reader", daemon=True)
        try:
            self.start()
            reader.start()
            while not (self._stopping or self.has_left):
                self.turn(room)
        except StoodStill:
            self._transport.abandon()
            raise
        finally:
            self._stopping = True
            for executor in self._executor.values():
                executor.close()
            room.release()
            if reader.ident is not None:
                reader.join()
            self._transport.close()

    def _read(self, room: threading.Semaphore) -> None:
        while not self._stopping:
            try:
                found = self._transport.fetch(0.1)
            except Exception as error:  # noqa: BLE001 - the driver's thread raises it
                self._inbox.put(error)
                return
            if found:
                room.acquire()
                self._inbox.put(FetchedBatch(self._transport.assigned, found))

    def start(self) -> None:
        """Send every node its first event."""
        for name in self._nodes:
            self._handle(name, Woke())

    def turn(self, room: threading.Semaphore | None = None) -> None:
        """Handle the inbox, waiting if it is empty; then timers; then confirmations and commits."""
        entries = self._inbox.drain(self._patience())
        self._check_fence()
        for entry in entries:
            self._take(entry, room)
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, node, event = heappop(self._timers)
            self._handle(node, event)
        if self._past:
            self._end_past(now)
        self._transport.end_turn(now)
        for executor in self._executor.values():
            executor.look(now)
        self._turned_s = self._clock()

    def _check_fence(self) -> None:
        """Raise ``StoodStill`` after a stall, before acting: another may have done the work."""
        if self._fence_s is None or self._turned_s is None:
            return
        stood_s = self._clock() - self._turned_s
        if stood_s > self._fence_s:
            raise StoodStill(
                f"this process stood still for {stood_s:.1f} s; another may have taken its place, "
                "so it ends and is to be started anew"
            )

    def _take(self, entry: Any, room: threading.Semaphore | None) -> None:
        if type(entry) is FetchedBatch:
            if room is not None:
                room.release()
            self._records(entry)
        elif type(entry) is tuple:
            self._handle(*entry)
        elif entry is not None:
            raise entry

    def _patience(self) -> float:
        wait = self._timers[0][0] - self._clock() if self._timers else 1.0
        most = IDLE_S if self._transport.unsettled else 1.0
        return min(max(wait, 0.0), most)

    def _records(self, batch: FetchedBatch) -> None:
        for fetched in batch.records:
            place = (fetched.topic, fetched.slot)
            readers = self._readers.get(place, ())
            # Skip records fetched before the slot was given up or reassigned at another offset:
            # they would hide the records between.
            if not readers or batch.assigned < self._since[place]:
                continue
            if fetched.offset < self._next.get(place, 0):
                self._went_back(place, fetched.offset)
            self._next[place] = fetched.offset + 1
            logical = self._logical[fetched.topic]
            if place in self._past:
                self._read_past(place, fetched)
                continue
            if fetched.value is None and logical == PLANS:
                continue  # a tombstone: the control app deleted the plan
            record = self._decoders[fetched.topic](fetched)
            event = Arrived(record, logical, fetched.slot, fetched.offset, fetched.at_s)
            for node in readers:
                self._handle(node, event)

    def _went_back(self, place: Place, offset: int) -> None:
        # Ingress maps offsets to places that only grow; other roles cannot tell records apart.
        if self._logical[place[0]] != QUERIES:
            raise LogWentBack(
                f"slot {place[1]} of topic {place[0]} went back from offset {self._next[place]} to "
                f"{offset}: it was made anew or has lost its end; start this role anew"
            )

    def _read_past(self, place: Place, fetched: Fetched) -> None:
        past, _ = self._past[place]
        past.end = self._transport.end_of(place)
        if fetched.value is None:
            past.forget(fetched.key, fetched.offset)
        else:
            record = self._decoders[fetched.topic](fetched)
            logical = self._logical[fetched.topic]
            event = Arrived(record, logical, fetched.slot, fetched.offset, fetched.at_s)
            past.take(event, fetched.key)
        self._past[place] = (past, self._clock())
        if past.over:
            self._tell_past(place)

    def _tell_past(self, place: Place) -> None:
        """Deliver a complete history's newest records to the nodes."""
        past, _ = self._past.pop(place)
        for event in past.newest():
            for node in self._readers.get(place, ()):
                self._handle(node, event)

    def _end_past(self, now: float) -> None:
        # The last offsets of a log may hold no record: compacted ones, or transaction markers.
        for place, (_, since_s) in list(self._past.items()):
            if self._transport.end_of(place) is None:
                self._past[place] = (self._past[place][0], now)
            elif now - since_s > CATCH_UP_S:
                self._tell_past(place)

    def _handle(self, node: str, event: Event) -> None:
        now = self._clock()
        effects = self._nodes[node].handle(event, now)
        for observer in self._observers:
            observer.saw(node, event, effects, now)
        for effect in effects:
            self._perform(node, effect)

    # ------------------------------------------------------------------ effects

    def _perform(self, node: str, effect: Effect) -> None:
        kind = type(effect)
        if kind is Send:
            self._send(effect)  # type: ignore[arg-type]
        elif kind is Infer:
            self._executor[node].infer(effect)  # type: ignore[arg-type]
        elif kind is Assign:
            self._assign(node, effect)  # type: ignore[arg-type]
        elif kind is Wake:
            self._later(effect.at_s, node, Woke())  # type: ignore[union-attr]
        elif kind is Load:
            self._executor[node].load(effect)  # type: ignore[arg-type]
        else:
            raise TypeError(f"{node} asked for {effect!r}, which the live driver does not perform")

    def _send(self, effect: Send) -> None:
        route = self._routes.get(effect.topic)
        if route is None:
            name = physical(self._pipeline.name, effect.topic)
            route = self._routes[effect.topic] = (name, encoder(self._pipeline, effect.topic))
        topic, encode = route
        value = encode(effect.record)
        if len(value) <= MOST_ENCODED_BYTES:
            self._transport.send(topic, value, effect.slot, effect.key)
        else:
            self._send_smaller(effect, encode)

    def _send_smaller(self, effect: Send, encode: Encode) -> None:
        for send, value in fitting(effect, encode, self._pipeline.egress_partitions):
            topic = physical(self._pipeline.name, send.topic)
            self._transport.send(topic, value, send.slot, send.key)

    def _later(self, at_s: float, node: str, event: Event) -> None:
        # The count breaks ties in order of scheduling and keeps events from being compared.
        self._count += 1
        heappush(self._timers, (at_s, self._count, node, event))

    def _assign(self, node: str, effect: Assign) -> None:
        topic = physical(self._pipeline.name, effect.topic)
        if effect.done:
            for done in effect.done:
                self._transport.done((topic, done.slot), done.offset, done.note)
        if effect.slots is not None:
            self._lease(node, effect.topic, topic, effect.slots)
        if effect.paused is not None:
            mine = [p for p, nodes in self._readers.items() if p[0] == topic and node in nodes]
            self._transport.pause([(topic, slot) for slot in effect.paused], mine)

    def _lease(self, node: str, logical: str, topic: str, slots: tuple[int, ...]) -> None:
        self._logical[topic] = logical
        self._decoders[topic] = decoder(self._pipeline, logical)
        wanted = {(topic, slot) for slot in slots}
        new, gone = [], []
        for place in sorted(wanted):
            readers = self._readers.get(place, ())
            if node not in readers:
                self._readers[place] = (*readers, node)
                # A slot that moves between nodes of this process is read again: the former owner
                # forgets its items with its lease. All nodes share one reading of the plans.
                if not readers or logical != PLANS:
                    new.append(place)
                    gone += [place] if readers else []
        for place, readers in list(self._readers.items()):
            if place[0] == topic and node in readers and place not in wanted:
                left = tuple(r for r in readers if r != node)
                if left:
                    self._readers[place] = left
                else:
                    del self._readers[place]
                    gone.append(place)
        if new or gone:
            self._read_anew(new, gone, logical)

    def _read_anew(self, new: list[Place], gone: list[Place], logical: str) -> None:
        number = self._transport.assign(new, gone, commits=logical != PLANS)
        self._since.update(dict.fromkeys(new, number))
        for place in new:
            self._next.pop(place, None)
        if logical == PLANS:
            self._past.update({p: (CatchUp(self._pipeline.name), self._clock()) for p in new})


class Operator(Protocol):
    """An operator as built by operators/models."""

    def load(self, device: str) -> None: ...
    def predict(self, batch: list[Any]) -> list[Any]: ...


class ModelExecutor:
    """Executor of real models.

    One thread runs batches, so a device runs one at a time; loads run on other threads, so that
    the old variant serves meanwhile.
    """

    def __init__(
        self,
        make: Callable[[str], Operator],
        device: str,
        post: Post,
        clock: Clock = time.time,
        journal: CrashJournal | None = None,
    ) -> None:
        self._journal = journal
        self._make = make
        self._device = device
        self._post = post
        self._clock = clock
        self._operators: dict[str, Operator] = {}
        self._beside: set[str] = set()
        # By variant: the operators to evict at its first use, those held when it was loaded.
        self._leaving: dict[str, dict[str, Operator]] = {}
        self._jobs: queue.SimpleQueue[Infer | None] = queue.SimpleQueue()
        self._running: tuple[str, float, int] | None = None  # variant, since when, job
        self._loads: dict[str, float] = {}  # variants being loaded, since when
        self._stuck = ""  # why the process must end, after the running items have failed
        self._thread = threading.Thread(target=self._work, name="models", daemon=True)
        self._thread.start()

    def infer(self, effect: Infer) -> None:
        self._jobs.put(effect)

    def load(self, effect: Load) -> None:
        if effect.variant in self._beside and not effect.beside:
            self._alone(effect.variant)  # already loaded; evict the others at its first use
            self._post(Loaded(effect.variant, 0.0))
        elif effect.variant not in self._loads:
            self._loads[effect.variant] = self._clock()
            threading.Thread(target=self._load, args=(effect,), daemon=True).start()

    def look(self, now: float) -> None:
        """Raise ``OperatorStuck`` if a batch runs for over ``STUCK_S``, a load for over ``LOAD_S``,
        or the thread that runs batches has died.

        A hanging job fails first: one call posts ``Failed``, the next raises, so that the node can
        forward the reason in between.
        """
        if self._stuck:
            raise OperatorStuck(self._stuck)
        running = self._running
        if running is not None and now - running[1] > STUCK_S:
            self._stuck = (
                f"{running[0]} has been running one batch for {STUCK_S:g} s; a thread cannot be "
                "ended; with `limits: {time: ...}` the variant runs in a process that can"
            )
            self._post(Failed(running[2], self._stuck))
            return
        if not self._thread.is_alive():
            raise OperatorStuck("the thread that runs batches has ended; a new process replaces it")
        for variant, since_s in list(self._loads.items()):
            if now - since_s > LOAD_S:
                self._stuck = (
                    f"{variant} has been loading for {LOAD_S:g} s; a thread cannot be ended; "
                    "correct its load(), or load less"
                )
                self._post(Failed(variant, self._stuck))

    def close(self) -> None:
        self._jobs.put(None)
        if self._journal is not None and not self._stuck:
            self._journal.ended()  # a regular end, not a crash

    def _load(self, effect: Load) -> None:
        began, variant = self._clock(), effect.variant
        try:
            operator = self._make(variant)
            operator.load(self._device)
        except BaseException as error:  # noqa: BLE001 - a user's class may raise SystemExit too
            self._loads.pop(variant, None)
            self._post(_failed(variant, f"{variant} cannot be loaded: {_told(error)}", error))
            return
        self._operators[variant] = operator
        self._loads.pop(variant, None)
        if effect.beside:
            self._beside.add(variant)
        else:
            self._alone(variant)
        self._post(Loaded(variant, self._clock() - began))

    def _alone(self, variant: str) -> None:
        self._leaving[variant] = {k: o for k, o in list(self._operators.items()) if k != variant}

    def _let_go(self, leaving: Mapping[str, Operator]) -> None:
        """Evict the operators held before a swap, except those reloaded since."""
        for variant, operator in leaving.items():
            if self._operators.get(variant) is operator:
                del self._operators[variant]
                self._leaving.pop(variant, None)
                self._beside.discard(variant)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._post(self._run(job))

    def _run(self, job: Infer) -> Event:
        began = self._clock()
        self._running = (job.variant, began, job.job)
        try:
            operator = self._operators[job.variant]
            if job.variant in self._leaving:
                self._let_go(self._leaving.pop(job.variant))
            if self._journal is not None:
                self._journal.began(job.items)
            outputs = operator.predict(list(job.values))
            return Inferred(job.job, tuple(outputs), began, self._clock())
        # Including SystemExit and KeyboardInterrupt: a library that calls sys.exit must not end
        # the thread and leave a worker that reports ready but serves nothing.
        except BaseException as error:  # noqa: BLE001
            text = str(error) if isinstance(error, OperatorFailed) else ""
            return _failed(job.job, text or f"{job.variant} raised {sentence(error)}", error)
        finally:
            self._running = None
            if self._journal is not None:
                self._journal.ended()


def _failed(job: int | str, text: str, error: BaseException) -> Failed:
    if isinstance(error, OperatorFailed):
        return Failed(job, text, error.trace)
    return Failed(job, with_frames(text, error), trace(error))


def _told(error: BaseException) -> str:
    """Return the message of a load error: an ``OperatorFailed``'s own, else type and message."""
    return str(error) if isinstance(error, OperatorFailed) else sentence(error)
