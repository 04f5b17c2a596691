"""Drop rules: the latest end of an item's batch, beyond which the item is dropped.

When a batch is about to run, the rule gives for each item the time by which the batch must end; an
item whose batch would end later is dropped before it costs anything. Rules by name, with d the
deadline, e the item's arrival at the task (its last hop's end, at the root its creation), B the
task's budget, R the least time of the tasks behind it, S the time that most items were seen to take
from there to egress if others wait for the batch's places, else 0:

    none            never
    deadline        d - S
    last-task       d at a last task, elsewhere never            (Loki, section 5.2, mechanism 2)
    per-task        min(d, e + B)                                (mechanism 1)
    reroute-paper   as last-task; late items look for a faster way on (``rerouting.py``)
    reroute         d - max(R, S); late items look for a way on that is still in time

S counts only where items are left over: in a full queue the first ones have just enough time for
this batch, and those that fail behind it take the places of others that would be in time. Where
nobody waits, an item that may be in time costs none. Not from a paper.

The paper decides per-task dropping at the end of the batch; the end is known at its start, which
saves the computation. Its opportunistic rerouting defines nothing for last tasks, which have no way
on; without a rule there late items would push all items behind them over the deadline.

A task's budget is its batch's latency at the plan's size divided by the compute share (at least
``LEAST_S``, which the authors' code gives its dummy tasks: it has no hops, and ours vary), plus the
hops since the previous task, or since the query's creation at the root: the plan reserves the rest
for queues. ``bare`` is the paper's literal budget, the batch alone. Budgets divide the SLO that the
plan is made for, that of the tightest class that counts: a query with more time has more of it at
every task. With SLO classes the last task has no budget but the deadline: a batch of a slacker
class cannot be interrupted, so that the budget would drop what waited for it and is still in time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """The times that a drop rule goes by. The budget is for the tightest SLO ``slo_s``; ``rest_s``
    is the least time of the tasks behind (0: last task), ``seen_s`` that to egress, as seen where
    others wait for the batch's places (else 0)."""

    budget_s: float
    rest_s: float
    last: bool
    slo_s: float = inf
    classes: bool = False  # whether the pipeline has SLO classes
    seen_s: float = 0.0


# (timing of the task, the query's creation, the item's arrival, its deadline)
# -> latest end of its batch
MustEnd = Callable[[TaskTiming, float, float, float], float]


@dataclass(frozen=True, slots=True)
class DropRule:
    """A drop rule. ``reroutes`` names the rule by which late items find another slot; "": none.
    ``budgets``: it goes by the task's budget."""

    must_end: MustEnd
    reroutes: str = ""
    budgets: bool = False


def _never(stage: TaskTiming, created_s: float, entered_s: float, deadline_s: float) -> float:
    return inf


def _deadline(stage: TaskTiming, created_s: float, entered_s: float, deadline_s: float) -> float:
    return deadline_s - stage.seen_s


def _last_task(stage: TaskTiming, created_s: float, entered_s: float, deadline_s: float) -> float:
    return deadline_s if stage.last else inf


def _per_task(stage: TaskTiming, created_s: float, entered_s: float, deadline_s: float) -> float:
    if stage.last and stage.classes:
        return deadline_s
    longer = max(1.0, (deadline_s - created_s) / stage.slo_s)
    return min(deadline_s, entered_s + stage.budget_s * longer)


def _in_time(stage: TaskTiming, created_s: float, entered_s: float, deadline_s: float) -> float:
    return deadline_s - max(stage.rest_s, stage.seen_s)


GAP, IN_TIME = "gap", "in-time"  # keys of rerouting.WAYS

RULES: Mapping[str, DropRule] = {
    "none": DropRule(_never),
    "deadline": DropRule(_deadline),
    "last-task": DropRule(_last_task),
    "per-task": DropRule(_per_task, budgets=True),
    "reroute-paper": DropRule(_last_task, GAP),
    "reroute": DropRule(_in_time, IN_TIME),
}


LEAST_S = 0.005


def _shared(latency_s: float, compute_share: float, hops_s: float) -> float:
    return max(LEAST_S, latency_s / compute_share) + hops_s


def _bare(latency_s: float, compute_share: float, hops_s: float) -> float:
    return latency_s


# (seconds of a batch at the plan's size, compute share, seconds of hops) -> the task's budget
BUDGETS: Mapping[str, Callable[[float, float, float], float]] = {"shared": _shared, "bare": _bare}
