"""Which queries are past saving?

When a batch is about to run, each of its items is told by when the batch must have ended for the
item's sake; an item whose batch would end later is dropped before it costs anything. Rules by
name, with d the deadline, e when the item came to the task (its last hop's end, at the root its
creation), B the task's budget, R the least that the tasks behind it take:

    none            never
    deadline        d
    last-task       d at a last task, elsewhere never            (Loki, section 5.2, mechanism 2)
    per-task        e + B                                        (mechanism 1)
    reroute-paper   as last-task; late items look for a faster way on (``rerouting.py``)
    reroute         d - R; late items look for a way on that is still in time

The paper judges per-task dropping when the batch has ended; that is known when it begins, and
nothing is computed for nobody. Its opportunistic rerouting says nothing of last tasks, where there
is no way on; without a rule there late items would push all behind them over the deadline.

A task's budget is what its batch takes at the plan's size divided by the compute share, plus the
hops since the task before, or since its creation at the root: the plan left as much for queues.
It is never below ``LEAST_S``, which the authors' code gives its dummy tasks: hops are not that
even. ``bare`` is the paper's literal one, the batch alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """A task as a worker of it sees it: its budget, and the least that is behind it (0: last)."""

    budget_s: float
    rest_s: float
    last: bool


# (the task, when the item came to it, its deadline) -> when its batch must have ended
MustEnd = Callable[[TaskTiming, float, float], float]


@dataclass(frozen=True, slots=True)
class DropRule:
    """A way to drop. ``reroutes`` names how late items look for another slot; "": they do not."""

    must_end: MustEnd
    reroutes: str = ""


def _never(stage: TaskTiming, entered_s: float, deadline_s: float) -> float:
    return inf


def _deadline(stage: TaskTiming, entered_s: float, deadline_s: float) -> float:
    return deadline_s


def _last_task(stage: TaskTiming, entered_s: float, deadline_s: float) -> float:
    return deadline_s if stage.last else inf


def _per_task(stage: TaskTiming, entered_s: float, deadline_s: float) -> float:
    return entered_s + stage.budget_s


def _in_time(stage: TaskTiming, entered_s: float, deadline_s: float) -> float:
    return deadline_s - stage.rest_s


GAP, IN_TIME = "gap", "in-time"  # of rerouting.WAYS

RULES: Mapping[str, DropRule] = {
    "none": DropRule(_never),
    "deadline": DropRule(_deadline),
    "last-task": DropRule(_last_task),
    "per-task": DropRule(_per_task),
    "reroute-paper": DropRule(_last_task, GAP),
    "reroute": DropRule(_in_time, IN_TIME),
}


LEAST_S = 0.005


def _shared(latency_s: float, compute_share: float, hops_s: float) -> float:
    return max(LEAST_S, latency_s / compute_share + hops_s)


def _bare(latency_s: float, compute_share: float, hops_s: float) -> float:
    return latency_s


# (seconds of a batch at the plan's size, compute share, seconds of hops) -> the task's budget
BUDGETS: Mapping[str, Callable[[float, float, float], float]] = {"shared": _shared, "bare": _bare}
