"""The simulated driver: heap, handle, perform; in virtual time.

It runs the same nodes as ``streams/live.py`` over topics in memory. A record lands ``hop_s`` after
it was written, a batch costs what its model says, and nothing else takes time. Simultaneous
events come in a stated order: records in the order in which they were written, then timers and
finished jobs by the time they asked for, then in the order of asking.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol
from zlib import crc32

from schemas.effects import (
    PLANS,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Load,
    Loaded,
    Node,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Record
from streams.topics import physical, topics

Place = tuple[str, int]  # logical topic, slot
_LANDING = float("-inf")  # records come before every timer of the same instant


class Model(Protocol):
    """A variant on a device, as its profile knows it (operators/models/emulated.py)."""

    @property
    def load_s(self) -> float: ...
    def latency_s(self, batch: int) -> float: ...
    def predict(self, values: Sequence[Any]) -> list[Any]: ...


class Observer(Protocol):
    """Sees every event with its effects; changes nothing."""

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None: ...


# The model of a variant ("task/variant") on the device of a node.
Make = Callable[[str, str], Model]
# What a solver returns, and the seconds that it takes.
Solver = Callable[[Solve], tuple[Solved | Failed, float]]


class _Log:
    """One slot of a topic: what was written, when, and how much of it has landed."""

    __slots__ = ("landed", "written")

    def __init__(self) -> None:
        self.written: list[tuple[Record, float]] = []
        self.landed = 0


class _Reader:
    """A node's place in a slot. ``since_s``: no record reaches a new reader before this time."""

    __slots__ = ("node", "paused", "position", "since_s")

    def __init__(self, node: "_Running", position: int, since_s: float) -> None:
        self.node = node
        self.position = position
        self.since_s = since_s
        self.paused = False


class _Running:
    """A node while it lives; what was under way for it dies with it."""

    __slots__ = ("alive", "models", "name", "node", "uncommitted")

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.alive = True
        self.models: dict[str, Model] = {}
        self.uncommitted: dict[Place, tuple[int, str]] = {}


def _no_solver(effect: Solve) -> tuple[Solved | Failed, float]:
    raise TypeError(f"a node asked for solver {effect.solver!r}; give the simulation a solver")


class Simulated:
    """Runs nodes over topics in memory, from ``start_s`` on.

    ``commit_s`` is how long offsets that are done wait for their commit: a node that is killed
    before that does the work again.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        nodes: Mapping[str, Node],
        make: Make,
        *,
        hop_s: float,
        commit_s: float = 0.0,
        start_s: float = 0.0,
        solve: Solver = _no_solver,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.now = start_s
        self._make = make
        self._hop_s = hop_s
        self._commit_s = commit_s
        self._solve = solve
        self._observers = tuple(observers)
        self._pipeline = pipeline.name
        self._slots = {topic.name: topic.partitions for topic in topics(pipeline)}
        self._nodes: dict[str, _Running] = {}
        self._logs: dict[Place, _Log] = {}
        self._readers: dict[Place, dict[str, _Reader]] = {}
        self._committed: dict[Place, tuple[int, str]] = {}
        self._heap: list[tuple[float, float, int, Callable[[], None]]] = []
        self._count = 0
        for name, node in nodes.items():
            self.start(name, node)

    # ------------------------------------------------------------------ from outside

    def start(self, name: str, node: Node) -> None:
        """Let a node live from now on, in the place of any that has its name."""
        self.kill(name)
        running = self._nodes[name] = _Running(name, node)
        self._push(self.now, _LANDING, lambda: self._handle(running, Woke()))

    def kill(self, name: str) -> None:
        """End a node as a power cut would: its state, jobs, timers and uncommitted offsets go."""
        running = self._nodes.pop(name, None)
        if running is None:
            return
        running.alive = False
        for readers in self._readers.values():
            readers.pop(name, None)

    def input(self, at_s: float, topic: str, slot: int, record: Record) -> None:
        """A producer from outside writes a record at ``at_s``."""
        self.at(at_s, lambda: self._write((topic, slot), record))

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Do something at ``at_s``, before the other events of that instant that are asked for
        later. Raises ``ValueError`` for the past."""
        if at_s < self.now:
            raise ValueError(f"{at_s:g} s is in the past; the simulation is at {self.now:g} s")
        self._push(at_s, _LANDING, action)

    def step(self, until_s: float) -> bool:
        """Let the next thing happen; False if there is none up to ``until_s``."""
        if not self._heap or self._heap[0][0] > until_s:
            return False
        self.now, _, _, action = heappop(self._heap)
        action()
        return True

    def run(self, until_s: float) -> None:
        """Let everything happen up to ``until_s``."""
        while self.step(until_s):
            pass
        self.now = max(self.now, until_s)

    def written(self, topic: str) -> dict[int, list[tuple[Record, float]]]:
        """Every record of a topic with the time it was written, by slot, in order of offsets."""
        logs = sorted(self._logs.items())
        return {s: log.written for (t, s), log in logs if t == topic and log.written}

    def committed(self, topic: str) -> dict[int, tuple[int, str]]:
        """The committed offset of each slot of a topic, with its note."""
        return {s: place for (t, s), place in sorted(self._committed.items()) if t == topic}

    # ------------------------------------------------------------------ time

    def _push(self, at_s: float, rank: float, action: Callable[[], None]) -> None:
        # The count makes ties deterministic and keeps actions from being compared.
        self._count += 1
        heappush(self._heap, (max(at_s, self.now), rank, self._count, action))

    def _later(self, at_s: float, running: _Running, event: Event) -> None:
        self._push(at_s, at_s, lambda: self._handle(running, event))

    def _handle(self, running: _Running, event: Event) -> None:
        if not running.alive:
            return
        effects = running.node.handle(event, self.now)
        for observer in self._observers:
            observer.saw(running.name, event, effects, self.now)
        for effect in effects:
            self._perform(running, effect)

    # ------------------------------------------------------------------ effects

    def _perform(self, running: _Running, effect: Effect) -> None:
        match effect:
            case Send():
                slot = effect.slot if effect.slot >= 0 else self._slot_of(effect)
                self._write((effect.topic, slot), effect.record)
            case Infer():
                self._infer(running, effect)
            case Assign():
                self._assign(running, effect)
            case Wake():
                self._later(effect.at_s, running, Woke())
            case Load():
                model = running.models[effect.variant] = self._make(running.name, effect.variant)
                loaded = Loaded(effect.variant, model.load_s)
                self._later(self.now + model.load_s, running, loaded)
            case Solve():
                solved, seconds = self._solve(effect)
                self._later(self.now + seconds, running, solved)

    def _slot_of(self, effect: Send) -> int:
        return crc32(effect.key.encode()) % self._slots[physical(self._pipeline, effect.topic)]

    def _infer(self, running: _Running, effect: Infer) -> None:
        model = running.models[effect.variant]
        ends_s = self.now + model.latency_s(len(effect.values))
        outputs = tuple(model.predict(effect.values))
        self._later(ends_s, running, Inferred(effect.job, outputs, self.now, ends_s))

    # ------------------------------------------------------------------ topics

    def _log(self, place: Place) -> _Log:
        log = self._logs.get(place)
        if log is None:
            topic, slot = place
            slots = self._slots[physical(self._pipeline, topic)]
            if not 0 <= slot < slots:
                raise ValueError(f"topic {topic!r} has slots 0 to {slots - 1}; found {slot}")
            log = self._logs[place] = _Log()
        return log

    def _write(self, place: Place, record: Record) -> None:
        self._log(place).written.append((record, self.now))
        self._push(self.now + self._hop_s, _LANDING, lambda: self._land(place))

    def _land(self, place: Place) -> None:
        self._logs[place].landed += 1
        for reader in list(self._readers.get(place, {}).values()):
            self._read(place, reader)

    def _read(self, place: Place, reader: _Reader) -> None:
        """Hand a reader what has landed, as long as it wants it."""
        log, (topic, slot), running = self._log(place), place, reader.node
        while (
            reader.position < log.landed
            and not reader.paused
            and self.now >= reader.since_s
            and self._readers[place].get(running.name) is reader
        ):
            offset = reader.position
            reader.position += 1
            record, at_s = log.written[offset]
            self._handle(running, Arrived(record, topic, slot, offset, at_s))

    def _catch_up(self, place: Place, reader: _Reader) -> None:
        at_s = self.now + self._hop_s
        self._push(at_s, _LANDING, lambda: self._read(place, reader))

    # ------------------------------------------------------------------ slots and commits

    def _assign(self, running: _Running, effect: Assign) -> None:
        for done in effect.done:
            self._done(running, (effect.topic, done.slot), done)
        if effect.slots is not None:
            self._lease(running, effect.topic, effect.slots)
        if effect.paused is not None:
            self._pause(running, effect.topic, effect.paused)

    def _lease(self, running: _Running, topic: str, slots: tuple[int, ...]) -> None:
        for place, readers in self._readers.items():
            if place[0] == topic and place[1] not in slots and running.name in readers:
                self._commit(running, place)
                del readers[running.name]
        for place in sorted((topic, slot) for slot in slots):
            readers = self._readers.setdefault(place, {})
            if running.name not in readers:
                start = 0 if topic == PLANS else self._committed.get(place, (0, ""))[0]
                reader = _Reader(running, start, self.now + self._hop_s)
                readers[running.name] = reader
                self._catch_up(place, reader)

    def _pause(self, running: _Running, topic: str, slots: tuple[int, ...]) -> None:
        for place, readers in self._readers.items():
            reader = readers.get(running.name)
            if place[0] == topic and reader is not None:
                resumes = reader.paused and place[1] not in slots
                reader.paused = place[1] in slots
                if resumes:
                    self._catch_up(place, reader)

    def _done(self, running: _Running, place: Place, done: Done) -> None:
        waiting = place in running.uncommitted
        running.uncommitted[place] = (done.offset, done.note)
        if not waiting:
            at_s = self.now + self._commit_s
            self._push(at_s, at_s, lambda: self._commit(running, place))

    def _commit(self, running: _Running, place: Place) -> None:
        ready = running.uncommitted.pop(place, None)
        if running.alive and ready is not None:
            self._committed[place] = ready
