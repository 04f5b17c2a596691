"""Kafka transport of the live driver: fetch, send, assign, and commit after confirmed sends.

Rules against lost work (docs/decisions/0004):

1. the sends of a turn go to the producer by its end, in the order of each partition
   (``streams/kafka/sender.py``);
2. offsets that the turn reported done wait until the broker has confirmed those sends and every
   earlier turn's;
3. then they are committed, at most every ``COMMIT_S``, never backwards within a lease.

Reports are exempt: they have a separate producer, and the next report replaces a lost one. A
reports topic without a leader stops no work.

A send that the broker refuses permanently ends the process, and what has not left by then is
discarded: its input is not committed, so the slot's next reader repeats the work in order.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    TopicPartition,
)

from schemas.effects import REPORTS
from schemas.trace_context import Headers
from streams.codecs.wire import Fetched
from streams.kafka.admin.topic_copies import copies_of
from streams.kafka.connectivity import Connectivity
from streams.kafka.hand_overs import HAND_OVER_S, HandOver, HandOvers
from streams.kafka.kafka_client import Callbacks, consumer, fatal_errors, report_producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import HOPELESS, BrokerError, refusal
from streams.kafka.missing_copies import MissingCopies
from streams.kafka.offset_ledger import NO_EPOCH, Commit, OffsetLedger
from streams.kafka.reading.partition_reader import PartitionReader
from streams.kafka.send_window import TurnRecord
from streams.kafka.sender import PartitionLease, Sender
from streams.kafka.stalled_sends import STALLED_S, StalledSends
from streams.kafka.throttling import HEARTBEATS, READS, SENDS, Throttling
from streams.kafka.turn import Turn, unconfirmed_since
from streams.topics import Place, physical

COMMIT_S = 0.2
RENEW_S = 3600.0  # between two renewals of the commits of slots without records
FLUSH_S = 10.0  # longest wait for confirmations when a role ends
HOLDING_S = 0.001  # longest turn while records wait for confirmations of others
UNSETTLED_S = 0.05  # while confirmations or commits are under way
IDLE_S = 1.0
LOOK_S = 1.0  # between two looks for slots that the client has stopped reading
COPIES_S = 5.0  # longest wait for an answer on the copies of partitions that take nothing
STILL_S = 1.0  # a broker that confirms nothing for this long is busy, or refuses for a while
WATCH_S = 0.05  # between two checks of the clients' errors and for a broker that confirms nothing
_REPORTS = physical("", REPORTS)


class KafkaTransport:
    """One consumer and one producer for all nodes of a process, and a producer for reports.

    One thread fetches from its own consumer (``reading/partition_reader.py``); a second consumer on
    its own thread looks up and commits offsets. The driver's thread never waits for the broker.
    With ``validates``, a role that reads on from a commit finds where the log was truncated
    (``OffsetLedger``), its assignments take one more request, and its commits are renewed.
    """

    _reported_s = float("inf")  # when a report was last confirmed
    _silent_s = float("inf")
    _on_return: Callable[[], None] | None = None
    _abandoned = False

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        lease: PartitionLease | None = None,
        *,
        validates: bool = False,
    ) -> None:
        self._config, self._lease = config, lease
        self._connectivity, self._throttling = Connectivity(config), Throttling(config)
        self._missing = MissingCopies(partial(copies_of, config, timeout_s=COPIES_S))
        on_error = fatal_errors(config, self._connectivity.failed_request)
        delayed = self._throttling.delayed
        sends: Callbacks = {"error_cb": on_error, "throttle_cb": partial(delayed, SENDS)}
        reads: Callbacks = {"error_cb": on_error, "throttle_cb": partial(delayed, READS)}
        self._epochs: dict[Place, int] = {}  # leader epochs of each slot's last record
        self._ledger = OffsetLedger(config, group, consumer(config, group))
        self._reader = PartitionReader(
            config,
            group,
            reads,
            self._ledger.peek,
            self._ledger.pass_markers,
            self._epochs if validates else None,
        )
        self._asked = 0  # assignments ordered
        self._sender = Sender(config, lease, sends, self._sends_wait)
        self._reporter = report_producer(config, throttle_cb=partial(delayed, HEARTBEATS))
        self._reports = 0  # in flight
        self._refused: KafkaError | None = None  # the permanent error of a report
        self._now = 0.0  # at the end of the last turn
        self._turn, self._turns = Turn(), deque[Turn]()
        self._ended = self._confirmed = 0  # number of turns
        self._hand_overs = HandOvers()
        self._ends: dict[Place, int] = {}
        self._ready: dict[Place, Commit] = {}
        self._commit_at = self._look_at_s = self._watch_at_s = self._settled_s = 0.0
        self._renew_at = 0.0 if validates else float("inf")
        self._answered = False  # whether the broker confirmed a send made while it counted as away
        self._stalled = StalledSends()

    def warm(self, topics: Iterable[str]) -> bool:
        """Connect, and fetch these topics' metadata, before reading begins; False if the broker is
        away."""
        names = tuple(topics)
        warm = self._sender.warm(names)
        if warm:
            self._reader.know_leaders(names)
        return warm

    # ------------------------------------------------------------------ reading

    def fetch(self, timeout_s: float) -> list[Fetched]:
        """Wait for a record, then fetch all available ones; none while too many sends wait."""
        return self._reader.fetch(timeout_s)

    @property
    def assigned(self) -> int:
        """The number of the last assignment that the reading thread has carried out."""
        return self._reader.assigned

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        """Pause exactly ``places`` among the slots in ``among``; resume the others of them."""
        self._reader.pause(places, among)

    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int:
        """Leave the ``gone`` slots after a commit; read ``new`` ones from their committed offsets.

        Without ``commits`` the new slots are read from the beginning. A slot in both is read again.
        Return the number of this assignment; it is in effect once ``assigned`` has reached it.
        """
        gone = list(gone)
        self._asked += 1
        number = self._asked
        if gone:
            # Close the turn here: the rest of it belongs to the next one.
            self._close_turn(self._now)
            self._reader.leave(gone, number)
        behind = self._ended if gone else 0
        by_s = self._now + HAND_OVER_S
        self._hand_overs.add(HandOver(number, tuple(new), tuple(gone), commits, behind, by_s))
        self._hand_over()
        return number

    def end_of(self, place: Place) -> int | None:
        """Return the end offset at assignment of a slot without commits; None until it is known."""
        return self._ends.get(place)

    def _hand_over(self) -> None:
        """Begin, in order, the assignments whose earlier sends are confirmed or overdue."""
        for change in self._hand_overs.due(self._confirmed, self._now):
            if change.gone:
                self._commit()
                self._ledger.release(change.gone)
            self._begin(change)

    def _begin(self, change: HandOver) -> None:
        def read_from(places: list[TopicPartition]) -> None:
            self._reader.read(places, change.number)

        def read_all(ends: dict[Place, int]) -> None:
            self._ends.update(ends)
            read_from([TopicPartition(t, s, OFFSET_BEGINNING) for t, s in change.new])

        if change.new and change.commits:
            slots = [slot for _, slot in change.new]
            self._ledger.look_up(change.new[0][0], slots, read_from)
        else:
            self._ledger.ends(change.new, read_all)

    # ------------------------------------------------------------------ writing

    def send(self, topic: str, value: bytes, slot: int, key: str, headers: Headers = ()) -> None:
        """Send a record by the end of the turn, or once earlier ones are confirmed."""
        if topic == _REPORTS:
            self._report(value, slot, key)
        else:
            record = TurnRecord(self._turn, value, key or None, headers)
            self._sender.send((topic, slot), record)

    def _sends_wait(self) -> bool:
        """Return whether the broker delays the next send by a quota."""
        return self._now < self._throttling.until_s[SENDS]

    def _report(self, value: bytes, slot: int, key: str) -> None:
        away = self._connectivity.away

        def delivered(error: KafkaError | None, _: Any) -> None:
            self._reports -= 1
            if error is None:
                self._answered = self._answered or away
                self._end_silence()
            elif error.code() in HOPELESS:
                self._refused = error

        # A full queue discards the report: the next one contains all its counts.
        with contextlib.suppress(BufferError):
            self._reporter.produce(
                _REPORTS, value, key or None, partition=slot, on_delivery=delivered
            )
            self._reports += 1

    def notice_silence(self, silent_s: float, on_return: Callable[[], None]) -> None:
        """Call ``on_return`` whenever a report is confirmed after ``silent_s`` without one."""
        self._silent_s, self._on_return = silent_s, on_return

    def _end_silence(self) -> None:
        if self._on_return is not None and self._now - self._reported_s > self._silent_s:
            self._on_return()
        self._reported_s = self._now

    def done(self, place: Place, offset: int, note: str) -> None:
        """Report a slot done below ``offset``, to be committed once the turn is confirmed."""
        self._turn.done[place] = Commit(offset, note, self._epochs.get(place, NO_EPOCH))

    def end_turn(self, now: float) -> None:
        """Close the turn, process the broker's confirmations, send, and commit what is settled.

        Raise ``BrokerError`` if a record can never be sent, ``LeaseLost`` with the lease.
        """
        self._now = now
        self._close_turn(now)
        self._sender.progress(self._turns, now)
        if self._reports:
            self._reporter.poll(0)
        self._settle()
        self._hand_over()
        if now >= self._watch_at_s:
            self._watch_at_s = now + WATCH_S
            self._watch(now)
        if self._answered:
            self._answered = False
            self._connectivity.answered(now)
        if now >= self._commit_at and (self._ready or self._ledger.unsettled):
            self._commit_at = now + COMMIT_S
            self._commit()

    def _watch(self, now: float) -> None:
        """Run the checks that are not needed in every turn."""
        self._ledger.check()
        self._connectivity.look(now)
        self._throttling.look(now)
        self._check_sends(now)
        if now >= max(self._look_at_s, self._throttling.until_s[READS]):
            self._look_at_s = now + LOOK_S
            self._reader.look()
        if now >= self._renew_at:
            self._renew_at = now + RENEW_S
            self._ledger.renew()

    def _close_turn(self, now: float) -> None:
        if self._turn.waiting or self._turn.done:
            self._turn.absent = self._connectivity.away and self._turn.waiting > 0
            self._turn.ended_s = now
            self._turns.append(self._turn)
            self._ended += 1
            self._turn = Turn()

    def _commit(self) -> None:
        ready, self._ready = self._ready, {}
        self._ledger.commit(ready)

    def _check_sends(self, now: float) -> None:
        """Stop reading if too many sends wait. Raise ``BrokerError`` if they stay unconfirmed
        although the broker delivers and no copies are missing."""
        sent_s = unconfirmed_since(self._turns)
        if self._reader.delivers:
            self._reader.delivers = False
            self._stalled.delivered(now, sent_s, away=self.away)
        if not self.away:
            self._missing.look(now, sent_s, lambda: self._sender.places)
        late = sent_s is not None and now - sent_s > STILL_S
        self._reader.held = late and self._sender.crowded(now)  # the backlog stays on the broker
        # A report that was delivered first may have ended the outage. Throttled sends wait.
        throttled_s = self._throttling.until_s[SENDS]
        since_s = max(self._connectivity.since_s, throttled_s, self._missing.missed_s)
        if self._stalled.stalled(sent_s, since_s) and not self._missing.asking:
            raise BrokerError(
                f"the broker delivers, but has confirmed nothing of what was sent for "
                f"{STALLED_S:g} s; restart this role"
            )

    @property
    def patience_s(self) -> float:
        """The seconds within which the next ``end_turn`` is due."""
        if not self.unsettled:
            return IDLE_S
        return HOLDING_S if self._sender.holds and not self._still else UNSETTLED_S

    @property
    def _still(self) -> bool:
        """Whether the broker confirms no turn for ``STILL_S``."""
        sent_s = unconfirmed_since(self._turns)
        return sent_s is not None and self._now - max(sent_s, self._settled_s) > STILL_S

    @property
    def unsettled(self) -> bool:
        """Whether sends wait for confirmation or offsets for their commit."""
        return bool(self._turns or self._ready or self._hand_overs or self._ledger.unsettled)

    def _settle(self) -> None:
        if self._sender.refused and not self._abandoned:
            turn = next(each for each in (*self._turns, self._turn) if each.error is not None)
            self.abandon()  # later records of the partition must not arrive without this one
            raise BrokerError(refusal(self._config, turn.error, "Write", "topic", turn.topic))
        while self._turns and self._turns[0].waiting == 0:
            turn = self._turns.popleft()
            self._settled_s = self._now
            self._confirmed += 1
            self._ready.update(turn.done)
            self._answered = self._answered or turn.absent
        if self._refused is not None:
            raise BrokerError(refusal(self._config, self._refused, "Write", "topic", _REPORTS))

    @property
    def away(self) -> bool:
        """Whether the broker counts as away."""
        return self._connectivity.away

    @property
    def throttled_s(self) -> float:
        """The sum of the delays that the broker's quotas imposed, in seconds."""
        return self._throttling.delayed_s

    def lag(self, timeout_s: float) -> dict[Place, int]:
        """Return the backlog of each slot read with commits: records after its committed offset.

        Callable from any thread; the reading thread answers, as only it may use the consumer. Empty
        if it does not answer within ``timeout_s``. Slots without a fetch so far are omitted.
        """
        return self._reader.lag(self._ledger.confirmed, timeout_s)

    @property
    def commit_failures(self) -> int:
        """The number of refused commits; each was retried with the next one."""
        return self._ledger.failures

    def abandon(self) -> None:
        """Discard unsent records and uncommitted offsets; ``close`` then only disconnects."""
        self._sender.abandon()
        self._abandoned = True
        self._turns.clear()
        self._turn, self._ready = Turn(), {}

    def close(self) -> None:
        """Flush the sends, commit, and close the clients."""
        if self._sender.abandoned:  # its error ends the role; what it discarded is no further one
            self.abandon()
        self._close_turn(self._now)
        self._sender.flush(FLUSH_S)
        self._reporter.flush(1.0)
        self._settle()
        if self._lease is not None:
            self._lease.end(confirmed=not self._turns and not self._abandoned)
        self._commit()
        self._reader.close()
        self._ledger.close()
