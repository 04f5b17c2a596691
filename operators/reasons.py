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


def no_worker(task: str) -> str:
    """Refused: the plan has nobody for the first task."""
    return f"{_NO_WORKER}{task!r}"


def read_late(late_s: float) -> str:
    """Dropped by ingress, which came by it so long after its deadline."""
    return f"{_READ}{late_s * 1e3:.0f} ms after its deadline"


def past_saving(variant: str, short_s: float) -> str:
    """Dropped by a worker whose variant would have ended so long after the deadline."""
    return f"{variant}{_WOULD_END}{short_s * 1e3:.0f} ms after the deadline"


def unfinished(waited_s: float) -> str:
    """Dropped by egress, which waited so long for the rest of it."""
    return f"{_UNFINISHED}{waited_s * 1e3:.0f} ms after it was made"


# By outcome: how a sentence begins or what stands in it, and its class.
_CLASSES = {
    DROPPED: (
        (_WOULD_END, "past_saving"),
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
