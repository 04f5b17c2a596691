"""The slowest queries of a live run with the way of each, as certificates keep them.

A prediction that misses a tail, or a violation of one query in hundreds, is explained by them.
"""

from collections.abc import Iterable
from typing import Any

from operators.outcomes import outcome_of
from schemas.records import Answer

KEPT = 8  # of each run


def slowest(answers: Iterable[Answer], began_s: float, count: int = KEPT) -> list[dict[str, Any]]:
    """Return the slowest queries in order of their arrival, and the steps of the part that ended
    last.

    ``at_s`` is when a query was sent after ``began_s``; steps are ms after that, of the pipeline's
    time. A query that a task gave up has the steps until then.
    """
    known = sorted(answers, key=lambda each: each.created_s - each.answered_s)[:count]
    return [
        {
            "at_s": round(each.created_s - began_s, 3),
            "ms": round((each.answered_s - each.created_s) * 1e3, 1),
            "outcome": outcome_of(each),
            "steps": _steps(each),
        }
        for each in sorted(known, key=lambda each: each.created_s)
    ]


def _steps(answer: Answer) -> list[dict[str, Any]]:
    path = max((p for p in answer.paths if p), key=lambda p: p[-1].finished_s, default=())
    return [
        {
            "task": hop.task, "variant": hop.variant, "worker": hop.worker, "batch": hop.batch,
            **{
                f"{name}_ms": round((at_s - answer.created_s) * 1e3, 1)
                for name, at_s in (
                    ("received", hop.received_s), ("started", hop.started_s),
                    ("finished", hop.finished_s),
                )
            },
        }
        for hop in path
    ]  # fmt: skip
