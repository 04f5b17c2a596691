"""Log lines of events and effects: a name, a sentence, ids and figures.

``streams/observers/journal.py`` selects the lines to log; docs/reference/logs-and-metrics.md
explains every name.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from control.estimation.accuracy.accuracy_drift import Measured, drift_text
from operators.outcomes import LATE, cause_of, outcome_of
from schemas.effects import (
    Arrived,
    Failed,
    Infer,
    Inferred,
    Load,
    Loaded,
    Reject,
    Scale,
    Send,
    Solve,
    Solved,
)
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    DeadLetter,
    Lease,
    Plan,
    Query,
    Selection,
    Trace,
    Work,
)
from schemas.trace_context import trace_of
from schemas.variant_id import variant_id

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

# The level of every line that nodes cause.
LEVELS = {
    "accuracy.drifted": WARNING,
    "accuracy.returned": INFO,
    "batch.began": DEBUG,
    "batch.ended": DEBUG,
    "command.done": INFO,
    "command.given": INFO,
    "command.refused": WARNING,
    "dead-letter": WARNING,
    "input.regressed": ERROR,
    "job.failed": WARNING,
    "lease.changed": INFO,
    "lease.kept": DEBUG,
    "load.began": INFO,
    "load.ended": INFO,
    "load.failed": ERROR,
    "more": INFO,
    "plan.followed": INFO,
    "plan.made": INFO,
    "plan.rejected": WARNING,
    "plan.scaled": INFO,
    "query.answered": DEBUG,
    "query.dropped": INFO,
    "query.failed": WARNING,
    "query.late": INFO,
    "query.read": DEBUG,
    "query.refused": INFO,
    "selection.made": INFO,
    "selection.none": WARNING,
    "solve.began": DEBUG,
    "solve.ended": DEBUG,
    "work.sent": DEBUG,
}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log; ``kind`` is the class of its reason, if any."""

    event: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""


# ---------------------------------------------------------------------- plans and variants


def plan_made(effect: Send) -> LogLine:
    """Return the line for a plan that the control app wrote."""
    plan = effect.record
    assert isinstance(plan, Plan)
    bad = "" if plan.feasible else f"; not feasible: {plan.binding}"
    return LogLine(
        "plan.made",
        f"plan {plan.epoch}: {plan.reason}{bad}",
        {
            "epoch": plan.epoch,
            "reason": plan.reason,
            "causes": list(plan.causes),
            "policy": plan.settings.policy,
            "feasible": plan.feasible,
            "demand_qps": plan.demand_qps,
            "leases": len(plan.leases),
        },
    )


def plan_rejected(effect: Reject) -> LogLine:
    """Return the line for a plan that violates a constraint; the previous one stays in force."""
    return LogLine(
        "plan.rejected",
        f"plan rejected: {effect.reason}",
        {"constraints": list(effect.constraints), "reason": effect.reason},
    )


def scaled(effect: Scale) -> LogLine:
    """Return the line for a change of the number of devices of a type that should run."""
    return LogLine(
        "plan.scaled",
        f"scaling {effect.type} to {effect.count}",
        {"type": effect.type, "count": effect.count},
    )


def accuracy_drifted(found: Measured) -> LogLine:
    """Return the line for a measured accuracy that has left the interval of its profile."""
    return LogLine(
        "accuracy.drifted",
        f"accuracy has drifted: {drift_text(found)}",
        {
            "path": found.path, "reference": found.reference, "queries": found.queries,
            "accuracy": found.accuracy, "expected": found.expected,
        },
    )  # fmt: skip


def accuracy_returned(path: str, reference: str) -> LogLine:
    """Return the line for a measured accuracy that is as profiled again, or not measured."""
    by = f" by shadows along {reference}" if reference else ""
    text = f"the accuracy of {path}{by} is back within its profile"
    return LogLine("accuracy.returned", text, {"path": path, "reference": reference})


def selection_made(effect: Send) -> LogLine:
    """Return the line for a task's tables, or for tables that cannot be made."""
    selection = effect.record
    assert isinstance(selection, Selection)
    fields = {"task": selection.task, "policy": selection.policy, "tables": len(selection.tables)}
    if not selection.tables:
        return LogLine("selection.none", f"{selection.task}: {selection.reason}", fields)
    more = "" if selection.complete else "; refining"
    return LogLine(
        "selection.made",
        f"{len(selection.tables)} tables for {selection.task}, {selection.workers} workers, "
        f"up to {selection.tables[-1].qps:.4g} items/s{more}",
        fields,
    )


def followed(plan: Plan, lease: Lease | None, before: Lease | None) -> LogLine:
    """Return the line for a node that follows a plan, with a worker's ``lease`` now and before."""
    fields = {"epoch": plan.epoch, "reason": plan.reason, **_lease_fields(lease)}
    if lease is None and before is None:
        return LogLine("plan.followed", f"plan {plan.epoch}: {plan.reason}", fields)
    name = "lease.kept" if lease == before else "lease.changed"
    return LogLine(name, f"plan {plan.epoch}: {_lease_words(lease)}; {plan.reason}", fields)


def _lease_fields(lease: Lease | None) -> dict[str, Any]:
    if lease is None:
        return {}
    return {
        "task": lease.task,
        "variant": lease.variant,
        "batch": lease.batch,
        "slots": list(lease.slots),
        "open_slot": lease.open_slot,
    }


def _lease_words(lease: Lease | None) -> str:
    if lease is None:
        return "lease removed"
    slots = ", ".join(map(str, lease.slots)) or "none"
    drains = "" if lease.open_slot >= 0 else ", draining"
    return f"{lease.key}, batches of {lease.batch}, slots {slots}{drains}"


def load_began(effect: Load) -> LogLine:
    """Return the line for a worker that begins to load a variant."""
    return LogLine("load.began", f"loading {effect.variant}", _variant(effect.variant))


def load_ended(event: Loaded) -> LogLine:
    """Return the line for a loaded variant."""
    fields = {**_variant(event.variant), "seconds": round(event.seconds, 6)}
    return LogLine("load.ended", f"loaded {event.variant} in {event.seconds:.3f} s", fields)


def failed(event: Failed) -> LogLine:
    """Return the line for a load, batch or solve that ended in an error."""
    if isinstance(event.job, str):
        return LogLine("load.failed", event.error, _variant(event.job) | _trace(event))
    return LogLine("job.failed", event.error, {"job": event.job} | _trace(event))


def _trace(event: Failed) -> dict[str, Any]:
    return {"trace": event.trace} if event.trace else {}


def _variant(key: str) -> dict[str, Any]:
    task, variant = variant_id(key)
    return {"task": task, "variant": variant}


# ---------------------------------------------------------------------- queries


def query_ended(effect: Send) -> LogLine:
    """Return the line for an answer, with any outcome."""
    answer = effect.record
    assert isinstance(answer, Answer)
    took_ms = (answer.answered_s - answer.created_s) * 1e3
    fields = {
        "query": answer.id,
        "origin": _origin(answer.origin.partition, answer.origin.offset),
        "outcome": outcome_of(answer),
        "late": answer.late,
        "incomplete": answer.incomplete,
        "task": answer.task,
        "reason": answer.reason,
        "latency_ms": round(took_ms, 3),
        "epoch": answer.epoch,
        **_trace_id(trace_of(effect.headers)),
    }
    event = f"query.{outcome_of(answer)}"
    return LogLine(event, _end_words(answer, took_ms), fields, cause_of(answer))


def _end_words(answer: Answer, took_ms: float) -> str:
    outcome = outcome_of(answer)
    part = ", answered with a part missing" if answer.incomplete else ""
    said = "answered late" if outcome == LATE else outcome
    where = f" at {answer.task}" if answer.task else ""
    behind_ms = (answer.answered_s - answer.deadline_s) * 1e3
    late = f"{behind_ms:.1f} ms after its deadline" if answer.late else ""
    why = "; ".join(filter(None, (late, answer.reason)))
    text = f"query {answer.id} {said}{where}{part} after {took_ms:.1f} ms"
    return f"{text}: {why}" if why else text


def query_read(event: Arrived) -> LogLine:
    """Return the line for a query that ingress read."""
    query = event.record
    assert isinstance(query, Query)
    place = _origin(event.slot, event.offset)
    name = query.id or place
    fields = {"query": name, "origin": place, **_trace_id(event.trace)}
    return LogLine("query.read", f"query {name} read", fields)


def work_sent(effect: Send) -> LogLine:
    """Return the line for items of a query that were sent."""
    work = effect.record
    assert isinstance(work, Work)
    to = f"{work.task}, slot {effect.slot}" if work.task else "egress"
    fields = {
        "query": work.query_id,
        "origin": _origin(work.origin.partition, work.origin.offset),
        "task": work.task,
        "slot": effect.slot,
        "items": len(work.items),
        "ends": _ends(work),
        "epoch": work.epoch,
        **_trace_id(work.trace),
    }
    return LogLine("work.sent", f"query {work.query_id}: {_count(len(work.items))} to {to}", fields)


def _ends(work: Work) -> list[str]:
    """Return the distinct outcomes of the items; empty for work sent to a task."""
    ends: Iterable[str] = (item.end.outcome for item in work.items if item.end is not None)
    return list(dict.fromkeys(ends))


def dead_letter(effect: Send) -> LogLine:
    """Return the line for an unreadable record that was sent to the dead letters."""
    letter = effect.record
    assert isinstance(letter, DeadLetter)
    place = f"{letter.topic} {_origin(letter.partition, letter.offset)}"
    fields = {
        "topic": letter.topic,
        "origin": _origin(letter.partition, letter.offset),
        "reason": letter.reason,
        **_trace_id(trace_of(letter.headers)),
    }
    return LogLine("dead-letter", f"record {place} cannot be read: {letter.reason}", fields)


def _trace_id(trace: Trace | None) -> dict[str, str]:
    """Return the field with the id of a query's trace; nothing without one."""
    return {} if trace is None else {"trace_id": trace.id}


def _origin(partition: int, offset: int) -> str:
    """Return a record's place in the form that `headrace explain` accepts."""
    return f"{partition}-{offset}"


# ---------------------------------------------------------------------- batches


def batch_began(effect: Infer) -> LogLine:
    """Return the line for the start of a batch."""
    count = len(effect.values)
    fields = {"job": effect.job, "items": count, **_variant(effect.variant)}
    return LogLine(
        "batch.began", f"batch {effect.job} of {effect.variant}: {_count(count)}", fields
    )


def batch_ended(event: Inferred) -> LogLine:
    """Return the line for the end of a batch."""
    seconds = event.finished_s - event.started_s
    fields = {"job": event.job, "seconds": round(seconds, 6)}
    return LogLine("batch.ended", f"batch {event.job} ran for {seconds * 1e3:.1f} ms", fields)


def _count(items: int) -> str:
    return f"{items} item{'s' if items != 1 else ''}"


# ---------------------------------------------------------------------- control


def command_given(event: Arrived) -> LogLine:
    """Return the line for a command that arrived."""
    command = event.record
    assert isinstance(command, Command)
    words = [command.action, *(f"{key}={value}" for key, value in command.arguments.items())]
    fields = {
        "command": command.id,
        "action": command.action,
        "arguments": dict(command.arguments),
    }
    return LogLine("command.given", f"command {command.id}: {' '.join(words)}", fields)


def command_answered(effect: Send) -> LogLine:
    """Return the line for a command that was executed or refused."""
    result = effect.record
    assert isinstance(result, CommandResult)
    word = "done" if result.ok else "refused"
    fields = {
        "command": result.id,
        "action": result.action,
        "reason": result.message,
        "epoch": result.epoch,
    }
    text = f"command {result.id} ({result.action}) {word}: {result.message}"
    return LogLine(f"command.{word}", text, fields)


def solve_began(effect: Solve) -> LogLine:
    """Return the line for the start of a solve."""
    fields = {"job": effect.job, "solver": effect.solver}
    return LogLine("solve.began", f"planner {effect.solver} started", fields)


def solve_ended(event: Solved) -> LogLine:
    """Return the line for a solve that ended with a plan."""
    return LogLine("solve.ended", "planner finished", {"job": event.job})


# The line of an event or effect, by its type; for records, by the record's type.
EVENT_LINES: dict[type, Callable[[Any], LogLine]] = {
    Command: command_given,
    Failed: failed,
    Inferred: batch_ended,
    Loaded: load_ended,
    Query: query_read,
    Solved: solve_ended,
}
EFFECT_LINES: dict[type, Callable[[Any], LogLine]] = {
    Answer: query_ended,
    CommandResult: command_answered,
    DeadLetter: dead_letter,
    Infer: batch_began,
    Load: load_began,
    Plan: plan_made,
    Reject: plan_rejected,
    Scale: scaled,
    Selection: selection_made,
    Solve: solve_began,
    Work: work_sent,
}
