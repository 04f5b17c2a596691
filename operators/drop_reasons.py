"""Why did a query not get its answer? The sentences, and the small set of classes they fall into.

Sentences are for people and hold numbers and names; metrics need a class, of which there are few.
Both stand here so that a sentence cannot change without its class.
"""

from schemas.records import DROPPED, FAILED, REFUSED

OVER_CAPACITY = "over capacity"
PAUSED = "the pipeline is paused; `headrace resume` lets queries in again"
EGRESS_TASK = "egress"  # the name under which egress ends a query

_NO_WORKER = "no worker serves task "
_READ = "read "
_UNFINISHED = "not complete "
_WOULD_END = " would end "
_OVER_BUDGET = " over the budget of its task"
_TOO_LATE = " too late for what is behind it"
_NO_WAY = ", and no worker of "


def no_worker(task: str) -> str:
    """Refused: the plan has nobody for the first task."""
    return f"{_NO_WORKER}{task!r}"


def read_late(late_s: float) -> str:
    """Dropped by ingress, which came by it so long after its deadline."""
    return f"{_READ}{late_s * 1e3:.0f} ms after its deadline"


def past_saving(variant: str, short_s: float) -> str:
    """Dropped by a worker whose variant would have ended so long after the deadline."""
    return f"{variant}{_WOULD_END}{short_s * 1e3:.0f} ms after the deadline"


def would_overrun(variant: str, over_s: float) -> str:
    """Dropped by a worker: with the time in its queue the task would have taken so much longer."""
    return f"{variant} would be {over_s * 1e3:.0f} ms{_OVER_BUDGET}"


def too_late_for_rest(variant: str, short_s: float) -> str:
    """Dropped by a worker whose variant would leave too little for the tasks behind it."""
    return f"{variant} would be done {short_s * 1e3:.0f} ms{_TOO_LATE}"


def no_way_on(variant: str, child: str, late_s: float, left_s: float) -> str:
    """Dropped between two tasks: late, and nobody of the next one can make up for it."""
    return (
        f"{variant} took {late_s * 1e3:.0f} ms more than its budget{_NO_WAY}{child!r} with room "
        f"can make up for it; {left_s * 1e3:.0f} ms were left"
    )


def rerouted(turn: int, slot: int, late_s: float) -> str:
    """Why an item went to another slot than its turn was."""
    return f"slot {slot} in place of {turn}: {late_s * 1e3:.0f} ms over the budget of its task"


def unfinished(waited_s: float) -> str:
    """Dropped by egress, which waited so long for the rest of it."""
    return f"{_UNFINISHED}{waited_s * 1e3:.0f} ms after it was made"


# By outcome: how a sentence begins or what stands in it, and its class.
_CLASSES = {
    DROPPED: (
        (_WOULD_END, "past_saving"),
        (_OVER_BUDGET, "over_budget"),
        (_TOO_LATE, "no_way_on"),
        (_NO_WAY, "no_way_on"),
        (_READ, "read_late"),
        (_UNFINISHED, "unfinished"),
    ),
    REFUSED: (
        (OVER_CAPACITY, "over_capacity"),
        (_NO_WORKER, "no_worker"),
        (PAUSED, "paused"),
    ),
}
# What no sentence of ours tells: what was wrong with the input, what an operator said.
_REST = {DROPPED: "other", REFUSED: "bad_input"}

LATE = "late"  # answered behind its deadline
CLASSES = {
    LATE: "answered, behind its deadline",
    "past_saving": "dropped by a worker: its batch would have ended behind the deadline",
    "over_budget": "dropped by a worker: with its time in the queue over its task's budget",
    "no_way_on": "dropped by a worker: no way through the tasks behind it would be in time",
    "read_late": "dropped by ingress: read from the input topic behind its deadline",
    "unfinished": "dropped by egress: a part was missing when the deadline and grace were over",
    "over_capacity": "refused: more than the plan can serve",
    "no_worker": "refused: the plan has no worker for the first task",
    "paused": "refused: the pipeline is paused",
    "bad_input": "refused: unreadable, too large, or of an unknown SLO class",
    "operator": "failed: an operator raised, or returned what cannot be passed on",
    "combine": "failed: the combine function raised, or returned what cannot be sent",
    "other": "anything else, such as a part that a later release dropped",
}


def classed(outcome: str, task: str, reason: str) -> str:
    """The class of a reason, one of ``CLASSES``."""
    if outcome == FAILED:
        return "combine" if task == EGRESS_TASK else "operator"
    for mark, name in _CLASSES.get(outcome, ()):
        if mark in reason:
            return name
    return _REST.get(outcome, "other")
