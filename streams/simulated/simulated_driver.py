"""The simulated driver: handle, perform; in virtual time (``agenda.py``).

It runs the same nodes as ``streams/live/live_driver.py`` over topics in memory
(``simulated_topics.py``). Only hops, fetches and commits, batches and loads (by their model) and
solves (by their solver) take time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import heappush
from typing import Any, Protocol

from control.estimation.demand import counted
from schemas.effects import (
    COMMANDS,
    QUERIES,
    Arrived,
    Assign,
    Count,
    Deliver,
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
from streams.loaded_variants import LoadedVariants
from streams.simulated.agenda import LANDING, Agenda
from streams.simulated.delays import Delays
from streams.simulated.simulated_topics import SimulatedTopics
from streams.simulated.topic_log import Subscriber

_WORK = work_topic("")
RETIRE_EVERY_S = 0.1  # interval at which a leaving worker's slots are checked
AT_ONCE: Mapping[str, float] = {}


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


class _Running(Subscriber):
    """A running node; its timers and jobs in flight end with it."""

    __slots__ = ("alive", "handle", "models")

    def __init__(self, name: str, node: Node) -> None:
        super().__init__(name)
        self.handle = node.handle
        self.alive = True
        self.models = LoadedVariants[BatchLatency]()


def _no_solver(effect: Solve) -> tuple[Solved | Failed, float]:
    raise TypeError(f"a node asked for solver {effect.solver!r}; give the simulation a solver")


def _free(node: str) -> float:
    return 0.0


def _no_scaler(effect: Scale) -> None:
    raise TypeError(f"a node asked for {effect!r}; give the simulation a scaler")


class Simulated:
    """Runs nodes over topics in memory, from ``start_s`` on; a node in ``after_s`` starts so many
    seconds later.

    ``keep`` lists the topics whose records ``written`` retains (None: all of them). ``charged_s``
    returns the CPU seconds that a node's last batch was charged. ``events`` counts the events
    delivered to nodes.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        nodes: Mapping[str, Node],
        make: Make,
        delays: Delays,
        *,
        start_s: float = 0.0,
        after_s: Mapping[str, float] = AT_ONCE,
        solve: Solver = _no_solver,
        scale: Scaler = _no_scaler,
        charged_s: Callable[[str], float] = _free,
        observers: Sequence[Observer] = (),
        keep: Collection[str] | None = None,
    ) -> None:
        self._agenda = Agenda(start_s)
        self._topics = SimulatedTopics(pipeline, self._agenda, delays, keep, self._handle)
        self._pipeline = pipeline.name
        self.events = 0
        self._make = make
        self._delays = delays
        self._solve, self._scale, self._charged_s = solve, scale, charged_s
        self._observers = [observer.saw for observer in observers]
        self._nodes: dict[str, _Running] = {}
        self._slowdown: dict[str, float] = {}
        for name, node in nodes.items():
            if name in after_s:
                self.at(start_s + after_s[name], partial(self.start, name, node))
            else:
                self.start(name, node)

    # ------------------------------------------------------------------ from outside

    @property
    def now(self) -> float:
        """The virtual time, in seconds."""
        return self._agenda.now

    def start(self, name: str, node: Node) -> None:
        """Start a node now; it replaces any node of its name."""
        self.kill(name)
        running = self._nodes[name] = _Running(name, node)
        self._agenda.push(self.now, LANDING, self._handle, running, _WOKE)

    def kill(self, name: str) -> None:
        """Kill a node as a power cut would: lose its state, jobs, timers, uncommitted offsets."""
        running = self._nodes.pop(name, None)
        if running is None:
            return
        running.alive = False
        self._topics.leave(running)

    def retire(self, name: str, within_s: float, ended: Callable[[], None]) -> None:
        """Drain a worker, as SIGTERM does live. End it once it reads no slot or ``within_s`` has
        passed; then call ``ended``."""
        running = self._nodes.get(name)
        if running is not None:
            drain = Command(
                id="", pipeline=self._pipeline, action="drain", arguments={"target": name}
            )
            self._later(self.now, running, Arrived(drain, COMMANDS, 0, -1, self.now))
        now = self.now
        self._agenda.push(now, now, self._end_retired, (running, ended), now + within_s)

    def _end_retired(
        self, leaving: tuple[_Running | None, Callable[[], None]], until_s: float
    ) -> None:
        running, ended = leaving
        if running is not None and running.alive:
            reads = any(topic.startswith(_WORK) for topic, _ in running.readers)
            if reads and self.now < until_s:
                again_s = self.now + RETIRE_EVERY_S
                self._agenda.push(again_s, again_s, self._end_retired, leaving, until_s)
                return
            self.kill(running.name)
        ended()

    def slow(self, name: str, factor: float) -> None:
        """Multiply the duration of a node's later batches by ``factor``."""
        self._slowdown[name] = factor

    def stop_broker(self, for_s: float) -> None:
        """Stop deliveries and commits for ``for_s`` seconds."""
        away = self._topics
        away.away_until_s = max(away.away_until_s, self.now + for_s)

    def forget(self, observer: Observer) -> None:
        """Remove an observer."""
        self._observers.remove(observer.saw)

    def input(
        self, at_s: float, topic: str, slot: int, record: Record, stamp_s: float | None = None
    ) -> None:
        """Write an external producer's record at ``at_s``, with time stamp ``stamp_s`` if given.

        Raise ``ValueError`` for the past.
        """
        self.inputs(topic, [(at_s, slot, record, at_s if stamp_s is None else stamp_s)])

    def inputs(self, topic: str, records: Iterable[tuple[float, int, Record, float]]) -> None:
        """Write an external producer's records, as ``input``, in order of time: (time, slot,
        record, time stamp) of each."""
        self._topics.inputs(topic, records)

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` at ``at_s``, before events of that instant that are scheduled later.

        Raise ``ValueError`` for the past.
        """
        self._agenda.refuse_past(at_s)
        self._agenda.push(at_s, LANDING, _call, action, None)

    def step(self, until_s: float) -> bool:
        """Run the next event; return False if there is none up to ``until_s``."""
        return self._agenda.step(until_s)

    def run(self, until_s: float) -> None:
        """Run every event up to ``until_s``."""
        self._agenda.run(until_s)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each slot of a topic."""
        return self._topics.ends(topic)

    def written(self, topic: str) -> dict[int, list[tuple[Record, float]]]:
        """Return a topic's retained records with their time stamps, by slot, in offset order."""
        return self._topics.written(topic)

    def committed(self, topic: str) -> dict[int, tuple[int, str]]:
        """Return the committed offset of each slot of a topic, with its note."""
        return self._topics.committed(topic)

    # ------------------------------------------------------------------ time

    def _later(self, at_s: float, running: _Running, event: Event) -> None:
        self._agenda.push(at_s, at_s, self._handle, running, event)

    def _handle(self, running: _Running, event: Event) -> None:
        if not running.alive:
            return
        self.events += 1
        agenda = self._agenda
        topics = self._topics
        now = agenda.now
        effects = running.handle(event, now)
        for saw in self._observers:
            saw(running.name, event, effects, now)
        topics.turn = None
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                topics.send(effect, now)  # type: ignore[arg-type]
            elif kind is Wake:  # inlined from ``push``: half of all effects
                at_s: float = effect.at_s  # type: ignore[union-attr]
                soon_s = at_s if at_s > now else now
                heappush(agenda.heap, (soon_s, at_s, agenda.order(), self._handle, running, _WOKE))
            elif kind is Assign:
                topics.assign(running, effect, now)  # type: ignore[arg-type]
            elif kind is Infer:
                self._infer(running, effect, now)  # type: ignore[arg-type]
            else:
                _PERFORMED.get(kind, Simulated._refuse)(self, running, effect)

    # ------------------------------------------------------------------ effects

    def _begin_solve(self, running: _Running, effect: Solve) -> None:
        solved, seconds = self._solve(effect)
        self._later(self.now + seconds, running, solved)

    def _infer(self, running: _Running, effect: Infer, begins_s: float) -> None:
        model = running.models.use(effect.variant)
        seconds = model.latency_s(effect.cost) * self._slowdown.get(running.name, 1.0)
        outputs = tuple(model.predict(effect.values))
        delays = self._delays
        if delays.starts:
            start = delays.starts.get(variant_id(effect.variant).task)
            begins_s += start() if start else 0.0
        ends_s = begins_s + seconds
        if delays.began is not None:
            delays.began(running.name, ends_s)
        lag = delays.lag
        known_s = ends_s if lag is None else ends_s + lag()
        charged_s = self._charged_s(running.name)
        event = Inferred(effect.job, outputs, begins_s, ends_s, charged_s)
        self._agenda.push(known_s, known_s, self._handle, running, event)

    def _refuse(self, running: _Running, effect: object) -> None:
        raise TypeError(f"{running.name} asked for {effect!r}, which is not simulated")

    def _forget(self, running: _Running, effect: Forget) -> None:
        pass  # simulated topics are not compacted

    def _count_queries(self, running: _Running, effect: Count) -> None:
        topics, now = self._topics, self.now
        found = counted(now, topics.ends(QUERIES), topics.done(QUERIES))
        self._later(now, running, found)

    def _reject(self, running: _Running, effect: Reject) -> None:
        pass  # for observers

    def _scaled(self, running: _Running, effect: Scale) -> None:
        self._scale(effect)

    def _load(self, running: _Running, effect: Load) -> None:
        model = self._make(running.name, effect.variant)
        ends_s = self.now + model.load_s
        self._agenda.push(ends_s, ends_s, self._end_load, (running, model), effect)

    def _end_load(self, loading: tuple[_Running, BatchLatency], effect: Load) -> None:
        running, model = loading
        running.models.add(effect, model)
        self._handle(running, Loaded(effect.variant, model.load_s))

    def _deliver(self, running: _Running, effect: Deliver) -> None:
        other = self._nodes.get(effect.node)
        if other is not None:  # its process has died with this one's
            self._later(self.now, other, effect.event)

    def _unload(self, running: _Running, effect: Unload) -> None:
        running.models.unload(effect.variant)


_WOKE = Woke()
_PERFORMED: dict[type, Callable[[Simulated, _Running, Any], None]] = {
    Count: Simulated._count_queries,
    Deliver: Simulated._deliver,
    Forget: Simulated._forget,
    Load: Simulated._load,
    Reject: Simulated._reject,
    Scale: Simulated._scaled,
    Solve: Simulated._begin_solve,
    Unload: Simulated._unload,
}


def _call(action: Callable[[], None], _: None) -> None:
    action()
