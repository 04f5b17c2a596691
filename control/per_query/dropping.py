"""Drop rules: the latest end of an item's batch, beyond which the item is dropped.

Before a batch runs, the rule gives each item the time by which the batch must end; an item whose
batch would end later is dropped before it costs device time. In the rules, d is the deadline, e the
item's arrival at the task (the end of its last hop, at the root its creation), B the task's budget
and R the least time of the downstream tasks. S is the observed time that most items take from the
task to egress if other items wait for the batch's places, else 0.

    none            never
    deadline        d - S
    last-task       d at a last task, elsewhere never            (Loki, section 5.2, mechanism 2)
    per-task        min(d, e + B)                                (mechanism 1)
    reroute-paper   as last-task; late items are rerouted to a faster worker (``rerouting.py``)
    reroute         d - max(R, S); late items are rerouted to a worker that is still in time

S applies only if more items wait than the batch takes. In a full queue the first items have just
enough time for this batch; those that are late downstream take the places of items that would be in
time. If no item waits, an item that may be in time takes no place. With SLO classes only items of
the same or a tighter SLO count, because slacker ones can wait for the next batch (``displaces``).
Not from a paper.

The paper decides per-task dropping at the end of the batch. The end is known at the start, so the
decision is made there and saves the computation. The paper's opportunistic rerouting has no rule
for last tasks, which have nowhere to reroute to; without one, late items would push all items
behind them past the deadline.

A task's budget is the latency of its batch at the plan's size divided by the compute share, plus
the hops since the previous task, or since the query's creation at the root; the plan reserves the
rest for queues. It is at least ``LEAST_S``, the value of the dummy tasks in the authors' code,
which has no hops, while real hops vary. ``bare`` is the paper's literal budget, the batch alone.

Budgets divide the SLO of the plan, that of the tightest class that counts; queries with a longer
SLO have proportionally larger budgets. With SLO classes the last task has only the deadline as its
budget: a batch of a slacker class cannot be interrupted, and a smaller budget would drop items that
waited for it and are still in time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """The inputs of a drop rule. The budget is for the tightest SLO ``slo_s``; ``rest_s`` is the
    least time of the downstream tasks (0: last task); ``seen_s`` is the observed time to egress if
    others wait for the batch's places, else 0."""

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
    """A drop rule. ``reroutes`` names the rerouting rule for late items, "" for none;
    ``budgets``: the rule uses the task's budget."""

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


def displaces(own_s: float, others_s: Iterable[float], places: int) -> bool:
    """Return whether an item takes a place of the batch from another one of its class or of a
    tighter one.

    ``own_s`` is the item's SLO, ``others_s`` are those of the items that wait behind it, and
    ``places`` is the number of free places, the item's included.
    """
    rivals = (each for each in others_s if each <= own_s)
    return sum(1 for _ in islice(rivals, places)) >= places


LEAST_S = 0.005


def _shared(latency_s: float, compute_share: float, hops_s: float) -> float:
    return max(LEAST_S, latency_s / compute_share) + hops_s


def _bare(latency_s: float, compute_share: float, hops_s: float) -> float:
    return latency_s


# (seconds of a batch at the plan's size, compute share, seconds of hops) -> the task's budget
BUDGETS: Mapping[str, Callable[[float, float, float], float]] = {"shared": _shared, "bare": _bare}
