"""Reading of slots: which nodes read which slot, from where, and the history of the plans topic.

Several nodes of a process share one reading of the plans. Its history is delivered once it is
complete, as the newest record of each key.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from operators.plan_follower import CatchUp
from schemas.effects import PLANS, QUERIES, Arrived
from schemas.pipeline import Pipeline
from schemas.trace_context import trace_of
from schemas.user_errors import UNSUCCESSFUL, HeadraceError
from streams.codecs.wire import Fetched, decoder
from streams.live.fatal_records import FatalRecords
from streams.live.inbox import FetchedBatch, Transport
from streams.live.steady_clock import Clock
from streams.topics import Place, physical

CATCH_UP_S = 2.0  # a history without a further record for this long is complete


class LogWentBack(HeadraceError):
    """A slot's offsets went back while it was read; a restarted role reads its present records."""

    exit_code = UNSUCCESSFUL


@dataclass(frozen=True, slots=True)
class InputLog:
    """The log of the input topic, as ingress knows it at its start.

    ``begins`` holds by slot the first offset to read. ``check`` is called before a record below the
    next expected offset is handled; it raises if the topic was recreated.
    """

    begins: Mapping[int, int]
    check: Callable[[], None]


class SlotReaders:
    """The slots that the nodes of one process read over a transport."""

    def __init__(
        self,
        pipeline: Pipeline,
        transport: Transport,
        clock: Clock,
        fatal: FatalRecords | None = None,
        input_log: InputLog | None = None,
    ) -> None:
        self._fatal, self._input = fatal, input_log
        self.handling: Fetched | None = None  # the record being decoded or handled
        self._pipeline = pipeline
        self._transport = transport
        self._clock = clock
        self._logical: dict[str, str] = {}
        self._decoders: dict[str, Any] = {}
        self._readers: dict[Place, tuple[str, ...]] = {}
        self._since: dict[Place, int] = {}  # the assignment under which a slot is read
        self._next: dict[Place, int] = {}  # the offset after a slot's last record
        self._past: dict[Place, tuple[CatchUp, float]] = {}  # history, time of its last record

    @property
    def free(self) -> bool:
        """Whether no node reads anything but plans."""
        plans = physical(self._pipeline.name, PLANS)
        return all(topic == plans for topic, _ in self._readers)

    @property
    def catching_up(self) -> bool:
        """Whether a history is incomplete."""
        return bool(self._past)

    def pause(self, node: str, topic: str, slots: tuple[int, ...]) -> None:
        """Pause these slots of those that the node reads of a topic, and resume the others."""
        mine = [p for p, nodes in self._readers.items() if p[0] == topic and node in nodes]
        self._transport.pause([(topic, slot) for slot in slots], mine)

    def events(self, batch: FetchedBatch) -> Iterator[tuple[str, Arrived]]:
        """Yield the records of a fetch, one for each node that reads the slot at that time.

        Raise ``LogWentBack``, or an error of ``InputLog.check``.
        """
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
            if place in self._past:
                yield from self._of_history(place, fetched)
                continue
            if fetched.value is None and self._logical[fetched.topic] == PLANS:
                continue  # a tombstone: the control app deleted the plan
            self._begin(fetched)
            event = self._arrived(fetched)
            for node in readers:
                yield node, event
            self._end()

    def _begin(self, fetched: Fetched) -> None:
        self.handling = fetched
        if self._fatal is not None:
            self._fatal.began(fetched)

    def _end(self) -> None:
        self.handling = None
        if self._fatal is not None:
            self._fatal.ended()

    def _arrived(self, fetched: Fetched) -> Arrived:
        topic = fetched.topic
        known = None if self._fatal is None else self._fatal.unreadable(fetched)
        record = self._decoders[topic](fetched) if known is None else known
        logical, headers = self._logical[topic], fetched.headers
        trace = trace_of(headers) if headers and logical == QUERIES else None
        return Arrived(record, logical, fetched.slot, fetched.offset, fetched.at_s, trace)

    def _went_back(self, place: Place, offset: int) -> None:
        # If a log lost its end, ingress gives its records other places, and plans have epochs. For
        # other records it is unknown which were handled.
        logical = self._logical[place[0]]
        if logical == QUERIES and self._input is not None:
            self._input.check()
        if logical not in (QUERIES, PLANS):
            raise LogWentBack(
                f"slot {place[1]} of topic {place[0]} went back from offset {self._next[place]} to "
                f"{offset}: it was recreated or has lost its end; restart this role"
            )

    def _of_history(self, place: Place, fetched: Fetched) -> Iterator[tuple[str, Arrived]]:
        past, _ = self._past[place]
        past.end = self._transport.end_of(place)
        if fetched.value is None:
            past.forget(fetched.key, fetched.offset)
        else:
            past.take(self._arrived(fetched), fetched.key)
        self._past[place] = (past, self._clock())
        if past.over:
            yield from self._newest(place)

    def _newest(self, place: Place) -> Iterator[tuple[str, Arrived]]:
        """End a complete history: yield its newest records."""
        past, _ = self._past.pop(place)
        for event in past.newest():
            for node in self._readers.get(place, ()):
                yield node, event

    def complete(self, now: float) -> Iterator[tuple[str, Arrived]]:
        """Yield the histories that end although their last offset was not delivered.

        The last offsets of a log may hold no record: compacted ones, or transaction markers.
        """
        for place, (past, since_s) in list(self._past.items()):
            if self._transport.end_of(place) is None:
                self._past[place] = (past, now)
            elif now - since_s > CATCH_UP_S:
                yield from self._newest(place)

    def lease(self, node: str, logical: str, slots: tuple[int, ...]) -> None:
        """Let the node read exactly these slots of a topic."""
        topic = physical(self._pipeline.name, logical)
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
        begins = self._input.begins if logical == QUERIES and self._input is not None else {}
        self._next.update({place: begins.get(place[1], 0) for place in new})
        if logical == PLANS:
            self._past.update({p: (CatchUp(self._pipeline.name), self._clock()) for p in new})
