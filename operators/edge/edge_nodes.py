"""Ingress and workers in one process at the edge, which hand over work in memory.

The nodes are the same as elsewhere. A wrapper around each node replaces a send to a slot that
another node of the process reads by a delivery in memory, so that only work that leaves the process
crosses the link. Sends to other slots, and reads of workers from the broker, are unchanged.

- Ingress commits a query's offset once none of its work is in memory. If the process dies, the
  query is read again, and egress counts its results once.
- When a worker gives up a slot, its work in memory is sent to the broker for the slot's next
  reader.
- Ingress stops reading while a worker holds more than it should.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from operators.calls.own_values import immutable, own_value
from operators.edge.local_slots import IN_MEMORY, LocalSlots, Place
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces
from operators.serving.worker import Worker
from schemas.effects import (
    COMMANDS,
    QUERIES,
    Arrived,
    Assign,
    Deliver,
    Done,
    Effect,
    Event,
    Node,
    Send,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import Plan, Report, SessionStage, Work

AGAIN_S = 0.1  # interval at which held offsets are checked again
WORK = "work."


def edge_nodes(
    ingress: Ingress,
    name: str,
    places: InputPlaces,
    workers: Mapping[str, Worker],
    pipeline: Pipeline,
    session: str,
) -> dict[str, Node]:
    """Return the nodes of a process: ``ingress``, called ``name``, and the workers on the session's
    device."""
    root = pipeline.root.name
    local = LocalSlots()
    beside = {each: EdgeWorker(each, node, local, name) for each, node in workers.items()}
    return {name: EdgeIngress(ingress, places, local, root, session), **beside}


class EdgeWorker:
    """A worker that also takes work in memory, and hands it on for queries that are held."""

    def __init__(self, name: str, node: Worker, local: LocalSlots, ingress: str) -> None:
        self._name, self._node, self._local, self._ingress = name, node, local, ingress

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Handle an event as the worker does."""
        before = self._local.full
        if type(event) is Arrived and event.topic.startswith(WORK):
            place = event.topic, event.slot
            record = event.record if event.offset == IN_MEMORY else None
            work = record if isinstance(record, Work) else None
            if self._local.reader(place) != self._name:
                # The slot was given up before the work arrived.
                return self._node.handle(event, now) if work is None else self._sent_on(place, work)
            event = replace(event, offset=self._local.number(place, event.offset, work))
        asked = self._node.handle(event, now)
        effects = list(chain.from_iterable(self._performed(each, now) for each in asked))
        if self._local.full != before:
            effects.append(Deliver(self._ingress, Woke()))
        return effects

    def _sent_on(self, place: Place, work: Work) -> list[Effect]:
        self._local.release(work.origin)
        topic, slot = place
        return [Send(topic, work, slot)]

    def _performed(self, effect: Effect, now: float) -> list[Effect]:
        if type(effect) is Send:
            held = isinstance(effect.record, Work) and self._local.holds(effect.record.origin)
            return [handed(effect, self._local, now) if held else effect]
        if type(effect) is Assign and effect.topic.startswith(WORK):
            return self._assigned(effect)
        return [effect]

    def _assigned(self, effect: Assign) -> list[Effect]:
        topic, local = effect.topic, self._local
        if effect.paused is not None:
            local.pause(self._name, paused=bool(effect.paused))
        found = [local.finish((topic, done.slot), done.offset) for done in effect.done]
        done = tuple(each for each in found if each is not None)
        left = [] if effect.slots is None else local.read(self._name, topic, effect.slots)
        sends = [Send(topic, work, slot) for slot, work in left]
        if not done and effect.slots is None and effect.paused is None:
            return []
        return [replace(effect, done=done), *sends]


class EdgeIngress:
    """An ingress that hands queries to the workers beside it."""

    def __init__(
        self, node: Ingress, places: InputPlaces, local: LocalSlots, root: str, session: str
    ) -> None:
        self._node, self._places, self._local = node, places, local
        self._root, self._session = root, session
        self._first: SessionStage | None = None  # first stage of the session's plan in force
        self._partitions: tuple[int, ...] = ()  # input partitions that it reads
        self._paused = self._leaving = False
        self._noticed = dict(places.upto)  # by partition, the place below which egress has notices
        self._held: set[int] = set()  # partitions whose commit is held back
        self._again_s = float("inf")

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Handle an event as ingress does; stop reading after the command to drain."""
        if type(event) is Arrived and event.topic == COMMANDS:
            self._leaving = True
        if type(event) is Arrived and isinstance(event.record, Plan):
            self._follow(event.record)
        asked = self._node.handle(event, now)
        effects = list(chain.from_iterable(self._performed(each, now) for each in asked))
        return [*effects, *self._pause(), *self._commit(now), *self._leave()]

    def _follow(self, plan: Plan) -> None:
        plans = [each for each in plan.sessions if each.session == self._session]
        self._first = plans[-1].stage(self._root) if plans else None

    def _warned(self, report: Report) -> Report:
        """Add an error to the report if the session's plan begins on another process."""
        first = self._first
        if first is None or report.error or self._local.reader((WORK + first.task, first.slot)):
            return report
        return replace(
            report,
            error=f"the plan of session {self._session!r} begins on {first.device}, so its inputs "
            "leave here as they are; start this ingress before the session is opened, or plan it "
            "anew with `headrace session replan`",
        )

    def _performed(self, effect: Effect, now: float) -> list[Effect]:
        if type(effect) is Send and isinstance(effect.record, Report):
            return [replace(effect, record=self._warned(effect.record))]
        if type(effect) is Send:
            return [handed(effect, self._local, now)]
        if type(effect) is not Assign or effect.topic != QUERIES:
            return [effect]
        if effect.slots is not None:
            if self._leaving:
                return []
            self._partitions = effect.slots
        for each in effect.done:
            self._noticed[each.slot] = self._places.upto[each.slot]
        return [replace(effect, done=tuple(self._done(each.slot) for each in effect.done))]

    def _pause(self) -> list[Effect]:
        """Stop reading while a worker is full or the process drains."""
        paused = self._local.full or self._leaving
        if paused == self._paused:
            return []
        self._paused = paused
        return [Assign(QUERIES, paused=self._partitions if paused else ())]

    def _done(self, partition: int) -> Done:
        """Return the offset to commit: that of the oldest query with work in memory."""
        oldest, noticed = self._local.oldest(partition), self._noticed[partition]
        (self._held.discard if oldest is None else self._held.add)(partition)
        place = noticed if oldest is None else min(oldest, noticed)
        return Done(partition, *self._places.committed(partition, place))

    def _commit(self, now: float) -> list[Effect]:
        """Commit held offsets; check again later while some remain."""
        effects: list[Effect] = []
        if now >= self._again_s:
            self._again_s = float("inf")
            done = tuple([self._done(each) for each in sorted(self._held)])
            effects += [Assign(QUERIES, done=done)] if done else []
        if self._held and self._again_s == float("inf"):
            self._again_s = now + AGAIN_S
            effects.append(Wake(self._again_s))
        return effects

    def _leave(self) -> list[Effect]:
        """Give up the input topic once everything read from it has left this process."""
        noticed = all(self._noticed.get(p) == self._places.upto.get(p) for p in self._partitions)
        if not (self._leaving and noticed and self._partitions) or self._held:
            return []
        self._partitions = ()
        return [Assign(QUERIES, ())]


def handed(effect: Send, local: LocalSlots, now: float) -> Effect:
    """Return a delivery in memory if a node of this process reads the slot, else the send.

    Its values are those of the moment, as if they came from the broker.
    """
    record = effect.record
    reader = local.reader((effect.topic, effect.slot))
    if not reader or not isinstance(record, Work):
        return effect
    local.hold(record.origin)
    items = tuple([replace(item, value=own_value(item.value, immutable)) for item in record.items])
    arrived = Arrived(replace(record, items=items), effect.topic, effect.slot, IN_MEMORY, now)
    return Deliver(reader, arrived)
