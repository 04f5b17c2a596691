"""Scorer: join answers with labels, and with the results of their queries' shadows.

It measures the accuracy by path, class and hour, and how often answers equal the results of the
most accurate path.

The scorer's state follows from two topics: results and labels. It writes its counts, with the
offsets up to which it has counted, as one record, from which a restart resumes. It commits the
offsets of the oldest answer and label that it still keeps, so a restart reads these again. A pair
of which both records lie below the counted offsets is not counted again. The labels topic has one
partition, so on a second reading the first label of an id is first again, and later ones count as
repetitions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from control.estimation.accuracy.accuracy_drift import (
    BRANCHES,
    STEPS,
    accuracies_to_plan_by,
    all_measured,
)
from operators.calls.user_frames import error_sentence
from operators.dead_letter import dead_letter
from operators.join import Accuracies, Combine, as_list
from operators.outcomes import outcome_of
from operators.plan_follower import PlanFollower
from operators.record_size import brief, record_size
from operators.reporter import Reporter
from operators.scoring.label_join import Place, WaitingRoom
from operators.scoring.score_sums import ExpectedOf, Measurements, unknown
from operators.scoring.shadow_pairs import COUNTS as SHADOW_COUNTS
from operators.scoring.shadow_pairs import Pair, ShadowPairs
from schemas.codec.json_form import json_value
from schemas.effects import (
    ACCURACY,
    LABELS,
    RESULTS,
    SHADOWS,
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
from schemas.pipeline import Labels, Pipeline
from schemas.records import (
    ANSWERED,
    Answer,
    Garbled,
    Label,
    MeasuredAccuracy,
    Origin,
    Plan,
    Value,
    Work,
)

# A judge of (result, truth): (parts right, parts), a share from 0 to 1, or right or wrong.
Judge = Callable[[Value, Value], Any]
MOST_PARTS = 100.0  # largest weight of one query in the accuracy
WRITE_S = 2.0  # interval between two records of the counts
SESSION_COUNTS = ("labels", "score", "squares")  # by session; scores are 0 to 1
UNKNOWN: Accuracies = {}
COUNTS = ("labels", "scored", "repeated", "unreadable", "failed", "unmatched")


class Answered(Struct, frozen=True, gc=False):
    """The scorer's part of an answer. ``counted``: it was read before the last restart."""

    origin: Origin
    result: Value
    session: str
    path: str
    slo_class: str
    answered_s: float
    counted: bool


class Labelled(Struct, frozen=True, gc=False):
    """A label that waits; ``counted`` as in ``Answered``."""

    label: Label
    counted: bool


class Scorer:
    """The scorer node.

    ``judge`` compares a result with a truth; ``earlier`` is the last record of an earlier
    incarnation. The node reads shadows from ``shadow_slots`` and joins their branches with
    ``combine``; ``accuracies`` give the expected accuracy of their paths. ``expected`` gives the
    profile's accuracy of a path's text. Reports contain the measured accuracies while one of them
    lies outside the interval of its profile.
    """

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        labels: Labels,
        judge: Judge,
        *,
        incarnation: float,
        answer_slots: Sequence[int],
        label_slots: Sequence[int],
        earlier: MeasuredAccuracy | None = None,
        shadow_slots: Sequence[int] = (),
        combine: Combine = as_list,
        accuracies: Accuracies = UNKNOWN,
        expected: ExpectedOf = unknown,
    ) -> None:
        self._pipeline = pipeline
        self._judge = judge
        self._most_truth = labels.most_truth_bytes
        self._slots = {RESULTS: tuple(answer_slots), LABELS: tuple(label_slots)}
        if shadow_slots:
            self._slots[SHADOWS] = tuple(shadow_slots)
        self._pairs = ShadowPairs(pipeline, labels, combine, accuracies)
        self._measured = Measurements(expected)
        self._plans = PlanFollower(pipeline.name)
        self._answers = WaitingRoom[Answered](labels.memory_bytes // 2, labels.within_s)
        self._labels = WaitingRoom[Labelled](labels.memory_bytes // 2, labels.within_s)
        self._sessions: set[str] = set()  # with counts
        self._trouble = ""
        self._counted = {topic: dict[int, int]() for topic in (RESULTS, LABELS, SHADOWS)}
        self._reporter = Reporter(name, "scorer", pipeline, incarnation)
        self._counts = self._reporter.counts
        self._counts.update(dict.fromkeys(COUNTS, 0))
        if earlier is not None:
            self._resume(earlier)
        self._upto = {topic: dict(by_slot) for topic, by_slot in self._counted.items()}
        self._written: MeasuredAccuracy | None = earlier
        self._write_s = float("-inf")

    def _resume(self, earlier: MeasuredAccuracy) -> None:
        self._measured.resume(earlier)
        self._counts.update({name: earlier.counts.get(name, 0) for name in COUNTS})
        self._trouble = earlier.trouble
        self._counted = {
            RESULTS: {int(slot): upto for slot, upto in earlier.answers_upto.items()},
            LABELS: {int(slot): upto for slot, upto in earlier.labels_upto.items()},
            SHADOWS: {int(slot): upto for slot, upto in earlier.shadows_upto.items()},
        }
        self._pairs.counts.update(
            {name: earlier.shadow_counts.get(name, 0) for name in SHADOW_COUNTS}
        )

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Arrived:
            record = event.record
            if type(record) is Answer:
                self._answer(event, record, now)
            elif type(record) is Label:
                self._label(event, record, now)
            elif type(record) is Work:
                self._shadow(event, record, now)
            elif type(record) is Garbled:
                return self._garbled(event, record, now)
            elif type(record) is Plan and self._plans.accept(record):
                self._reporter.follow(record.epoch, NodeState.READY)
                self._forget_sessions(frozenset([each.session for each in record.sessions]))
            return []
        if type(event) is Woke:
            return self._woke(now)
        return []

    # ------------------------------------------------------------------ arrivals

    def _answer(self, event: Arrived, answer: Answer, now: float) -> None:
        counted = self._pass(event)
        if outcome_of(answer) != ANSWERED:
            return
        kept = Answered(
            answer.origin, answer.result, answer.session, path_of(answer), answer.slo_class,
            answer.answered_s, counted,
        )  # fmt: skip
        self._answers.add(answer.id, kept, record_size(answer.result), _place(event, now))
        self._answers.expire(now)
        self._join(answer.id, _place(event, now), now)
        if not counted:
            self._compare(self._pairs.answered(answer, kept.path, _place(event, now), now))

    def _shadow(self, event: Arrived, work: Work, now: float) -> None:
        if not self._pass(event):
            self._compare(self._pairs.take(work, _place(event, now), now))
            self._judge_shadow(work.origin)

    def _label(self, event: Arrived, label: Label, now: float) -> None:
        counted = self._pass(event)
        if not counted:
            self._counts["labels"] += 1
        size = record_size(label.truth)
        if size > self._most_truth:
            self._complain(f"a truth of {size} bytes; at most {self._most_truth} are kept", counted)
            return
        if label.id in self._labels:
            self._counts["repeated"] += not counted
            return
        self._labels.add(label.id, Labelled(label, counted), size, _place(event, now))
        self._expire(now)
        self._join(label.id, _place(event, now), now)

    def _garbled(self, event: Arrived, garbled: Garbled, now: float) -> list[Effect]:
        if self._pass(event) or event.topic != LABELS:
            return []
        self._counts["labels"] += 1
        self._counts["unreadable"] += 1
        return [dead_letter(event, garbled, self._reporter.name, now)]

    def _pass(self, event: Arrived) -> bool:
        """Return whether the record is counted already; record its place."""
        upto = self._upto[event.topic]
        upto[event.slot] = max(upto.get(event.slot, 0), event.offset + 1)
        return event.offset < self._counted[event.topic].get(event.slot, 0)

    def _expire(self, now: float) -> None:
        self._counts["unmatched"] += len(self._labels.expire(now))

    # ------------------------------------------------------------------ scores

    def _join(self, name: str, place: Place, now: float) -> None:
        if not (self._answers.waits(name) and self._labels.waits(name)):
            return
        answered, labelled = self._answers.take(name), self._labels.take(name)
        if answered.counted and labelled.counted:
            return
        try:
            right, of = score(answered.result, labelled.label, self._judge)
        except BaseException as error:  # noqa: BLE001 - a user's function
            self._complain(f"the label of {name!r}: {error_sentence(error)}", counted=False)
            return
        self._counts["scored"] += 1
        if answered.session:
            self._count_session(answered.session, right / of)
        self._measured.labelled(answered.path, answered.slo_class, answered.answered_s, right, of)
        # The truth also judges the result of the query's shadow.
        if labelled.label.of is None:
            self._pairs.labelled(answered.origin, labelled.label, place, now)
            self._judge_shadow(answered.origin)

    def _judge_shadow(self, origin: Origin) -> None:
        """Count the result of a query's shadow by the query's label, among the newest only."""
        found = self._pairs.judged(origin)
        if found is None:
            return
        shadow, label = found
        try:
            right, of = score(shadow.result, label, self._judge)
        except BaseException:  # noqa: BLE001 - a user's function; reported for the answer
            return
        self._measured.note(shadow.path, shadow.answered_s, right, of)

    def _compare(self, pair: Pair | None) -> None:
        """Count whether an answer equals the result of its query's shadow."""
        if pair is None:
            return
        ours, reference = pair
        truth = Label(id=ours.id, truth=reference.result)
        try:
            right, of = score(ours.result, truth, self._judge)
        except BaseException as error:  # noqa: BLE001 - a user's function
            self._pairs.counts["failed"] += 1
            self._trouble = brief(f"the shadow of {ours.id!r}: {error_sentence(error)}")
            return
        self._measured.compared(
            ours.path, ours.slo_class, ours.answered_s, right, of, reference.path,
            reference.accuracy,
        )  # fmt: skip

    def _count_session(self, session: str, score: float) -> None:
        """Count a score by its session, for the control app (control/sessions/score_drift.py)."""
        self._sessions.add(session)
        for what, amount in zip(SESSION_COUNTS, (1.0, score, score * score), strict=True):
            self._reporter.count(f"session/{session}/{what}", amount)

    def _forget_sessions(self, open_ones: frozenset[str]) -> None:
        """Drop the counts of sessions that have closed."""
        for session in self._sessions - open_ones:
            for what in SESSION_COUNTS:
                self._counts.pop(f"session/{session}/{what}", None)
        self._sessions &= open_ones

    def _complain(self, trouble: str, counted: bool) -> None:
        if not counted:
            self._counts["failed"] += 1
            self._trouble = brief(trouble)

    # ------------------------------------------------------------------ time

    def _woke(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if not self._plans.started:
            effects = [
                *self._plans.start(),
                *(Assign(topic, slots) for topic, slots in self._slots.items()),
            ]
        if now >= self._write_s:
            self._write_s = now + WRITE_S
            effects += [*self._write(now), Wake(self._write_s)]
        return [*effects, *self._reporter.due(now)]

    def _write(self, now: float) -> list[Effect]:
        """Return the record of the counts, followed by the commits; [] if nothing changed."""
        self._answers.expire(now)
        self._expire(now)
        found = self._record(now)
        if self._written is not None and _same(found, self._written):
            return []
        self._written = found
        self._reporter.measured = accuracies_to_plan_by(all_measured(found.recent))
        commits = [self._done(RESULTS, self._answers), self._done(LABELS, self._labels)]
        if SHADOWS in self._slots:
            commits.append(self._done(SHADOWS))
        return [Send(ACCURACY, found, 0, self._pipeline.name), *commits]

    def _done(self, topic: str, room: "WaitingRoom[Any] | None" = None) -> Effect:
        upto = self._upto[topic]
        kept = room.oldest(upto) if room is not None else {}
        done = tuple(Done(slot, kept.get(slot, upto[slot])) for slot in sorted(upto))
        return Assign(topic, done=done)

    def _record(self, now: float) -> MeasuredAccuracy:
        return MeasuredAccuracy(
            pipeline=self._pipeline.name,
            at_s=now,
            rows=self._measured.rows(),
            counts={name: int(self._counts[name]) for name in COUNTS},
            answers_upto={str(slot): upto for slot, upto in sorted(self._upto[RESULTS].items())},
            labels_upto={str(slot): upto for slot, upto in sorted(self._upto[LABELS].items())},
            shadows=self._measured.shadows(),
            shadow_counts=dict(self._pairs.counts),
            shadows_upto={str(slot): upto for slot, upto in sorted(self._upto[SHADOWS].items())},
            recent=self._measured.recent(now),
            trouble=self._trouble,
        )


def score(result: Value, label: Label, judge: Judge) -> tuple[float, float]:
    """Return (parts right, parts) of a result by its label.

    A result of more than ``MOST_PARTS`` parts counts as ``MOST_PARTS`` with the same share of right
    ones, so that no query outweighs all others.

    Raises what ``judge`` raises, and ``ValueError`` for an invalid judgement.
    """
    if label.right is not None and label.of is not None:
        right, of = label.right, label.of  # checked by the codec
    else:
        right, of = parts_of(judge(result, label.truth))
    return (right, of) if of <= MOST_PARTS else (right / of * MOST_PARTS, MOST_PARTS)


def parts_of(judged: Any) -> tuple[float, float]:
    """Return (parts right, parts) of what a scorer returned; raise ``ValueError`` if invalid."""
    right, of = judged if isinstance(judged, (tuple, list)) else (float(judged), 1.0)
    right, of = float(right), float(of)
    if not (0.0 <= right <= of and 0.0 < of <= 1e9 and math.isfinite(of)):
        raise ValueError(f"{right:g} right of {of:g} parts; write 0 <= right <= of, of above 0")
    return right, of


def exact_match(result: Value, truth: Value) -> bool:
    """Return whether a result equals its truth in JSON form: bytes as base64, arrays as objects."""
    return bool(json_value(result) == json_value(truth))


def path_of(answer: Answer) -> str:
    """Return the distinct variant paths of an answer's branches, sorted, as one text."""
    paths = {STEPS.join([hop.key for hop in path]) for path in answer.paths}
    return BRANCHES.join(sorted(paths))


def _place(event: Arrived, now: float) -> Place:
    # A producer may stamp a record with any time; one in the future would never expire.
    return Place(event.slot, event.offset, min(event.at_s, now))


def _same(one: MeasuredAccuracy, other: MeasuredAccuracy) -> bool:
    return structs.replace(one, at_s=0.0, trouble="") == structs.replace(
        other, at_s=0.0, trouble=""
    )
