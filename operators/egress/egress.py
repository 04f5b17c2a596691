"""Egress: join the branches of a query, emit its one Answer.

A query is identified by its ``Origin``. Ingress reads the input in order and sends a notice of
every query in that order, so duplicate detection stores no ids: a query is closed when its offset
is below the notices' ``upto`` and it is not open. A record of a closed query is a duplicate.
Only records of closed queries are committed, so a restart reads every open query again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from operators.dead_letter import dead_letter
from operators.egress.egress_times import EgressTimes
from operators.egress.latency_histogram import bucket
from operators.join import (
    Accuracies,
    Combine,
    CombineJournal,
    Held,
    Join,
    OpenQuery,
    as_list,
    refused_answer,
)
from operators.offset_tracker import Progress
from operators.outcomes import LATE, OUTCOMES, cause_of, outcome_of, tight, unpromised
from operators.plan_follower import PlanFollower
from operators.reporter import Reporter
from operators.serving.transfers import SessionLinks, Transfers
from operators.wake_up import WakeUp
from schemas.effects import (
    OUTPUTS,
    RESULTS,
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Send,
    Wake,
    Woke,
)
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    DROPPED,
    Answer,
    Garbled,
    Notice,
    Noticed,
    Origin,
    Plan,
    Trace,
    Work,
)
from schemas.trace_context import headers_of

# Delay of a commit: one commit for many records. A process that ends still makes it (``PENDING_S``
# in streams/live/live_driver.py).
COMMIT_S = 0.1
Returned = tuple[tuple[int, int], Work]  # a query's key, and one of its results
COUNTS = (
    "answered", "late", "incomplete", "dropped", "failed", "refused", "duplicates", "unpromised",
    "tight",
)  # fmt: skip

MOST_CLOSED = 1000  # closing times of closed queries that are kept beside as many open ones


class Egress:
    """The egress node; it owns ``partitions`` of the outputs topic.

    After a restart, ``notes`` holds by slot and input partition the offset below which every query
    was closed and committed; ``answered`` are the queries above it that already have an answer.
    ``journal`` records the queries at which ``combine`` ended an earlier process. Over emulated
    ``links`` a session's results take the transfer time back to its tier.
    """

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        partitions: Sequence[int],
        *,
        incarnation: float,
        combine: Combine = as_list,
        accuracies: Accuracies | None = None,
        notes: Mapping[int, Mapping[int, int]] | None = None,
        answered: Collection[tuple[int, int]] = (),
        links: SessionLinks | None = None,
        journal: CombineJournal | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._join = Join(pipeline, combine, accuracies or {}, journal)
        self._plans = PlanFollower(pipeline.name)
        self._open: dict[tuple[int, int], OpenQuery] = {}
        notes = notes or {}
        self._upto = highest(notes.values())
        # Queries closed before their notice, with the offsets of their records.
        self._early: dict[tuple[int, int], list[Held]] = {
            key: [] for key in answered if key[1] >= self._upto.get(key[0], 0)
        }
        # Records of queries that were answered before their notice, by the notice's record.
        self._behind: dict[Held, list[Held]] = {}
        self._progress = _progress_of(self._partitions, notes)
        self._due: list[tuple[float, tuple[int, int]]] = []  # a heap of closing times
        self._committing: dict[int, None] = {}
        self._commit_wake_up = WakeUp()
        self._sessions: set[str] = set()  # with counts
        self._promised_s = 0.0  # the SLO that the plan in force is made for
        self._close_wake_up = WakeUp()  # of the next overdue query
        self._reporter = Reporter(name, "egress", pipeline, incarnation)
        self._counts = self._reporter.counts
        self._counts.update(dict.fromkeys(COUNTS, 0))
        self._egress_times = EgressTimes(self._counts)
        # Results in transfer back to their session's tier, by query.
        self._back = _transfers_back(links, pipeline, self._reporter)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            record = event.record
            if type(record) is Work:
                return self._work(event, record, now)
            if type(record) is Notice:
                return self._notice(event, record, now)
            if type(record) is Plan:
                return self._plan(record)
            if type(record) is Garbled:
                return self._garbled(event, record, now)
        if type(event) is Woke:
            return self._woke(now)
        return []

    def _plan(self, plan: Plan) -> list[Effect]:
        if self._plans.accept(plan):
            self._promised_s = plan.tightest_slo_s
            self._reporter.follow(plan.epoch, NodeState.READY)
            self._forget_sessions(frozenset([each.session for each in plan.sessions]))
        return []

    def _forget_sessions(self, open_ones: frozenset[str]) -> None:
        """Drop the counts of sessions that have closed."""
        for session in self._sessions - open_ones:
            for outcome in OUTCOMES:
                self._counts.pop(f"session/{session}/{outcome}", None)
        self._sessions &= open_ones
        if self._back is not None:
            self._back.forget(open_ones)

    # ------------------------------------------------------------------ arrivals

    def _work(self, event: Arrived, work: Work, now: float) -> list[Effect]:
        origin, slot = work.origin, event.slot
        key = (origin.partition, origin.offset)
        query = self._open.get(key)
        opened = query is None
        noticed = opened and key[1] < self._upto.get(key[0], 0)
        duplicate = noticed or (opened and key in self._early)
        if not self._progress[slot].begin(event.offset, 0 if noticed else 1):
            return []
        if duplicate:
            self._counts["duplicates"] += 1
            if noticed:
                return self._commit_soon(slot, now)
            self._early[key].append((slot, event.offset))
            return []
        if query is None:
            session = work.session.session if work.session is not None else ""
            query = OpenQuery(
                work.query_id, origin, work.created_s, work.deadline_s, work.slo_class, session,
                work.trace,
            )  # fmt: skip
        query.held.append((slot, event.offset))
        self._egress_times.arrived(work, now)
        if work.session is not None and self._back is not None:
            until_s = self._back.back_s(work, event.at_s, now)
            if until_s > now:
                self._back.hold((key, work), until_s)
                return [*(self._await(key, query) if opened else []), Wake(until_s)]
        if query.take(work):
            return self._close(key, query, now)
        return self._await(key, query) if opened else []

    def _take_back(self, back: Transfers[Returned], now: float) -> list[Effect]:
        """Take the results whose transfer has ended; a query that has closed meanwhile was late."""
        effects: list[Effect] = []
        for key, work in back.ended(now):
            query = self._open.get(key)
            if query is not None and query.take(work):
                effects += self._close(key, query, now)
        return effects

    def _notice(self, event: Arrived, notice: Notice, now: float) -> list[Effect]:
        partition, place = notice.partition, (event.slot, event.offset)
        progress = self._progress[event.slot]
        seen = self._upto.get(partition, 0)
        # A restarted ingress repeats its uncommitted notices.
        news = [query for query in notice.queries if query.offset >= seen]
        upto = max(seen, notice.upto)
        if not progress.begin(event.offset, len(news), (partition, upto)):
            return []
        effects: list[Effect] = []
        for noticed in news:
            effects += self._noticed(place, (partition, noticed.offset), noticed, now)
        self._upto[partition] = upto
        if self._behind:
            effects += self._finish(self._released(*place), now)
        if self._early:
            effects += self._end_early(partition, upto, now)
        # An open query of the notice holds up the commit until it closes.
        if progress.movable:
            effects += self._commit_soon(event.slot, now)
        return effects

    def _end_early(self, partition: int, upto: int, now: float) -> list[Effect]:
        """Release answered queries whose notice was lost with a part of the input topic.

        A later notice has arrived, so theirs cannot, and they would block every commit.
        """
        lost = [key for key in self._early if key[0] == partition and key[1] < upto]
        return [effect for key in lost for effect in self._finish(self._early.pop(key), now)]

    def _noticed(
        self, place: Held, key: tuple[int, int], noticed: Noticed, now: float
    ) -> list[Effect]:
        """Take the notice of one query, from the record at ``place``."""
        query = self._open.get(key)
        if query is not None:  # the work overtook the notice
            query.held.append(place)
            return []
        slot, offset = place
        if key in self._early:
            # Commit them with the notice, so that a restart reads both again: their times tell
            # egress from when on to look for the answer.
            held = self._behind.setdefault(place, [])
            held += self._early.pop(key)
            self._progress[slot].finish(offset)
            return []
        origin = Origin(*key)
        if noticed.refused:
            self._progress[slot].finish(offset)
            return self._emit(refused_answer(noticed, origin, now), noticed.trace)
        query = OpenQuery(
            noticed.query_id,
            origin,
            noticed.created_s,
            noticed.deadline_s,
            noticed.slo_class,
            noticed.session,
            noticed.trace,
        )
        query.held.append(place)
        return self._await(key, query)

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        if event.topic != OUTPUTS or not self._progress[event.slot].begin(event.offset, 0):
            return []
        letter = dead_letter(event, garbled, self._reporter.name, now)
        return [letter, *self._commit_soon(event.slot, now)]

    # ------------------------------------------------------------------ closing

    def _await(self, key: tuple[int, int], query: OpenQuery) -> list[Effect]:
        self._open[key] = query
        closes_s = query.deadline_s + self._pipeline.grace_s
        heappush(self._due, (closes_s, key))
        return self._close_wake_up.by(closes_s)

    def _close(self, key: tuple[int, int], query: OpenQuery, now: float) -> list[Effect]:
        """Answer a query; one that its first record completes was never open."""
        self._open.pop(key, None)
        said = self._join.answer(query, now)
        if key[1] < self._upto.get(key[0], 0):
            return [*self._emit(said, query.trace), *self._finish(query.held, now)]
        # The records stay uncommitted until the notice arrives; otherwise a restarted egress would
        # reopen an answered query.
        self._early[key] = query.held
        return self._emit(said, query.trace)

    def _finish(self, held: Sequence[Held], now: float) -> list[Effect]:
        """Release records; they span several slots if the number of slots was changed."""
        left, committing = list(held), self._committing
        for slot, offset in left:
            progress = self._progress[slot]
            progress.finish(offset)
            if self._behind:
                left += self._released(slot, offset)
            # Not movable: an older open query holds up the commit.
            if slot not in committing and progress.movable:
                committing[slot] = None
        return self._commit_wake_up.by(now + COMMIT_S) if committing else []

    def _released(self, slot: int, offset: int) -> Sequence[Held]:
        """Return the records held behind this one, if it is a notice that has finished."""
        return self._behind.pop((slot, offset), ()) if self._progress[slot].finished(offset) else ()

    def _close_overdue(self, now: float) -> list[Effect]:
        if len(self._due) > 2 * len(self._open) + MOST_CLOSED:
            self._forget_closed()
        due = self._due
        effects: list[Effect] = []
        # Skip closed queries: waking for each of them would dominate egress's load.
        while due and (due[0][0] <= now or due[0][1] not in self._open):
            _, key = heappop(due)
            query = self._open.get(key)
            if query is not None:
                effects += self._close(key, query, now)
        if now >= self._close_wake_up.at_s:
            self._close_wake_up.clear()
            effects += self._close_wake_up.by(due[0][0]) if due else []
        return effects

    def _forget_closed(self) -> None:
        """Forget the closing times of closed queries: an open query of a short deadline would keep
        those of a long deadline behind it."""
        grace_s = self._pipeline.grace_s
        self._due = [(query.deadline_s + grace_s, key) for key, query in self._open.items()]
        heapify(self._due)

    def _emit(self, said: Answer, trace: Trace | None) -> list[Effect]:
        counts = self._counts
        outcome = outcome_of(said)
        counts[outcome] += 1
        if self._pipeline.slo_classes:
            self._reporter.count(f"class/{said.slo_class}/{outcome}")
        if said.outcome == ANSWERED:
            self._reporter.count(bucket(said.answered_s - said.created_s))
        if said.session:
            self._sessions.add(said.session)
            self._reporter.count(f"session/{said.session}/{outcome}")
        if outcome != ANSWERED:
            self._missed(said, outcome)
        elif tight(said):
            self._tight(said)
        return [Send(RESULTS, said, key=said.id, headers=headers_of(trace))]

    def _tight(self, said: Answer) -> None:
        """Count an answer in the last part of its time."""
        self._counts["tight"] += 1
        if self._pipeline.slo_classes:
            self._reporter.count(f"tight/{said.slo_class}")

    def _missed(self, said: Answer, outcome: str) -> None:
        """Count a query that was not answered completely and in time."""
        counts = self._counts
        counts["incomplete"] += said.incomplete
        if outcome in (LATE, DROPPED):
            counts["unpromised"] += unpromised(said, self._promised_s)
        if outcome != LATE:
            self._reporter.count(f"{outcome}/{cause_of(said)}")

    # ------------------------------------------------------------------ offsets and time

    def _commit_soon(self, slot: int, now: float) -> list[Effect]:
        self._committing[slot] = None
        return self._commit_wake_up.by(now + COMMIT_S)

    def _commit(self) -> list[Effect]:
        self._commit_wake_up.clear()
        slots, self._committing = self._committing, {}
        done = [
            Done(slot, self._progress[slot].done, note_of(self._progress[slot].notes))
            for slot in slots
            if self._progress[slot].advance()
        ]
        return [Assign(OUTPUTS, done=tuple(done))] if done else []

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if not self._plans.started:
            effects = [*self._plans.start(), Assign(OUTPUTS, self._partitions)]
        if self._back is not None:
            effects += self._take_back(self._back, now)
        effects += self._close_overdue(now)
        if now >= self._commit_wake_up.at_s:
            effects += self._commit()
        return [*effects, *self._reporter.due(now)]


def _progress_of(
    slots: Iterable[int], notes: Mapping[int, Mapping[int, int]]
) -> dict[int, Progress]:
    """Return each slot's progress, including the notes of earlier commits."""
    progress = {slot: Progress() for slot in slots}
    for slot, note in notes.items():
        progress[slot].notes.update(note)
    return progress


def _transfers_back(
    links: SessionLinks | None, pipeline: Pipeline, reporter: Reporter
) -> Transfers[Returned] | None:
    """Return the transfers of results back to their sessions; None unless links are emulated."""
    return Transfers(links, pipeline, reporter) if links is not None and links.emulated else None


def note_of(upto: Mapping[int, int]) -> str:
    """Encode the metadata of a commit: by input partition, the offset below which every query is
    closed."""
    return ",".join([f"{partition}:{offset}" for partition, offset in sorted(upto.items())])


def upto_of(note: str) -> dict[int, int]:
    """Decode ``note_of``; an empty note gives an empty mapping."""
    pairs = (pair.split(":") for pair in note.split(",") if pair)
    return {int(partition): int(offset) for partition, offset in pairs}


def highest(notes: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Merge the notes of several slots; the highest offset of an input partition wins.

    A partition occurs in two notes if the number of slots was changed.
    """
    upto: dict[int, int] = {}
    for note in notes:
        for partition, offset in note.items():
            upto[partition] = max(offset, upto.get(partition, 0))
    return upto


def made_s(record: object) -> list[float]:
    """Return the creation times of the queries in a record to egress, in seconds."""
    if isinstance(record, Notice):
        return [query.created_s for query in record.queries]
    return [record.created_s] if isinstance(record, Work) else []
