"""Offset ledger: look up and commit offsets on a separate thread.

A group's coordinator may need seconds to answer while it moves to another broker. The thread that
decides and reports must not wait for it: if all workers fell silent, all would count as lost.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import HOPELESS, BrokerError, refusal
from streams.kafka.topic_contents import bounds_now, committed, watermarks
from streams.observers.journal import tell
from streams.topics import Place

log = logging.getLogger("headrace.broker")
LEVELS = {"commit.note_too_long": logging.ERROR}

NO_EPOCH = -1


class Commit(Struct, frozen=True, gc=False):
    """The offset to commit for a slot, with its note, and the leader epoch of the last record read
    when its records were done."""

    offset: int
    note: str
    epoch: int = NO_EPOCH


Offsets = Mapping[Place, Commit]
Starts = list[TopicPartition]
Bounds = dict[Place, tuple[int, int]]  # first and end offsets
Answer = TypeVar("Answer")

AGAIN_S = 0.2  # between two attempts of a failed request for offsets
SERVE_S = 1.0  # interval at which an idle ledger polls the client's errors
RENEW_WITHIN_S = 5.0  # longest wait for the commits to be renewed
CLOSE_S = 15.0  # longest delay of a role's end by an absent coordinator


class OffsetLedger:
    """The offsets of one consumer group.

    Jobs run in order of submission. A failed commit is counted in ``failures`` and retried with the
    next one, a failed look-up is counted and repeated; ``check`` raises a permanent error.

    A commit's leader epoch lets a client that reads on from the commit find where a log was
    truncated and has other records since (KIP-320). Without an epoch, or with that of a record
    behind the cut, it would read the slot from its beginning, or skip the new records.
    """

    def __init__(self, config: KafkaConfig, group: str, client: Any) -> None:
        self._config, self._group, self._client = config, group, client
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pending: dict[Place, Commit] = {}
        self._asked = False  # a commit is queued
        self._error: BaseException | None = None
        self._closing = False
        self._told = False  # whether the refusal of a note was logged
        self.failures = 0
        self.why = ""  # the error of the last failed commit
        self.confirmed: dict[Place, int] = {}  # committed offsets of the slots looked up
        self._kept: dict[Place, TopicPartition] = {}  # commits of these slots, if any
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ from the driver's thread

    def check(self) -> None:
        """Raise the error that ended the ledger, if any; usually a ``BrokerError``."""
        if self._error is not None:
            raise self._error

    @property
    def unsettled(self) -> bool:
        """Whether offsets wait for their commit."""
        return bool(self._pending) or self._asked

    def commit(self, offsets: Offsets) -> None:
        """Queue a commit of these offsets and of those whose commit failed."""
        with self._lock:
            self._pending.update(offsets)
            if self._asked or not self._pending:
                return
            self._asked = True
        self._jobs.put(self._commit)

    def renew(self) -> None:
        """Queue the renewal of the present commits of the slots looked up.

        Brokers forget a commit that is older than ``offsets.retention.minutes``, even of a slot
        that is read but has had no record since. A commit of another process stays.
        """
        self._jobs.put(self._renew)

    def pass_markers(self, ends: Mapping[Place, tuple[int, int]]) -> None:
        """Queue commits behind the transaction markers at the end of slots.

        ``ends`` holds by slot the offset behind the last record read, and the one behind the
        markers. A slot with records that are not committed yet keeps its commit.
        """
        self._jobs.put(lambda: self._pass_markers(ends))

    def release(self, places: Iterable[Place]) -> None:
        """Give slots up: commit their pending offsets, then commit nothing more there."""
        gone = tuple(places)
        self._jobs.put(lambda: self._release(gone))

    def look_up(self, topic: str, slots: Iterable[int], then: Callable[[Starts], None]) -> None:
        """Call ``then`` on the ledger's thread with the slots' committed offsets, else those of
        their logs' starts."""
        wanted = tuple(slots)
        self._jobs.put(lambda: self._answered(lambda: self._found(topic, wanted), then))

    def ends(self, places: Iterable[Place], then: Callable[[dict[Place, int]], None]) -> None:
        """Call ``then`` on the ledger's thread with the end offsets."""
        wanted = tuple(places)
        self._jobs.put(lambda: self._answered(lambda: {p: self._end(p) for p in wanted}, then))

    def peek(self, places: Iterable[Place], then: Callable[[Bounds], None]) -> None:
        """Call ``then`` on the ledger's thread with the first and end offsets from ``bounds_now``:
        a failed request is not repeated."""
        wanted = tuple(places)
        self._jobs.put(lambda: then(bounds_now(self._client, wanted)))

    def close(self) -> None:
        """Run the queued jobs, then stop the thread and close the client."""
        self._closing = True
        self._jobs.put(None)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._client.close()

    # ------------------------------------------------------------------ on its own

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                job()
        except BaseException as error:  # noqa: BLE001 - the driver's thread raises it
            self._error = error

    def _next(self) -> Callable[[], None] | None:
        while True:
            try:
                return self._jobs.get(timeout=SERVE_S)
            except Empty:
                # Without polls the client accumulates its errors.
                self._client.poll(0)

    def _answered(self, ask: Callable[[], Answer], then: Callable[[Answer], None]) -> None:
        """Ask until the broker answers: it may be frozen, away, or moving the group."""
        while True:
            try:
                found = ask()
            except KafkaException as error:
                if error.args[0].code() in HOPELESS:
                    raise
                if self._closing:
                    return None
                self.failures += 1
                self.why = self._config.hide(error.args[0].str())
                self._client.poll(AGAIN_S)
            else:
                return then(found)

    def _commit(self) -> None:
        with self._lock:
            taken, self._pending, self._asked = self._pending, {}, False
        if not taken:
            return
        asked = [
            TopicPartition(*place, each.offset, each.note, leader_epoch=each.epoch)
            for place, each in taken.items()
        ]
        try:
            found = self._client.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            self._refused(error.args[0], taken)
            return
        failed = {(p.topic, p.partition): p.error for p in found if p.error is not None}
        for each in asked:
            place = (each.topic, each.partition)
            if place in self.confirmed and place not in failed:
                self.confirmed[place] = each.offset
                self._kept[place] = each
        if failed:
            why = next(iter(failed.values()))
            self._refused(why, {place: taken[place] for place in failed})

    def _renew(self) -> None:
        with self._lock:
            kept = {at: each for at, each in self._kept.items() if at not in self._pending}
        self._recommit(kept, {at: each.offset for at, each in kept.items()})

    def _pass_markers(self, ends: Mapping[Place, tuple[int, int]]) -> None:
        with self._lock:
            kept = {at: each for at, each in self._kept.items() if at not in self._pending}
        done = {at: each for at, each in kept.items() if at in ends and each.offset == ends[at][0]}
        self._recommit(done, {at: ends[at][1] for at in done})

    def _recommit(self, kept: Mapping[Place, TopicPartition], offsets: Mapping[Place, int]) -> None:
        """Commit slots anew at these offsets, but not those that another process has committed."""
        try:
            found = self._client.committed([*kept.values()], timeout=RENEW_WITHIN_S) if kept else []
            pairs = [(each, kept[each.topic, each.partition]) for each in found]
            ours = [_copy(made) for each, made in pairs if _renewable(each, made)]
            for each in ours:
                each.offset = offsets[each.topic, each.partition]
            if ours:
                self._client.commit(offsets=ours, asynchronous=False)
        except KafkaException as error:  # made again with the next renewal, or look
            self.failures += 1
            self.why = self._config.hide(error.args[0].str())
            return
        for each in ours:
            self._kept[each.topic, each.partition] = each
            self.confirmed[each.topic, each.partition] = each.offset

    def _refused(self, error: KafkaError, offsets: Offsets) -> None:
        if error.code() in HOPELESS:
            raise BrokerError(refusal(self._config, error, "Read", "group", self._group))
        # Retried with the next commit, as a broker may be away. If the slot changes hands first,
        # its work is repeated and counted once.
        self.failures += 1
        self.why = self._config.hide(error.str())
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and not self._told:
            self._told = True
            self._tell_too_long(offsets)
        with self._lock:
            self._pending = {**offsets, **self._pending}

    def _tell_too_long(self, offsets: Offsets) -> None:
        (topic, slot), longest = max(offsets.items(), key=lambda each: len(each[1].note))
        length = len(longest.note)
        text = (
            f"the broker refuses a commit of group {self._group!r}: its offset metadata has "
            f"{length} bytes, more than the brokers' offset.metadata.max.bytes; raise that, or "
            "egress_partitions in the pipeline's file, which divides the input's partitions. Until "
            "then a restart rereads the records since the last commit"
        )
        event = "commit.note_too_long"
        tell(log, LEVELS[event], event, text, topic=topic, slot=slot, bytes=length)

    def _release(self, places: tuple[Place, ...]) -> None:
        self._commit()
        with self._lock:
            for place in places:
                self._pending.pop(place, None)
                self.confirmed.pop(place, None)
                self._kept.pop(place, None)

    def _found(self, topic: str, slots: tuple[int, ...]) -> Starts:
        starts: Starts = committed(self._client, topic, slots)
        self.confirmed.update({(p.topic, p.partition): p.offset for p in starts})
        self._kept.update({(p.topic, p.partition): _copy(p) for p in starts if p.offset >= 0})
        # The reader's client would ask where a log begins behind a fetch, for fetch.wait.max.ms.
        unread = [(p.topic, p.partition) for p in starts if p.offset == OFFSET_BEGINNING]
        bounds = bounds_now(self._client, unread) if unread else {}
        for place in starts:
            if (at := (place.topic, place.partition)) in bounds:
                place.offset = bounds[at][0]
        return starts

    def _end(self, place: Place) -> int:
        topic, slot = place
        return watermarks(self._client, TopicPartition(topic, slot, OFFSET_BEGINNING))[1]


def _renewable(found: TopicPartition, kept: TopicPartition) -> bool:
    """Return whether a commit is unchanged or was forgotten by the broker."""
    same = (found.offset, found.metadata or "") == (kept.offset, kept.metadata or "")
    return found.error is None and (found.offset < 0 or same)


def _copy(place: TopicPartition) -> TopicPartition:
    """Return a copy of a commit; the reader may change the original."""
    epoch = NO_EPOCH if place.leader_epoch is None else place.leader_epoch
    return TopicPartition(
        place.topic, place.partition, place.offset, place.metadata or "", leader_epoch=epoch
    )
