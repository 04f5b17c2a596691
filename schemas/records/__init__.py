"""Records of the wire contract: one frozen class per record, one module per family of topics.

Times (seconds since the epoch) and durations (seconds) are ``float``, on one clock.
``docs/reference/records.md`` shows each record as Avro and as JSON. Import records from here.
"""

from schemas.records.answers import (
    AccuracyRow,
    Answer,
    DeadLetter,
    Label,
    MeasuredAccuracy,
    Notice,
    Noticed,
    PathTree,
    TreeBranches,
    TreeHop,
)
from schemas.records.plans import (
    Factor,
    Lease,
    Plan,
    Route,
    Selection,
    SelectionTable,
    Settings,
)
from schemas.records.queries import (
    ANSWERED,
    DROPPED,
    FAILED,
    FULL_CREDIT,
    REFUSED,
    Completion,
    End,
    Garbled,
    Hop,
    Item,
    Origin,
    Query,
    Trace,
    Value,
    Work,
)
from schemas.records.reports import (
    Command,
    CommandResult,
    Report,
    SlotState,
)
from schemas.records.sessions import (
    ProfileRequest,
    ProfileResult,
    Session,
    SessionChoice,
    SessionPlan,
    SessionStage,
)

Record = (
    Query
    | Work
    | Completion
    | Notice
    | Answer
    | DeadLetter
    | Report
    | Plan
    | Selection
    | Session
    | ProfileRequest
    | ProfileResult
    | Label
    | MeasuredAccuracy
    | Command
    | CommandResult
    | Garbled
)

__all__ = [
    "ANSWERED", "DROPPED", "FAILED", "FULL_CREDIT", "REFUSED", "AccuracyRow", "Answer",
    "Command", "CommandResult", "Completion", "DeadLetter", "End", "Factor", "Garbled", "Hop",
    "Item", "Label", "Lease", "MeasuredAccuracy", "Notice", "Noticed", "Origin", "PathTree",
    "Plan", "ProfileRequest", "ProfileResult", "Query", "Record", "Report", "Route",
    "Selection", "SelectionTable", "Session", "SessionChoice", "SessionPlan", "SessionStage",
    "Settings", "SlotState", "Trace", "TreeBranches", "TreeHop", "Value", "Work",
]  # fmt: skip
