"""Conversion of records to and from Avro's rows: dicts of fields, nested records included."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar, get_args

from msgspec import Struct, convert
from msgspec.structs import asdict, fields

from schemas.codec.values import pack, unpack
from schemas.enumerations import NodeState, ReasonCode
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    Completion,
    DeadLetter,
    End,
    Hop,
    Item,
    Label,
    MeasuredAccuracy,
    Notice,
    Origin,
    PathTree,
    Plan,
    ProfileRequest,
    ProfileResult,
    Query,
    Record,
    Report,
    Selection,
    Session,
    SessionPlan,
    Trace,
    TreeBranches,
    TreeHop,
    Work,
)

Row = dict[str, Any]

# Symbols to members: a lookup takes a tenth of the time of ``ReasonCode(symbol)``.
REASON_CODES: dict[str, ReasonCode] = {code.value: code for code in ReasonCode}
_NODE_STATES = frozenset(NodeState)
R = TypeVar("R", bound=Struct)


def _row(record: Struct) -> Row:
    """Return the row of a record without values of operators; enumerations stay members."""
    row = asdict(record)
    for name in _nested(type(record)):
        value = row[name]
        row[name] = [*map(_row, value)] if isinstance(value, tuple) else value and _row(value)
    return row


@cache
def _nested(kind: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a record that hold records."""
    return tuple(each.name for each in fields(kind) if _holds_record(each.type))


def _holds_record(type_: Any) -> bool:
    return (isinstance(type_, type) and issubclass(type_, Struct)) or any(
        map(_holds_record, get_args(type_))
    )


def _of(kind: type[R]) -> Callable[[Row], R]:
    """Return the function from a row to a record without values of operators."""
    return partial(convert, type=kind)


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
    row["session"] = None if work.session is None else _row(work.session)
    row["trace"] = None if work.trace is None else asdict(work.trace)
    return row


def _work(row: Row) -> Work:
    row["origin"] = Origin(**row["origin"])
    row["items"] = tuple([_item(item) for item in row["items"]])
    row["session"] = convert(row["session"], SessionPlan | None)
    if row["trace"] is not None:
        row["trace"] = Trace(**row["trace"])
    return Work(**row)


def _query_row(query: Query) -> Row:
    row = asdict(query)
    row["payload"] = pack(query.payload)
    return row


def _query(row: Row) -> Query:
    row["payload"] = unpack(row["payload"])
    return Query(**row)


def _answer_row(answer: Answer) -> Row:
    row = asdict(answer)
    row["origin"] = asdict(answer.origin)
    row["result"] = pack(answer.result)
    row["paths"] = [[asdict(hop) for hop in path] for path in answer.paths]
    row["ends"] = [asdict(end) for end in answer.ends]
    row["tree"] = None if answer.tree is None else ("headrace.PathTree", _row(answer.tree))
    return row


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


def _report(row: Row) -> Report:
    if row["state"] not in _NODE_STATES:
        row["state"] = NodeState.OTHER
    return convert(row, Report)


def _label_row(label: Label) -> Row:
    return {**asdict(label), "truth": pack(label.truth)}


def _label(row: Row) -> Label:
    row["truth"] = unpack(row["truth"])
    return Label(**row)


TO_ROW: dict[type[Struct], Callable[[Any], Row]] = {
    Query: _query_row,
    Work: _work_row,
    Completion: _row,
    Notice: _row,
    Answer: _answer_row,
    DeadLetter: _dead_letter_row,
    Report: _row,
    Plan: _row,
    Selection: _row,
    Session: _row,
    ProfileRequest: _row,
    ProfileResult: _row,
    Label: _label_row,
    MeasuredAccuracy: _row,
    Command: _row,
    CommandResult: _row,
}

FROM_ROW: dict[str, Callable[[Row], Record]] = {
    "Query": _query,
    "Work": _work,
    "Completion": _of(Completion),
    "Notice": _of(Notice),
    "Answer": _answer,
    "DeadLetter": _dead_letter,
    "Report": _report,
    "Plan": _of(Plan),
    "Selection": _of(Selection),
    "Session": _of(Session),
    "ProfileRequest": _of(ProfileRequest),
    "ProfileResult": _of(ProfileResult),
    "Label": _label,
    "MeasuredAccuracy": _of(MeasuredAccuracy),
    "Command": _of(Command),
    "CommandResult": _of(CommandResult),
}
