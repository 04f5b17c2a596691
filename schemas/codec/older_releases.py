"""Infer the enumerations of records that predate them (release 6).

A record of an older release gives its reason as a sentence alone. ``FILL`` infers the enumeration
once, when the record is decoded; no other code examines sentences. The patterns match every
sentence that a release has written: none is removed, and the present ones count, because a node
that writes release 5 sends them without an enumeration. A row with its enumeration stays unchanged.
"""

import re
from collections.abc import Callable
from typing import Any

from schemas.enumerations import PlanCause, ReasonCode
from schemas.records import ANSWERED, DROPPED, FAILED, REFUSED

Row = dict[str, Any]

_FAULTS = ("failed", "stuck")  # states that were followed by ": " and the error
_EGRESS = "egress"  # the task under which egress ended a query

# By outcome: a part of the sentence, and its code.
_REASONS = {
    DROPPED: (
        (" would end ", ReasonCode.PAST_SAVING),
        (" too late for the remaining tasks", ReasonCode.NO_WAY_ON),
        (" would finish ", ReasonCode.PAST_SAVING),
        (" over the budget of its task", ReasonCode.OVER_BUDGET),
        (" would exceed the budget of its task ", ReasonCode.OVER_BUDGET),
        (" too late for what is behind it", ReasonCode.NO_WAY_ON),
        (", and no worker of ", ReasonCode.NO_WAY_ON),
        ("read ", ReasonCode.READ_LATE),
        ("not complete ", ReasonCode.UNFINISHED),
        ("incomplete ", ReasonCode.UNFINISHED),
        ("no worker serves task ", ReasonCode.NO_WORKER),
    ),
    REFUSED: (
        ("over capacity", ReasonCode.OVER_CAPACITY),
        ("no worker serves task ", ReasonCode.NO_WORKER),
        ("the pipeline is paused", ReasonCode.PAUSED),
    ),
}
_OTHERWISE = {DROPPED: ReasonCode.OTHER, REFUSED: ReasonCode.BAD_INPUT}

# Patterns of a plan's reasons, which are joined by "; ".
_CAUSES = (
    (re.compile(r"first plan"), PlanCause.FIRST),
    (re.compile(r"planned anew|periodic replan"), PlanCause.INTERVAL),
    (re.compile(r"command .*"), PlanCause.COMMAND),
    (re.compile(r"worker \S+ is new"), PlanCause.WORKER_NEW),
    (re.compile(r"worker \S+ has restarted"), PlanCause.WORKER_RESTARTED),
    (re.compile(r"worker \S+ is leaving"), PlanCause.WORKER_LEAVING),
    (re.compile(r"worker \S+ no longer serves \S+"), PlanCause.WORKER_UNLOADED),
    (re.compile(r"worker \S+ serves \S+"), PlanCause.WORKER_SERVES),
    (re.compile(r"worker \S+ is drained"), PlanCause.WORKER_DRAINED),
    (re.compile(r"lost .*"), PlanCause.WORKER_LOST),
    (re.compile(r"slots handed (on|over)"), PlanCause.HANDOVER),
    (re.compile(r"demand jumped to .*"), PlanCause.DEMAND_JUMPED),
    (re.compile(r"demand fell to .*"), PlanCause.DEMAND_FELL),
    (re.compile(r"batches on .* as profiled"), PlanCause.SLOWDOWN),
    (
        re.compile(r".* other than planned for|.* items for .* each, unlike the plan"),
        PlanCause.FANOUT,
    ),
    (re.compile(r"more workers may change|next step of the rollout"), PlanCause.STAGED),
    (re.compile(r"routes for (what arrives now|the current demand)"), PlanCause.ROUTES),
    (re.compile(r"the plans topic has lost plan \d+"), PlanCause.PLAN_LOST),
    (re.compile(r"(earlier|the previous solve failed): .*"), PlanCause.EARLIER_FAILURE),
)


def reason_code(outcome: str, task: str, reason: str) -> ReasonCode:
    """Infer the code from the outcome, its task, and the released sentence."""
    if outcome == ANSWERED:
        return ReasonCode.NONE
    if outcome == FAILED:
        return ReasonCode.COMBINE if task == _EGRESS else ReasonCode.OPERATOR
    for mark, code in _REASONS.get(outcome, ()):
        if mark in reason:
            return code
    return _OTHERWISE.get(outcome, ReasonCode.OTHER)


def _fill_end(row: Row) -> None:
    if row["reason_code"] == ReasonCode.NONE:
        row["reason_code"] = reason_code(row["outcome"], row["task"], row["reason"])


def _fill_work(row: Row) -> None:
    for item in row["items"]:
        if item["end"] is not None:
            _fill_end(item["end"])


def _fill_notice(row: Row) -> None:
    for noticed in row["queries"]:
        if noticed["refused"] and noticed["reason_code"] == ReasonCode.NONE:
            noticed["reason_code"] = reason_code(REFUSED, "", noticed["refused"])


def _fill_answer(row: Row) -> None:
    for end in row["ends"]:
        _fill_end(end)
    if row["reason_code"] == ReasonCode.NONE:
        row["reason_code"] = reason_code(_ended(row), row["task"], row["reason"])


def _ended(row: Row) -> str:
    """Return the outcome of the branch that the answer's reason describes; dropped if unknown."""
    if row["outcome"] != ANSWERED or not row["incomplete"]:
        return str(row["outcome"])
    said = (end["outcome"] for end in row["ends"] if end["reason"] == row["reason"])
    return str(next((outcome for outcome in said if outcome != ANSWERED), DROPPED))


def _fill_plan(row: Row) -> None:
    if not row["causes"] and row["reason"]:
        row["causes"] = plan_causes(row["reason"])


def plan_causes(reason: str) -> list[PlanCause]:
    """Infer the causes from a plan's released sentences, each once."""
    return list(dict.fromkeys(map(_cause, reason.split("; "))))


def _cause(sentence: str) -> PlanCause:
    found = (cause for pattern, cause in _CAUSES if pattern.fullmatch(sentence))
    return next(found, PlanCause.OTHER)


def _fill_report(row: Row) -> None:
    state, _, error = row["state"].partition(": ")
    if state in _FAULTS and not row["error"]:
        row["state"], row["error"] = state, error


FILL: dict[str, Callable[[Row], None]] = {
    "Work": _fill_work,
    "Notice": _fill_notice,
    "Answer": _fill_answer,
    "Plan": _fill_plan,
    "Report": _fill_report,
}
