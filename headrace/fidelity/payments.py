"""What recorded batches on a part of a CPU's time were charged, and how long each waited for it.

A worker reports the CPU seconds that it is charged for its batches, by variant (``charged_s`` in
``operators/reporter.py``); answers have the batches. A batch waits until its worker has paid for
earlier ones (headrace/simulation/paid_batches.py).

Batches are charged by how many devices are busy, as a batch among others may find warm caches or
share them. Two reports of a worker have a few batches between them, which differ in this from those
of other reports, so that all reports together tell what each kind is charged.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from operator import attrgetter
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from headrace.roles.workers.device_time import SAVED_S
from schemas.count_names import CHARGED_S, count_name
from schemas.records import Report
from schemas.variant_id import variant_id

FEWEST = 100  # batches of a level, or they join the nearest one that has as many
ROUNDS = 20  # the waits and what is charged depend on each other; a few rounds suffice
SURELY = 1.5  # of what batches are charged at most on average, any one is charged less than this


class RecordedRun(NamedTuple):
    """A batch as a worker that pays saw it, s; ``median_s`` is the profile's, the least that it
    ran; ``level``: how many devices were busy as it began."""

    worker: str
    task: str
    started_s: float
    finished_s: float
    median_s: float
    level: int = 0


Kind = tuple[str, int]  # task, level


@dataclass(frozen=True, slots=True)
class Payments:
    """The wait of each batch, s, whether its worker surely owed nothing then, and the most that a
    batch of a task is charged at a level, in medians."""

    waits_s: list[float]
    free: list[bool]
    charged: dict[str, dict[int, float]]


def payments(
    ran: Sequence[RecordedRun], rates: Mapping[str, float], reports: Iterable[Report]
) -> Payments:
    """Return the seconds that each batch waited before it ran; ``ran`` is by worker and time, and
    ``rates`` has the rate of every worker.

    A batch is charged the seconds that it ran, but no more than a multiple of its median: a batch
    that waits for a core uses none. The multiple is that by which all batches of a task and level
    together are charged what their workers reported. Without reports a batch is charged all that
    it ran.

    What a single batch is charged is not known, so that a worker's debt is known only from above.
    If it may owe something, its batch is taken to have run as long as is usual for those before
    which it surely owed nothing, and to have waited for the rest.
    """
    kinds = _kinds(ran)
    known = _reported(ran, kinds, rates, reports)
    found = Payments([0.0] * len(ran), [False] * len(ran), {})
    for _ in range(ROUNDS):
        charged = {kind: _most(each, ran, found) for kind, each in known.items()}
        before, found = found, _paid(ran, kinds, rates, charged, _usual(ran, found.free))
        if found == before:
            break
    return found


def _kinds(ran: Sequence[RecordedRun]) -> list[Kind]:
    """Return the task of each batch, and its level or the nearest one with ``FEWEST`` batches, or
    with the most of them if there is none; of two equally near, the lower."""
    counts = Counter((each.task, each.level) for each in ran)
    of: dict[Kind, int] = {}
    for task, level in counts:
        here = {at: count for (name, at), count in counts.items() if name == task}
        least = min(FEWEST, max(here.values()))
        enough = [at for at, count in here.items() if count >= least]
        of[task, level] = min(enough, key=lambda at: (abs(at - level), at))
    return [(each.task, of[each.task, each.level]) for each in ran]


class _Reported(NamedTuple):
    """The CPU seconds of some batches, by their numbers."""

    seconds: float
    batches: list[int]


@dataclass(slots=True)
class _Spans:
    """The times between two successive reports: what a task's batches were charged in each, s, and
    the numbers of those that ended in it."""

    seconds: list[float] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)


def _reported(
    ran: Sequence[RecordedRun], kinds: Sequence[Kind], rates: Mapping[str, float],
    reports: Iterable[Report],
) -> dict[Kind, _Reported]:  # fmt: skip
    """Return what the batches of each kind were charged together: least squares over the spans
    divide what all of a task were."""
    found: dict[Kind, _Reported] = {}
    for spans in _spans(ran, rates, reports).values():
        every = sorted({at for each in spans.batches for at in each})
        if not every:
            continue
        own = sorted({kinds[at] for at in every})
        medians_s = np.zeros((len(spans.batches), len(own)))
        for row, each in enumerate(spans.batches):
            for at in each:
                medians_s[row, own.index(kinds[at])] += ran[at].median_s
        parts = nnls(medians_s, np.array(spans.seconds))[0] * medians_s.sum(axis=0)
        whole = parts * (sum(spans.seconds) / total_s if (total_s := parts.sum()) > 0 else 0.0)
        for kind, seconds in zip(own, whole.tolist(), strict=True):
            found[kind] = _Reported(seconds, [at for at in every if kinds[at] == kind])
    return found


def _spans(
    ran: Sequence[RecordedRun], rates: Mapping[str, float], reports: Iterable[Report]
) -> dict[str, _Spans]:
    """Return the spans by task, of reports within the time of their worker's known batches."""
    sent: dict[str, list[Report]] = {}
    for report in sorted(reports, key=attrgetter("incarnation", "sent_s")):
        if report.node in rates:
            sent.setdefault(report.node, []).append(report)
    spans: dict[str, _Spans] = {}
    for worker, every in sent.items():
        own = [at for at, each in enumerate(ran) if each.worker == worker]
        if not own:
            continue
        ends_s = [ran[at].finished_s for at in own]
        # A restarted worker counts from 0: its last life counts.
        last = every[-1].incarnation
        found = [x for x in every if x.incarnation == last and ends_s[0] <= x.sent_s <= ends_s[-1]]
        for before, after in pairwise(found):
            then, now = _by_task(before), _by_task(after)
            ended = own[bisect_right(ends_s, before.sent_s) : bisect_right(ends_s, after.sent_s)]
            for task in {*then, *now, *(ran[at].task for at in ended)}:
                span = spans.setdefault(task, _Spans())
                span.seconds.append(now.get(task, 0.0) - then.get(task, 0.0))
                span.batches.append([at for at in ended if ran[at].task == task])
    return spans


def _by_task(report: Report) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in report.counts.items():
        what, variant = count_name(name)
        if what == CHARGED_S:
            task = variant_id(variant).task
            found[task] = found.get(task, 0.0) + seconds
    return found


def _most(known: _Reported, ran: Sequence[RecordedRun], paid: Payments) -> float:
    """Return the multiple of its median that a batch is charged at most, so that all are charged
    ``known.seconds``; infinite if they ran no longer than that.

    Those of which it is not known how long they ran do so as the others.
    """
    runs = [at for at in known.batches if paid.free[at]] or known.batches
    medians_s = sum(ran[at].median_s for at in runs)
    left_s = known.seconds * medians_s / sum(ran[at].median_s for at in known.batches)
    for part, median_s in sorted(
        ((each.finished_s - each.started_s - paid.waits_s[at]) / each.median_s, each.median_s)
        for at, each in ((at, ran[at]) for at in runs)
    ):
        if part * medians_s >= left_s:
            return max(left_s, 0.0) / medians_s
        left_s -= part * median_s
        medians_s -= median_s
    return inf


def _usual(ran: Sequence[RecordedRun], free: Sequence[bool]) -> dict[str, float]:
    """Return how long batches run for which their worker paid nothing, in medians, by task; if
    there are none, the least that any took."""
    parts: dict[str, list[float]] = {}
    least: dict[str, float] = {}
    for each, paid in zip(ran, free, strict=True):
        part = (each.finished_s - each.started_s) / each.median_s
        least[each.task] = min(part, least.get(each.task, inf))
        if paid:
            parts.setdefault(each.task, []).append(part)
    usual = least | {task: median(found) for task, found in parts.items()}
    return {task: max(1.0, part) for task, part in usual.items()}


def _paid(
    ran: Iterable[RecordedRun], kinds: Iterable[Kind], rates: Mapping[str, float],
    charged: Mapping[Kind, float], usual: Mapping[str, float],
) -> Payments:  # fmt: skip
    debts: dict[str, _Debt] = {}
    waits_s, free = [], []
    for kind, (worker, task, started_s, finished_s, median_s, _) in zip(kinds, ran, strict=True):
        first = worker not in debts  # what it owed before is not known
        debt = debts.setdefault(worker, _Debt(rates[worker], started_s))
        most_s, took_s = debt.most_wait_s(started_s), finished_s - started_s
        wait_s = max(0.0, min(most_s, took_s - usual.get(task, 1.0) * median_s))
        used_s = min(took_s - wait_s, charged.get(kind, inf) * median_s)
        debt.ran(started_s + wait_s, finished_s, SURELY * used_s)
        waits_s.append(wait_s)
        free.append(most_s == 0.0 and not first)
    levels: dict[str, dict[int, float]] = {}
    for (task, level), most in charged.items():
        levels.setdefault(task, {})[level] = most
    return Payments(waits_s, free, levels)


class _Debt:
    """The most CPU seconds that a worker may owe. It owes nothing once a batch runs."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._at_s, self._most_s = rate, now, 0.0

    def most_wait_s(self, now: float) -> float:
        """Return the longest that a batch may wait which is asked for now."""
        return max(0.0, self._owed_s(now)) / self._rate

    def ran(self, began_s: float, ended_s: float, used_s: float) -> None:
        """Count a batch."""
        owed_s = min(0.0, self._owed_s(began_s)) + used_s - self._rate * (ended_s - began_s)
        self._most_s, self._at_s = max(-self._rate * SAVED_S, owed_s), ended_s

    def _owed_s(self, now: float) -> float:
        paid_s = self._rate * max(0.0, now - self._at_s)
        return max(-self._rate * SAVED_S, self._most_s - paid_s)
