"""Join: collect a query's branches and build its one answer.

A query is complete when the credit of its ended branches adds up to ``FULL_CREDIT``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from operators.calls.own_values import immutable, own_value
from operators.calls.user_frames import error_sentence, with_frames
from operators.drop_reasons import EGRESS_TASK, dropped, unfinished
from operators.record_size import brief, excess
from schemas.codec.json_form import value_to_json
from schemas.codec.values import pack
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    FULL_CREDIT,
    REFUSED,
    Answer,
    End,
    Item,
    Noticed,
    Origin,
    Trace,
    Value,
    Work,
)
from schemas.variant_id import variant_key

Held = tuple[int, int]  # slot, offset
# A function from the outputs of leaf tasks (None: missing), and the task of each, to the result.
Combine = Callable[[list[Value], list[str]], Value]
# By "task/variant"; for measured whole paths also by "task/variant > task/variant"...
Accuracies = Mapping[str, float]

VariantPath = tuple[tuple[str, str], ...]  # (task, variant)

MOST_CRASHES = 2  # after ending egress this often, a query fails without combine
MOST_PATHS = 4096  # bounds the cache: a plan has tens, but records may name any
FEW = 1000  # fewer plain values always fit a record
_ALWAYS_FIT = frozenset((type(None), bool, float))
_ALWAYS_PACKED = _ALWAYS_FIT | {bytes}  # if not too large
_UNLISTED = frozenset((object,))
_NOTHING = End(ANSWERED, "")  # is missing of a complete query
_VALUE, _PATH, _END = attrgetter("value"), attrgetter("path"), attrgetter("end")
_TASK = attrgetter("end.task")  # of an item that has ended
VARIANT = attrgetter("task", "variant")  # of a hop


class CombineJournal(Protocol):
    """A crash journal of ``combine``: the queries in progress, and crash counts by query."""

    strikes: Mapping[str, int]

    def began(self, items: Sequence[str]) -> None: ...
    def ended(self) -> None: ...


class _Uncombined(Exception):
    """``combine`` gave no result that can be sent."""


class OpenQuery:
    """A query that egress awaits; ``credit`` is the sum over its ended branches."""

    __slots__ = (
        "branches", "created_s", "credit", "deadline_s", "epoch", "held", "id", "origin", "session",
        "slo_class", "trace",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        origin: Origin,
        created_s: float,
        deadline_s: float,
        slo_class: str = "",
        session: str = "",
        trace: Trace | None = None,
    ) -> None:
        self.id = name
        self.origin = origin
        self.created_s = created_s
        self.deadline_s = deadline_s
        self.slo_class = slo_class
        self.session = session
        self.trace = trace
        self.credit = 0
        self.epoch = 0
        self.branches: dict[tuple[int, ...], Item] = {}
        self.held: list[Held] = []  # the query's uncommitted records on the outputs topic

    def take(self, work: Work) -> bool:
        """Count the work's branches, each once; True when the query is complete."""
        if work.epoch > self.epoch:
            self.epoch = work.epoch
        branches = self.branches
        for item in work.items:
            branch = item.branch
            if branch not in branches:
                branches[branch] = item
                self.credit += item.credit
        return self.credit >= FULL_CREDIT


class Join:
    """Join: builds the answers to a pipeline's queries.

    ``accuracies`` are those of variants and whole paths. With a ``journal``, a query fails without
    ``combine`` once it has ended ``MOST_CRASHES`` processes: by a crash, by a hang that the
    supervisor killed, or as it took longer than egress may stand still.
    """

    __slots__ = ("_along", "_combine", "_in_json", "_inner", "_journal", "_pipeline")

    def __init__(
        self,
        pipeline: Pipeline,
        combine: Combine,
        accuracies: Accuracies,
        journal: CombineJournal | None = None,
    ) -> None:
        self._pipeline, self._combine, self._journal = pipeline, combine, journal
        self._in_json = pipeline.results == "json"
        self._inner = frozenset([task.name for task in pipeline.tasks if task.children])
        self._along = path_accuracy(accuracies)

    def answer(self, query: OpenQuery, now: float) -> Answer:
        """Return the answer to a query, complete or not.

        All branches answered: ``answered``. Some missing: ``answered`` and incomplete, or the
        outcome of the first bad branch if the pipeline file sets ``incomplete: dropped``. None
        answered: the outcome of the first bad branch. A combine function that raises, calls
        ``sys.exit`` or has ended earlier processes with the query: ``failed``.
        """
        branches = query.branches
        items = list(map(branches.__getitem__, sorted(branches)))
        ends = tuple(filter(None, map(_END, items)))
        bad = _worst(ends, query, self._pipeline)
        if bad is not None and (self._pipeline.incomplete == DROPPED or not _any_good(ends)):
            return _ended(query, bad, items, ends, now)
        leaves = self._leaves(items)
        try:
            result = self._combined(query, leaves)
        except _Uncombined as error:
            end = End(FAILED, EGRESS_TASK, brief(str(error)), ReasonCode.COMBINE)
            return _ended(query, end, items, ends, now)
        missing = bad or _NOTHING
        return Answer(
            id=query.id, origin=query.origin, outcome=ANSWERED, reason=missing.reason,
            task=missing.task, late=now > query.deadline_s, incomplete=bad is not None,
            result=result, created_s=query.created_s, deadline_s=query.deadline_s, answered_s=now,
            epoch=query.epoch, expected_accuracy=self._expected(leaves),
            paths=tuple(map(_PATH, items)), ends=ends,
            reason_code=missing.reason_code, slo_class=query.slo_class, session=query.session,
        )  # fmt: skip

    def _leaves(self, items: list[Item]) -> list[Item]:
        """Return the items with a place in the result: leaves' answers, and missing children."""
        leaves: list[Item] = []
        for item in items:
            end = item.end
            if end is None:
                continue
            # Records of an older pipeline file may name a removed task.
            placed = item.branch if end.outcome != ANSWERED else end.task not in self._inner
            if placed:
                leaves.append(item)
        return leaves

    def _combined(self, query: OpenQuery, leaves: list[Item]) -> Value:
        """Return the result of ``combine``, named in the journal while it runs."""
        if self._journal is not None:
            self._begin(query, self._journal)
        try:
            result = self._combine(list(map(_VALUE, leaves)), list(map(_TASK, leaves)))
            if self._pipeline.combine:  # its next call may change what it returned
                result = own_value(result, immutable)
            check_sendable(result)
            if self._in_json:
                value_to_json(result)  # else the driver would fail a query that counts as answered
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, and what libraries in Rust raise
            self._unmark()
            raise _Uncombined(_not_sent(error, self._pipeline)) from error
        self._unmark()
        return result

    def _begin(self, query: OpenQuery, journal: CombineJournal) -> None:
        """Name the query in the journal; raise ``_Uncombined`` if it ended earlier processes."""
        # With its time: on a recreated topic the origin is another query's.
        key = f"{query.origin.partition}/{query.origin.offset}/{query.created_s}"
        crashes = journal.strikes.get(key, 0)
        if crashes >= MOST_CRASHES:
            raise _Uncombined(
                f"{self._pipeline.combine} ended the process of egress {crashes} times with this "
                "query: it crashed or took too long"
            )
        journal.began([key])

    def _unmark(self) -> None:
        if self._journal is not None:
            self._journal.ended()

    def _expected(self, leaves: list[Item]) -> float | None:
        """Return the mean accuracy of the answered leaves' paths, over those that are known."""
        total, count = 0.0, 0
        for leaf in leaves:
            if leaf.end is None or leaf.end.outcome != ANSWERED:
                continue
            accuracy = self._along(tuple(map(VARIANT, leaf.path)))
            if accuracy is not None:
                total, count = total + accuracy, count + 1
        return total / count if count else None


def _not_sent(error: BaseException, pipeline: Pipeline) -> str:
    """Return why a result cannot be sent: the error of ``combine``, or that of the outputs."""
    if pipeline.combine:
        return with_frames(f"{pipeline.combine} raised {error_sentence(error)}", error)
    return f"the outputs of the leaf tasks cannot be sent as a list: {error_sentence(error)}"


def check_sendable(result: Value) -> None:
    """Raise ``ValueError`` for a result that cannot be sent, which would later end egress."""
    kinds = set(map(type, result)) if type(result) is list else _UNLISTED
    if kinds <= _ALWAYS_FIT and len(result) < FEW:  # type: ignore[arg-type]
        return
    if not kinds <= _ALWAYS_PACKED:
        pack(result)
    too_large = excess(result)
    if too_large:
        raise ValueError(too_large)


def refused_answer(noticed: Noticed, origin: Origin, now: float) -> Answer:
    """Return the answer to a query that ingress refused."""
    return Answer(
        id=noticed.query_id, origin=origin, outcome=REFUSED, reason=noticed.refused,
        task="ingress", created_s=noticed.created_s, deadline_s=noticed.deadline_s,
        answered_s=now, reason_code=noticed.reason_code, slo_class=noticed.slo_class,
        session=noticed.session,
    )  # fmt: skip


def _ended(
    query: OpenQuery, bad: End, items: list[Item], ends: tuple[End, ...], now: float
) -> Answer:
    return Answer(
        id=query.id, origin=query.origin, outcome=bad.outcome, reason=bad.reason, task=bad.task,
        late=False, incomplete=False, created_s=query.created_s, deadline_s=query.deadline_s,
        answered_s=now, epoch=query.epoch, paths=tuple(map(_PATH, items)), ends=ends,
        reason_code=bad.reason_code, slo_class=query.slo_class, session=query.session,
    )  # fmt: skip


def _any_good(ends: tuple[End, ...]) -> bool:
    return any(end.outcome == ANSWERED for end in ends)


def _worst(ends: tuple[End, ...], query: OpenQuery, pipeline: Pipeline) -> End | None:
    """Return the end of the first failed branch, else of the first dropped one; ``unfinished`` if
    branches are missing."""
    worst: End | None = None
    for end in ends:
        if end.outcome == FAILED:
            return end
        if worst is None and end.outcome == DROPPED:
            worst = end
    if worst is not None or query.credit >= FULL_CREDIT:
        return worst
    waited_s = query.deadline_s + pipeline.grace_s - query.created_s
    return dropped("", unfinished(waited_s))


def path_accuracy(accuracies: Accuracies) -> Callable[[VariantPath], float | None]:
    """Return a cached ``along`` for (task, variant) pairs, of at most ``MOST_PATHS`` paths."""

    @lru_cache(MOST_PATHS)
    def accuracy(path: VariantPath) -> float | None:
        return along(tuple([variant_key(*hop) for hop in path]), accuracies)

    return accuracy


def along(path: tuple[str, ...], accuracies: Accuracies) -> float | None:
    """Return the accuracy of a path of "task/variant" keys: the measured one, else the product of
    the variants', or None if one of them is unknown."""
    measured = accuracies.get(" > ".join(path))
    if measured is not None:
        return measured
    product = 1.0
    for key in path:
        own = accuracies.get(key)
        if own is None:
            return None
        product *= own
    return product


def as_list(outputs: list[Value], tasks: Sequence[str] = ()) -> Any:
    """Return the leaf outputs in order, the result of a pipeline without a combine function.

    Arrays within a list or dict become lists of numbers, so that both hold JSON values only; an
    output that is an array itself stays an array.
    """
    return [_listed(each) if isinstance(each, (list, tuple, dict)) else each for each in outputs]


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_listed(each) for each in value]
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value
