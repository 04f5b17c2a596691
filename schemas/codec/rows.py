"""Conversion of records to and from Avro's rows: dicts of fields, nested records included."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from schemas.codec.values import pack, unpack
from schemas.enumerations import NodeState, PlanCause, ReasonCode, SessionState
from schemas.records import (
    AccuracyRow,
    Answer,
    Command,
    CommandResult,
    Completion,
    DeadLetter,
    End,
    Factor,
    Hop,
    Item,
    Label,
    Lease,
    MeasuredAccuracy,
    Notice,
    Noticed,
    Origin,
    PathTree,
    Plan,
    ProfileRequest,
    ProfileResult,
    Query,
    Record,
    Report,
    Route,
    Selection,
    SelectionTable,
    Session,
    SessionChoice,
    SessionPlan,
    SessionStage,
    Settings,
    SlotState,
    Trace,
    TreeBranches,
    TreeHop,
    Work,
)

Row = dict[str, Any]

# Symbols to members: a lookup takes a tenth of the time of ``ReasonCode(symbol)``.
REASON_CODES: dict[str, ReasonCode] = {code.value: code for code in ReasonCode}
_PLAN_CAUSES: dict[str, PlanCause] = {cause.value: cause for cause in PlanCause}
_SESSION_STATES: dict[str, SessionState] = {state.value: state for state in SessionState}
_NODE_STATES: dict[str, NodeState] = {state.value: state for state in NodeState}


def _end(row: Row) -> End:
    code = REASON_CODES.get(row["reason_code"], ReasonCode.OTHER)  # JSON of a later release
    return End(row["outcome"], row["task"], row["reason"], code)


def _item_row(item: Item) -> Row:
    row = asdict(item)
    row["value"] = pack(item.value)
    row["path"] = [asdict(hop) for hop in item.path]
    row["end"] = None if item.end is None else ("headrace.End", asdict(item.end))
    return row


def _item(row: Row) -> Item:
    end = row["end"]
    return Item(
        branch=tuple(row["branch"]),
        credit=row["credit"],
        value=unpack(row["value"]),
        path=tuple([Hop(**hop) for hop in row["path"]]),
        end=None if end is None else _end(end),
    )


def _work_row(work: Work) -> Row:
    row = asdict(work)
    row["origin"] = asdict(work.origin)
    row["items"] = [_item_row(item) for item in work.items]
    row["session"] = None if work.session is None else _session_plan_row(work.session)
    row["trace"] = None if work.trace is None else asdict(work.trace)
    return row


def _work(row: Row) -> Work:
    row["origin"] = Origin(**row["origin"])
    row["items"] = tuple([_item(item) for item in row["items"]])
    row["session"] = None if row["session"] is None else _session_plan(row["session"])
    if row["trace"] is not None:
        row["trace"] = Trace(**row["trace"])
    return Work(**row)


def _session_plan_row(plan: SessionPlan) -> Row:
    return {**asdict(plan), "stages": [asdict(stage) for stage in plan.stages]}


def _session_plan(row: Row) -> SessionPlan:
    row["stages"] = tuple([SessionStage(**stage) for stage in row["stages"]])
    return SessionPlan(**row)


def _query_row(query: Query) -> Row:
    row = asdict(query)
    row["payload"] = pack(query.payload)
    row["deadline_s"] = _optional(query.deadline_s)
    return row


def _query(row: Row) -> Query:
    row["payload"] = unpack(row["payload"])
    return Query(**row)


def _completion_row(completion: Completion) -> Row:
    return {**asdict(completion), "origin": asdict(completion.origin)}


def _completion(row: Row) -> Completion:
    row["origin"] = Origin(**row["origin"])
    return Completion(**row)


def _notice_row(notice: Notice) -> Row:
    row = asdict(notice)
    row["queries"] = [_noticed_row(noticed) for noticed in notice.queries]
    return row


def _noticed_row(noticed: Noticed) -> Row:
    row = asdict(noticed)
    if noticed.trace is not None:
        row["trace"] = asdict(noticed.trace)
    return row


def _notice(row: Row) -> Notice:
    for noticed in row["queries"]:
        noticed["reason_code"] = REASON_CODES[noticed["reason_code"]]
        if noticed["trace"] is not None:
            noticed["trace"] = Trace(**noticed["trace"])
    row["queries"] = tuple([Noticed(**noticed) for noticed in row["queries"]])
    return Notice(**row)


def _answer_row(answer: Answer) -> Row:
    row = asdict(answer)
    row["origin"] = asdict(answer.origin)
    row["result"] = pack(answer.result)
    row["expected_accuracy"] = _optional(answer.expected_accuracy)
    row["paths"] = [[asdict(hop) for hop in path] for path in answer.paths]
    row["ends"] = [asdict(end) for end in answer.ends]
    row["tree"] = None if answer.tree is None else ("headrace.PathTree", _tree_row(answer.tree))
    return row


def _tree_row(tree: PathTree) -> Row:
    return {
        "hops": [{"before": each.before, "hop": asdict(each.hop)} for each in tree.hops],
        "ends": [asdict(end) for end in tree.ends],
        "branches": [asdict(run) for run in tree.branches],
    }


def path_tree(row: Row) -> PathTree:
    """Return the tree of an answer's row."""
    return PathTree(
        tuple([TreeHop(each["before"], Hop(**each["hop"])) for each in row["hops"]]),
        tuple([_end(end) for end in row["ends"]]),
        tuple([TreeBranches(**run) for run in row["branches"]]),
    )


def _answer(row: Row) -> Answer:
    row["origin"] = Origin(**row["origin"])
    row["result"] = unpack(row["result"])
    row["paths"] = tuple([tuple([Hop(**hop) for hop in path]) for path in row["paths"]])
    row["ends"] = tuple([_end(end) for end in row["ends"]])
    row["reason_code"] = REASON_CODES[row["reason_code"]]
    row["tree"] = None if row["tree"] is None else path_tree(row["tree"])
    return Answer(**row)


def _dead_letter_row(letter: DeadLetter) -> Row:
    row = asdict(letter)
    # A Kafka header may have no value; the client then returns None, despite its type annotations.
    row["headers"] = [{"name": name, "value": value or b""} for name, value in letter.headers]
    return row


def _dead_letter(row: Row) -> DeadLetter:
    row["headers"] = tuple([(header["name"], header["value"]) for header in row["headers"]])
    return DeadLetter(**row)


def _report_row(report: Report) -> Row:
    row = asdict(report)
    row["slots"] = [asdict(state) for state in report.slots]
    return row


def _report(row: Row) -> Report:
    row["state"] = _NODE_STATES.get(row["state"], NodeState.OTHER)
    row["slots"] = tuple([SlotState(**state) for state in row["slots"]])
    row["held"] = tuple(row["held"])
    return Report(**row)


def _plan_row(plan: Plan) -> Row:
    row, settings = asdict(plan), plan.settings
    row["settings"] = {**asdict(settings), "demand_qps": _optional(settings.demand_qps)}
    row["leases"] = [asdict(lease) for lease in plan.leases]
    row["routes"] = [asdict(route) for route in plan.routes]
    row["factors"] = [asdict(factor) for factor in plan.factors]
    row["capacity_qps"] = _optional(plan.capacity_qps)
    row["expected_accuracy"] = _optional(plan.expected_accuracy)
    row["sessions"] = [_session_plan_row(each) for each in plan.sessions]
    return row


def _plan(row: Row) -> Plan:
    settings = row["settings"]
    settings["drained"] = tuple(settings["drained"])
    row["settings"] = Settings(**settings)
    row["leases"] = tuple([_lease(lease) for lease in row["leases"]])
    row["routes"] = tuple([Route(**route) for route in row["routes"]])
    row["factors"] = tuple([Factor(**factor) for factor in row["factors"]])
    row["causes"] = tuple([_PLAN_CAUSES[cause] for cause in row["causes"]])
    row["sessions"] = tuple([_session_plan(each) for each in row["sessions"]])
    return Plan(**row)


def _lease(row: Row) -> Lease:
    row["slots"] = tuple(row["slots"])
    return Lease(**row)


def _selection_row(selection: Selection) -> Row:
    row = asdict(selection)
    row["tables"] = [asdict(table) for table in selection.tables]
    return row


def _selection(row: Row) -> Selection:
    row["variants"] = tuple(row["variants"])
    row["levels_s"] = tuple(row["levels_s"])
    row["tables"] = tuple([_selection_table(table) for table in row["tables"]])
    return Selection(**row)


def _selection_table(row: Row) -> SelectionTable:
    row["rows"] = tuple([tuple(each) for each in row["rows"]])
    return SelectionTable(**row)


def _session_row(session: Session) -> Row:
    row = asdict(session)
    row["accuracy"] = _optional(session.accuracy)
    row["usd_per_h"] = _optional(session.usd_per_h)
    row["plans"] = [
        {**asdict(each), "accuracy": _optional(each.accuracy)} for each in session.plans
    ]
    return row


def _session(row: Row) -> Session:
    row["state"] = _SESSION_STATES[row["state"]]
    row["plans"] = tuple([SessionChoice(**each) for each in row["plans"]])
    return Session(**row)


def _profile_result(row: Row) -> ProfileResult:
    row["scores"] = tuple(row["scores"])
    return ProfileResult(**row)


def _label_row(label: Label) -> Row:
    return {
        "id": label.id,
        "truth": pack(label.truth),
        "right": _optional(label.right),
        "of": _optional(label.of),
    }


def _label(row: Row) -> Label:
    row["truth"] = unpack(row["truth"])
    return Label(**row)


_ROWS = ("rows", "shadows", "recent")
_UNKNOWN = ("reference_accuracy", "expected", "expected_low", "expected_high")


def _measured_row(measured: MeasuredAccuracy) -> Row:
    return {**asdict(measured), **{name: _accuracy_rows(getattr(measured, name)) for name in _ROWS}}


def _accuracy_rows(rows: Sequence[AccuracyRow]) -> list[Row]:
    return [
        {**asdict(row), **{name: _optional(getattr(row, name)) for name in _UNKNOWN}}
        for row in rows
    ]


def _measured(row: Row) -> MeasuredAccuracy:
    for name in _ROWS:
        row[name] = tuple([AccuracyRow(**each) for each in row[name]])
    return MeasuredAccuracy(**row)


def _optional(number: float | None) -> Any:
    return None if number is None else ("double", number)


TO_ROW: dict[type[Struct], Callable[[Any], Row]] = {
    Query: _query_row,
    Work: _work_row,
    Completion: _completion_row,
    Notice: _notice_row,
    Answer: _answer_row,
    DeadLetter: _dead_letter_row,
    Report: _report_row,
    Plan: _plan_row,
    Selection: _selection_row,
    Session: _session_row,
    ProfileRequest: asdict,
    ProfileResult: asdict,
    Label: _label_row,
    MeasuredAccuracy: _measured_row,
    Command: asdict,
    CommandResult: asdict,
}

FROM_ROW: dict[str, Callable[[Row], Record]] = {
    "Query": _query,
    "Work": _work,
    "Completion": _completion,
    "Notice": _notice,
    "Answer": _answer,
    "DeadLetter": _dead_letter,
    "Report": _report,
    "Plan": _plan,
    "Selection": _selection,
    "Session": _session,
    "ProfileRequest": lambda row: ProfileRequest(**row),
    "ProfileResult": _profile_result,
    "Label": _label,
    "MeasuredAccuracy": _measured,
    "Command": lambda row: Command(**row),
    "CommandResult": lambda row: CommandResult(**row),
}
