"""The simulated driver: heap, handle, perform; in virtual time.

It runs the same nodes as ``streams/live/live_driver.py`` over topics in memory. Only hops, fetches
and commits (``streams/simulated/delays.py``), batches and loads (their model) and solves (their
solver) take time. Simultaneous events have a defined order: records in order of writing, then
timers and finished jobs by their scheduled time, then in order of scheduling.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol
from zlib import crc32

from control.estimation.demand import counted
from operators.plan_follower import CatchUp
from schemas.effects import (
    ACCURACY,
    COMMAND_RESULTS,
    COMMANDS,
    COMPLETIONS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
    SHADOWS,
    Arrived,
    Assign,
    Count,
    Done,
    Event,
    Failed,
    Forget,
    Infer,
    Inferred,
    Load,
    Loaded,
    Node,
    Observer,
    Reject,
    Scale,
    Send,
    Solve,
    Solved,
    Unload,
    Wake,
    Woke,
    work_topic,
)
from schemas.pipeline import Pipeline
from schemas.records import Command, Record
from schemas.variant_id import variant_id
from streams.simulated.delays import Delays
from streams.simulated.topic_log import Log, Place, SlotReader
from streams.topics import logical, topics

_LANDING = float("-inf")  # records precede every timer of the same instant
_WORK = work_topic("")
RETIRE_EVERY_S = 0.1  # between two looks whether a worker has handed over its slots
_UNREAD = (RESULTS, COMMAND_RESULTS, DEAD_LETTERS, ACCURACY, SHADOWS)  # until a node does
_UNCOMMITTED = (PLANS, REPORTS, COMMANDS, COMPLETIONS, *_UNREAD)


class BatchLatency(Protocol):
    """A variant on a device, emulated from its profile (operators/models/emulated.py)."""

    @property
    def load_s(self) -> float: ...
    def latency_s(self, batch: int) -> float: ...
    def predict(self, values: Sequence[Any]) -> list[Any]: ...


# (node, variant as "task/variant") -> the variant's latencies on the node's device.
Make = Callable[[str, str], BatchLatency]
# Rents and releases devices of a type.
Scaler = Callable[[Scale], None]
# A solve -> its result and its duration in seconds.
Solver = Callable[[Solve], tuple[Solved | Failed, float]]


class _Running:
    """A running node; its timers and jobs in flight end with it."""

    __slots__ = ("alive", "handle", "models", "name", "readers")

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.handle = node.handle
        self.alive = True
        self.models: dict[str, BatchLatency] = {}
        self.readers: dict[Place, SlotReader] = {}


def _no_solver(effect: Solve) -> tuple[Solved | Failed, float]:
    raise TypeError(f"a node asked for solver {effect.solver!r}; give the simulation a solver")


def _no_scaler(effect: Scale) -> None:
    raise TypeError(f"a node asked for {effect!r}; give the simulation a scaler")


class Simulated:
    """Runs nodes over topics in memory, from ``start_s`` on.

    ``keep`` lists the topics whose records ``written`` retains (None: all of them). ``events``
    counts the events delivered to nodes.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        nodes: Mapping[str, Node],
        make: Make,
        delays: Delays,
        *,
        start_s: float = 0.0,
        solve: Solver = _no_solver,
        scale: Scaler = _no_scaler,
        observers: Sequence[Observer] = (),
        keep: Collection[str] | None = None,
    ) -> None:
        self.now = start_s
        self._pipeline = pipeline.name
        self.events = 0
        self._make = make
        self._delays = delays
        way_in, way_out = delays.way_in or delays.hop, delays.way_out or delays.hop
        root = work_topic(pipeline.root.name)
        self._hops = {QUERIES: way_in, root: way_in, OUTPUTS: way_out}
        self._solve, self._scale = solve, scale
        self._observers = [observer.saw for observer in observers]
        self._keep = keep
        self._ignored = set(_UNREAD if keep is not None else ()) - set(keep or ())
        self._slots = {logical(pipeline.name, t.name): t.partitions for t in topics(pipeline)}
        self._nodes: dict[str, _Running] = {}
        self._logs: dict[Place, Log] = {}
        self._slowdown: dict[str, float] = {}
        self._away_until_s = start_s  # end of the broker's outage
        # (time, rank, count, action, its two arguments)
        self._heap: list[tuple[float, float, int, Callable[[Any, Any], None], Any, Any]] = []
        self._count = 0
        self._batch: list[Log] | None = None  # slots of the records sent in this turn
        self._batch_s = 0.0  # time at which they land
        for name, node in nodes.items():
            self.start(name, node)

    # ------------------------------------------------------------------ from outside

    def start(self, name: str, node: Node) -> None:
        """Start a node now; it replaces any node of its name."""
        self.kill(name)
        running = self._nodes[name] = _Running(name, node)
        self._push(self.now, _LANDING, self._handle, running, Woke())

    def kill(self, name: str) -> None:
        """Kill a node as a power cut would: lose its state, jobs, timers, uncommitted offsets."""
        running = self._nodes.pop(name, None)
        if running is None:
            return
        running.alive = False
        for reader in running.readers.values():
            reader.log.settle(self.now)
            reader.close()

    def retire(self, name: str, within_s: float, ended: Callable[[], None]) -> None:
        """Drain a worker, as SIGTERM does live, and end it once it reads no slot or ``within_s``
        has passed; then call ``ended``."""
        running = self._nodes.get(name)
        if running is not None:
            drain = Command(
                id="", pipeline=self._pipeline, action="drain", arguments={"target": name}
            )
            self._later(self.now, running, Arrived(drain, COMMANDS, 0, -1, self.now))
        self._push(self.now, self.now, self._end_retired, (running, ended), self.now + within_s)

    def _end_retired(
        self, leaving: tuple[_Running | None, Callable[[], None]], until_s: float
    ) -> None:
        running, ended = leaving
        if running is not None and running.alive:
            reads = any(topic.startswith(_WORK) for topic, _ in running.readers)
            if reads and self.now < until_s:
                again_s = self.now + RETIRE_EVERY_S
                self._push(again_s, again_s, self._end_retired, leaving, until_s)
                return
            self.kill(running.name)
        ended()

    def slow(self, name: str, factor: float) -> None:
        """Multiply the duration of a node's later batches by ``factor``."""
        self._slowdown[name] = factor

    def stop_broker(self, for_s: float) -> None:
        """Stop deliveries and commits for ``for_s`` seconds."""
        self._away_until_s = max(self._away_until_s, self.now + for_s)

    def forget(self, observer: Observer) -> None:
        """Remove an observer."""
        self._observers.remove(observer.saw)

    def input(
        self, at_s: float, topic: str, slot: int, record: Record, stamp_s: float | None = None
    ) -> None:
        """Write an external producer's record at ``at_s``, with time stamp ``stamp_s`` if given.

        Raise ``ValueError`` for the past.
        """
        self._check_future(at_s)
        stamped = (record, at_s if stamp_s is None else stamp_s)
        log = self._logs.get((topic, slot)) or self._log((topic, slot))
        self._push(at_s, _LANDING, self._produce, log, stamped)

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` at ``at_s``, before events of that instant that are scheduled later.

        Raise ``ValueError`` for the past.
        """
        self._check_future(at_s)
        self._push(at_s, _LANDING, _call, action, None)

    def _check_future(self, at_s: float) -> None:
        if at_s < self.now:
            raise ValueError(f"{at_s:g} s is in the past; the simulation is at {self.now:g} s")

    def step(self, until_s: float) -> bool:
        """Run the next event; return False if there is none up to ``until_s``."""
        if not self._heap or self._heap[0][0] > until_s:
            return False
        self.now, _, _, action, one, other = heappop(self._heap)
        action(one, other)
        return True

    def run(self, until_s: float) -> None:
        """Run every event up to ``until_s``."""
        heap = self._heap  # inlined from ``step``: a run spends its time in this loop
        while heap and heap[0][0] <= until_s:
            self.now, _, _, action, one, other = heappop(heap)
            action(one, other)
        self.now = max(self.now, until_s)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each slot of a topic."""
        return {log.place[1]: log.first + len(log.records) for log in self._slots_of(topic)}

    def written(self, topic: str) -> dict[int, list[tuple[Record, float]]]:
        """Return a topic's retained records with their time stamps, by slot, in offset order."""
        return {log.place[1]: log.records for log in self._slots_of(topic) if log.records}

    def committed(self, topic: str) -> dict[int, tuple[int, str]]:
        """Return the committed offset of each slot of a topic, with its note."""
        logs = self._slots_of(topic)
        for log in logs:
            log.settle(self.now)
        return {log.place[1]: (log.committed, log.note) for log in logs if log.committed}

    def _slots_of(self, topic: str) -> list[Log]:
        """Return the slots of a topic that have been used, in order."""
        places = [(topic, slot) for slot in range(self._slots.get(topic, 0))]
        return [self._logs[place] for place in places if place in self._logs]

    # ------------------------------------------------------------------ time

    def _push(
        self, at_s: float, rank: float, action: Callable[[Any, Any], None], one: Any, other: Any
    ) -> None:
        # The count makes ties deterministic and keeps actions from being compared.
        self._count += 1
        at_s = at_s if at_s > self.now else self.now
        heappush(self._heap, (at_s, rank, self._count, action, one, other))

    def _later(self, at_s: float, running: _Running, event: Event) -> None:
        self._push(at_s, at_s, self._handle, running, event)

    def _handle(self, running: _Running, event: Event) -> None:
        if not running.alive:
            return
        self.events += 1
        now = self.now
        effects = running.handle(event, now)
        for saw in self._observers:
            saw(running.name, event, effects, now)
        self._batch = None
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(effect)  # type: ignore[arg-type]
            elif kind is Wake:  # inlined from ``_later``: half of all effects
                self._count += 1
                at_s: float = effect.at_s  # type: ignore[union-attr]
                soon_s = at_s if at_s > now else now
                heappush(self._heap, (soon_s, at_s, self._count, self._handle, running, _WOKE))
            else:
                perform = _PERFORMED.get(kind)
                if perform is None:
                    raise TypeError(f"{running.name} asked for {effect!r}, which is not simulated")
                perform(self, running, effect)

    # ------------------------------------------------------------------ effects

    def _begin_solve(self, running: _Running, effect: Solve) -> None:
        solved, seconds = self._solve(effect)
        self._later(self.now + seconds, running, solved)

    def _slot_of(self, effect: Send) -> int:
        return crc32(effect.key.encode()) % self._slots[effect.topic]

    def _infer(self, running: _Running, effect: Infer) -> None:
        model = running.models[effect.variant]
        seconds = model.latency_s(effect.cost) * self._slowdown.get(running.name, 1.0)
        outputs = tuple(model.predict(effect.values))
        begins_s = self.now
        if self._delays.starts:
            start = self._delays.starts.get(variant_id(effect.variant).task)
            begins_s += start() if start else 0.0
        ends_s = begins_s + seconds
        if self._delays.began is not None:
            self._delays.began(running.name, ends_s)
        lag = self._delays.lag
        known_s = ends_s if lag is None else ends_s + lag()
        event = Inferred(effect.job, outputs, begins_s, ends_s)
        self._push(known_s, known_s, self._handle, running, event)

    def _forget(self, running: _Running, effect: Forget) -> None:
        pass  # simulated topics are not compacted

    def _count_queries(self, running: _Running, effect: Count) -> None:
        ends: dict[int, int] = {}
        done: dict[int, int] = {}
        for log in self._slots_of(QUERIES):
            log.settle(self.now)
            ends[log.place[1]] = log.first + len(log.records)
            if log.committed:
                done[log.place[1]] = log.committed
        self._later(self.now, running, counted(self.now, ends, done))

    def _reject(self, running: _Running, effect: Reject) -> None:
        pass  # for observers

    def _scaled(self, running: _Running, effect: Scale) -> None:
        self._scale(effect)

    def _load(self, running: _Running, effect: Load) -> None:
        model = running.models[effect.variant] = self._make(running.name, effect.variant)
        self._later(self.now + model.load_s, running, Loaded(effect.variant, model.load_s))

    def _unload(self, running: _Running, effect: Unload) -> None:
        running.models.pop(effect.variant, None)

    # ------------------------------------------------------------------ topics

    def _log(self, place: Place) -> Log:
        topic, slot = place
        slots = self._slots[topic]
        if not 0 <= slot < slots:
            raise ValueError(f"topic {topic!r} has slots 0 to {slots - 1}; found {slot}")
        log = self._logs[place] = Log(
            place,
            keeps=self._keep is None or topic in self._keep,
            commits=topic not in _UNCOMMITTED,
            unread=topic in _UNREAD,
            reports=topic == REPORTS,
            hop=self._delays.report
            if topic == REPORTS
            else self._hops.get(topic, self._delays.hop),
        )
        return log

    def _send(self, effect: Send) -> None:
        """Write a record that shares its hop with the others of the turn, as in a live run."""
        topic, slot = effect.topic, effect.slot
        if topic in self._ignored:
            return
        if slot < 0:
            slot = self._slot_of(effect)
        place = (topic, slot)
        log = self._logs.get(place) or self._log(place)
        if log.reports or log.unread:
            self._write(log, effect.record, self.now)
            return
        log.records.append((effect.record, self.now))
        if self._delays.apart:
            self._depart(log)
            return
        batch = self._batch
        if batch is None:
            batch = self._batch = []
            hop = log.hop  # that of the turn's first send
            self._batch_s = self.now + hop()
            self._push(self._batch_s, _LANDING, self._land_all, batch, None)
        lands_s = self._batch_s
        if log.last_s <= lands_s:
            log.last_s = lands_s
            batch.append(log)
        else:  # a slot keeps its order: no record overtakes its predecessor
            self._push(log.last_s, _LANDING, self._land, log, None)

    def _produce(self, log: Log, stamped: tuple[Record, float]) -> None:
        self._write(log, *stamped)

    def _write(self, log: Log, record: Record, stamp_s: float) -> None:
        if log.keeps or not log.unread:
            log.records.append((record, stamp_s))
        if not log.unread:
            self._depart(log)

    def _depart(self, log: Log) -> None:
        """Schedule a record's own hop, after its predecessors in the slot."""
        hop = log.hop
        lands_s = self.now + hop()
        if lands_s > log.last_s:
            log.last_s = lands_s
        self._push(log.last_s, _LANDING, self._land, log, None)

    def _land_all(self, logs: list[Log], _: None) -> None:
        for log in logs:
            self._land(log, None)

    def _land(self, log: Log, _: None) -> None:
        if self.now < self._away_until_s:
            self._push(self._away_until_s, _LANDING, self._land, log, None)
            return
        log.landed += 1
        for reader in tuple(log.readers.values()):
            self._read(log, reader)
        if log.landed >= log.trims:
            log.trim(self.now)

    def _read(self, log: Log, reader: SlotReader) -> None:
        """Deliver landed records to a reader while it is active and not paused."""
        if self.now < reader.since_s:
            return
        topic, slot = log.place
        landed = log.landed
        while reader.position < landed and not reader.paused:
            offset = reader.position
            reader.position = offset + 1
            record, at_s = log.records[offset - log.first]
            self._handle(reader.node, Arrived(record, topic, slot, offset, at_s))

    def _read_past(self, log: Log, reader: SlotReader) -> None:
        """Deliver the newest plan and tables to a new reader, as the live driver does."""
        topic, slot = log.place
        past = CatchUp(self._pipeline)
        for offset in range(reader.position, log.landed):
            record, at_s = log.records[offset - log.first]
            past.take(Arrived(record, topic, slot, offset, at_s))
        reader.position = max(reader.position, log.landed)
        for event in past.newest():
            self._handle(reader.node, event)

    def _catch_up(
        self, log: Log, reader: SlotReader, read: Callable[[Log, SlotReader], None]
    ) -> None:
        reader.since_s = max(self.now + self._delays.fetch(), self._away_until_s)
        self._push(reader.since_s, _LANDING, read, log, reader)

    # ------------------------------------------------------------------ slots and commits

    def _assign(self, running: _Running, effect: Assign) -> None:
        for done in effect.done:
            self._done(running, (effect.topic, done.slot), done)
        if effect.slots is not None:
            self._lease(running, effect.topic, effect.slots)
        if effect.paused is not None:
            self._pause(running, effect.topic, effect.paused)

    def _lease(self, running: _Running, topic: str, slots: tuple[int, ...]) -> None:
        for place, reader in list(running.readers.items()):
            if place[0] == topic and place[1] not in slots:
                reader.log.settle(float("inf"), running.name)
                reader.close()
                del running.readers[place]
        self._ignored.discard(topic)
        for place in sorted((topic, slot) for slot in slots):
            if place not in running.readers:
                log = self._logs.get(place) or self._log(place)
                reader = running.readers[place] = log.open(running.name, running, self.now)
                self._catch_up(log, reader, self._read_past if topic == PLANS else self._read)

    def _pause(self, running: _Running, topic: str, slots: tuple[int, ...]) -> None:
        for place, reader in running.readers.items():
            if place[0] == topic:
                resumes = reader.paused and place[1] not in slots
                reader.paused = place[1] in slots
                if resumes:
                    self._catch_up(reader.log, reader, self._read)

    def _done(self, running: _Running, place: Place, done: Done) -> None:
        reader = running.readers[place]
        if reader.done is not None and reader.due_s <= self.now:
            reader.commit()
        if reader.done is None:
            reader.due_s = max(self.now + self._delays.commit(), self._away_until_s)
        reader.done = done


_WOKE = Woke()
_PERFORMED: dict[type, Callable[[Simulated, _Running, Any], None]] = {
    Infer: Simulated._infer,
    Assign: Simulated._assign,
    Count: Simulated._count_queries,
    Forget: Simulated._forget,
    Load: Simulated._load,
    Reject: Simulated._reject,
    Scale: Simulated._scaled,
    Solve: Simulated._begin_solve,
    Unload: Simulated._unload,
}


def _call(action: Callable[[], None], _: None) -> None:
    action()
