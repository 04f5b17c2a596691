"""What recorded batches on a part of a CPU's time were charged, and how long each waited for it.

A worker reports the CPU seconds that it is charged for its batches, by variant (``charged_s`` in
``operators/reporter.py``); answers have the batches. A batch waits until its worker has paid for
earlier ones (headrace/simulation/paid_batches.py).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

from headrace.roles.workers.device_time import DeviceTime
from schemas.count_names import CHARGED_S, count_name
from schemas.records import Report
from schemas.variant_id import variant_id

ROUNDS = 20  # the waits and what is charged depend on each other; a few rounds suffice


class RecordedRun(NamedTuple):
    """A batch as its worker saw it, s; ``median_s`` is the profile's, the least that it ran."""

    worker: str
    task: str
    started_s: float
    finished_s: float
    median_s: float


@dataclass(frozen=True, slots=True)
class Payments:
    """The wait of each batch, s, and the most that a batch of a task is charged, in medians."""

    waits_s: list[float]
    charged: dict[str, float]


def payments(
    ran: Sequence[RecordedRun], rates: Mapping[str, float], reports: Iterable[Report]
) -> Payments:
    """Return the seconds that each batch waited before it ran; ``ran`` is by worker and time.

    A batch is charged the seconds that it ran, but no more than a multiple of its median: a batch
    that waits for a core uses none. The multiple is that by which all batches of a task together
    are charged what their workers reported. Without reports a batch is charged all that it ran.
    """
    known = _reported(ran, rates, reports)
    waits_s, charged = _waits_s(ran, rates, {}), dict.fromkeys(known, inf)
    if known:
        waits_s = [0.0] * len(ran)
    for _ in range(ROUNDS if known else 0):
        charged = {task: _most(each, ran, waits_s) for task, each in known.items()}
        before_s, waits_s = waits_s, _waits_s(ran, rates, charged)
        if waits_s == before_s:
            break
    return Payments(waits_s, charged)


class _Reported(NamedTuple):
    """The CPU seconds of some batches, by their numbers."""

    seconds: float
    batches: list[int]


def _reported(
    ran: Sequence[RecordedRun], rates: Mapping[str, float], reports: Iterable[Report]
) -> dict[str, _Reported]:
    """Return what was charged, by task: between two reports of a worker, the first and the last
    within the time of its known batches."""
    sent: dict[str, list[Report]] = {}
    for report in sorted(reports, key=attrgetter("incarnation", "sent_s")):
        if report.node in rates:
            sent.setdefault(report.node, []).append(report)
    seconds: dict[str, float] = {}
    batches: dict[str, list[int]] = {}
    for worker, found in sent.items():
        own = [at for at, each in enumerate(ran) if each.worker == worker]
        if not own:
            continue
        ends_s = [ran[at].finished_s for at in own]
        # A restarted worker counts from 0: its last life counts.
        found = [each for each in found if each.incarnation == found[-1].incarnation]
        times_s = [each.sent_s for each in found]
        first, last = bisect_left(times_s, ends_s[0]), bisect_right(times_s, ends_s[-1]) - 1
        if first >= last:
            continue
        for at in own[bisect_right(ends_s, times_s[first]) : bisect_right(ends_s, times_s[last])]:
            batches.setdefault(ran[at].task, []).append(at)
        before, after = _by_task(found[first]), _by_task(found[last])
        for task, total_s in after.items():
            seconds[task] = seconds.get(task, 0.0) + total_s - before.get(task, 0.0)
    return {task: _Reported(seconds.get(task, 0.0), each) for task, each in batches.items()}


def _by_task(report: Report) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in report.counts.items():
        what, variant = count_name(name)
        if what == CHARGED_S:
            task = variant_id(variant).task
            found[task] = found.get(task, 0.0) + seconds
    return found


def _most(known: _Reported, ran: Sequence[RecordedRun], waits_s: Sequence[float]) -> float:
    """Return the multiple of its median that a batch is charged at most, so that all are charged
    ``known.seconds``; infinite if they ran no longer than that."""
    left_s, medians_s = known.seconds, sum(ran[at].median_s for at in known.batches)
    for part, median_s in sorted(
        ((each.finished_s - each.started_s - waits_s[at]) / each.median_s, each.median_s)
        for at, each in ((at, ran[at]) for at in known.batches)
    ):
        if part * medians_s >= left_s:
            return max(left_s, 0.0) / medians_s
        left_s -= part * median_s
        medians_s -= median_s
    return inf


def _waits_s(
    ran: Iterable[RecordedRun], rates: Mapping[str, float], charged: Mapping[str, float]
) -> list[float]:
    accounts: dict[str, DeviceTime] = {}
    found = []
    for worker, task, started_s, finished_s, median_s in ran:
        if worker not in rates:
            found.append(0.0)
            continue
        account = accounts.setdefault(worker, DeviceTime(1, rates[worker], started_s))
        longest_s = max(0.0, finished_s - started_s - median_s)
        wait_s = min(account.wait_s(0, started_s), longest_s)
        account.begin(0, started_s + wait_s)
        most_s = charged.get(task, inf) * median_s
        account.end(0, min(finished_s - started_s - wait_s, most_s), finished_s)
        found.append(wait_s)
    return found
