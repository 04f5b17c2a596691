"""Reasons why a query or a branch gets no answer: a code for programs, a sentence for people.

Metrics count codes, which are few; sentences contain numbers and names.
"""

from typing import NamedTuple

from schemas.enumerations import ReasonCode
from schemas.records import DROPPED, End

EGRESS_TASK = "egress"  # the name under which egress ends a query


class Reason(NamedTuple):
    """A code and its sentence."""

    code: ReasonCode
    text: str


OVER_CAPACITY = Reason(ReasonCode.OVER_CAPACITY, "over capacity")
PAUSED = Reason(
    ReasonCode.PAUSED, "the pipeline is paused; `headrace resume` lets queries in again"
)


def no_worker(task: str) -> Reason:
    """Refused or dropped: the plan has no worker for the task."""
    return Reason(ReasonCode.NO_WORKER, f"no worker serves task {task!r}")


def no_session_plan(session: str) -> Reason:
    """Refused: the session is open, but none of its query plans serves yet."""
    text = f"session {session!r} has no plan yet; `headrace session show` gives the reason"
    return Reason(ReasonCode.NO_WORKER, text)


def no_sessions(root: str) -> Reason:
    """Refused: a node reads only schema releases whose plans cannot name sessions."""
    text = (
        f"no worker serves task {root!r} for sessions: a running node is of an older release "
        "without sessions; upgrade or stop it"
    )
    return Reason(ReasonCode.NO_WORKER, text)


def bad_input(text: str) -> Reason:
    """Refused: the query is unreadable, too large, or names something unknown."""
    return Reason(ReasonCode.BAD_INPUT, text)


def read_late(late_s: float) -> Reason:
    """Dropped by ingress, which read it ``late_s`` after its deadline."""
    return Reason(ReasonCode.READ_LATE, f"read {late_s * 1e3:.0f} ms after its deadline")


def past_saving(variant: str, short_s: float) -> Reason:
    """Dropped by a worker: its batch would have ended ``short_s`` after the deadline."""
    text = f"{variant} would finish {short_s * 1e3:.0f} ms after the deadline"
    return Reason(ReasonCode.PAST_SAVING, text)


def after_crash(why: Reason, worker: str) -> Reason:
    """The same reason for an item that ran when the worker's earlier process died."""
    return Reason(why.code, f"{why.text}; an earlier process of {worker} died while it ran")


def would_overrun(variant: str, over_s: float) -> Reason:
    """Dropped by a worker: queue and batch would have taken ``over_s`` more than the budget."""
    text = f"{variant} would exceed the budget of its task by {over_s * 1e3:.0f} ms"
    return Reason(ReasonCode.OVER_BUDGET, text)


def too_late_for_rest(variant: str, short_s: float) -> Reason:
    """Dropped by a worker: its batch would leave ``short_s`` too little time for the next tasks."""
    text = f"{variant} would finish {short_s * 1e3:.0f} ms too late for the remaining tasks"
    return Reason(ReasonCode.NO_WAY_ON, text)


def no_way_on(variant: str, child: str, late_s: float, left_s: float) -> Reason:
    """Dropped between two tasks: late, and no worker of the next one can make up for it."""
    text = (
        f"{variant} exceeded its budget by {late_s * 1e3:.0f} ms, and no worker of {child!r} with "
        f"free capacity can make up for it; {left_s * 1e3:.0f} ms were left"
    )
    return Reason(ReasonCode.NO_WAY_ON, text)


def unfinished(waited_s: float) -> Reason:
    """Dropped by egress: a branch was still missing ``waited_s`` after the query's creation."""
    text = f"incomplete {waited_s * 1e3:.0f} ms after its creation"
    return Reason(ReasonCode.UNFINISHED, text)


def rerouted(turn: int, slot: int, late_s: float) -> str:
    """Return why an item went to another slot than its turn in the round robin."""
    return f"slot {slot} instead of {turn}: {late_s * 1e3:.0f} ms over the budget of its task"


def dropped(task: str, reason: Reason) -> End:
    """End an item at a task."""
    return End(DROPPED, task, reason.text, reason.code)


LATE = "late"  # answered after its deadline
# Labels by which metrics count misses: the codes, and late answers.
CLASSES: dict[str, str] = {
    LATE: "answered after its deadline",
    ReasonCode.PAST_SAVING: "dropped by a worker: its batch would have ended after the deadline",
    ReasonCode.OVER_BUDGET: (
        "dropped by a worker: queue time and batch would have exceeded its task's budget"
    ),
    ReasonCode.NO_WAY_ON: (
        "dropped by a worker: no path through the remaining tasks would be in time"
    ),
    ReasonCode.READ_LATE: "dropped by ingress: read from the input topic after its deadline",
    ReasonCode.UNFINISHED: (
        "dropped by egress: a branch was missing at the end of deadline and grace"
    ),
    ReasonCode.OVER_CAPACITY: "refused: beyond the capacity of the plan",
    ReasonCode.NO_WORKER: "refused or dropped: the plan has no worker for the task",
    ReasonCode.PAUSED: "refused: the pipeline is paused",
    ReasonCode.BAD_INPUT: "refused: unreadable, too large, or of an unknown SLO class",
    ReasonCode.OPERATOR: "failed: an operator raised, or returned an unsupported value",
    ReasonCode.COMBINE: "failed: the combine function raised, or returned an unsupported value",
    ReasonCode.OTHER: "anything else, such as a reason of a later release",
}

# Codes whose sentences differ only in measured times and names.
_BRIEF = {
    ReasonCode.PAST_SAVING: "would finish after the deadline",
    ReasonCode.OVER_BUDGET: "would exceed the budget of its task",
    ReasonCode.NO_WAY_ON: "too late for the remaining tasks",
    ReasonCode.READ_LATE: "read after its deadline",
    ReasonCode.UNFINISHED: "incomplete at the deadline",
    ReasonCode.OVER_CAPACITY: OVER_CAPACITY.text,
    ReasonCode.NO_WORKER: "no worker serves the task",
    ReasonCode.PAUSED: "the pipeline is paused",
}


def counted_as(code: ReasonCode, text: str) -> str:
    """Return the text under which equal reasons are counted together.

    This is the code's text where its sentences differ only in measured times and names, else
    ``text``.
    """
    return _BRIEF.get(code, text)
