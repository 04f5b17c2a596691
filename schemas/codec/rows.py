"""Records as the rows that Avro writes, and back: one pair of functions per record, by hand,
because generic conversion costs more than the encoding itself."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from schemas.codec.values import pack, unpack
from schemas.enumerations import NodeState, PlanCause, ReasonCode
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    Completion,
    DeadLetter,
    End,
    Factor,
    Hop,
    Item,
    Lease,
    Notice,
    Noticed,
    Origin,
    Plan,
    Query,
    Record,
    Report,
    Route,
    Selection,
    SelectionTable,
    Settings,
    SlotState,
    Work,
)

Row = dict[str, Any]

# Symbols to members: a look-up takes a tenth of the time of ``ReasonCode(symbol)``.
REASON_CODES: dict[str, ReasonCode] = {code.value: code for code in ReasonCode}
_PLAN_CAUSES: dict[str, PlanCause] = {cause.value: cause for cause in PlanCause}
_NODE_STATES: dict[str, NodeState] = {state.value: state for state in NodeState}


def _origin_row(origin: Origin) -> Row:
    return {"partition": origin.partition, "offset": origin.offset}


def _hop_row(hop: Hop) -> Row:
    return {
        "task": hop.task,
        "variant": hop.variant,
        "worker": hop.worker,
        "epoch": hop.epoch,
        "received_s": hop.received_s,
        "started_s": hop.started_s,
        "finished_s": hop.finished_s,
        "batch": hop.batch,
        "released": hop.released,
        "rerouted": hop.rerouted,
    }


def _end_row(end: End) -> Row:
    return {
        "outcome": end.outcome,
        "task": end.task,
        "reason": end.reason,
        "reason_code": end.reason_code,
    }


def _end(row: Row) -> End:
    return End(row["outcome"], row["task"], row["reason"], REASON_CODES[row["reason_code"]])


def _item_row(item: Item) -> Row:
    return {
        "branch": item.branch,
        "credit": item.credit,
        "value": pack(item.value),
        "path": [_hop_row(hop) for hop in item.path],
        "end": None if item.end is None else ("headrace.End", _end_row(item.end)),
    }


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
    return {
        "query_id": work.query_id,
        "origin": _origin_row(work.origin),
        "task": work.task,
        "created_s": work.created_s,
        "deadline_s": work.deadline_s,
        "epoch": work.epoch,
        "attempt": work.attempt,
        "items": [_item_row(item) for item in work.items],
        "follow": work.follow,
        "size": work.size,
    }


def _work(row: Row) -> Work:
    row["origin"] = Origin(**row["origin"])
    row["items"] = tuple([_item(item) for item in row["items"]])
    return Work(**row)


def _query_row(query: Query) -> Row:
    return {
        "payload": pack(query.payload),
        "id": query.id,
        "deadline_s": _optional(query.deadline_s),
        "slo_class": query.slo_class,
        "size": query.size,
    }


def _query(row: Row) -> Query:
    row["payload"] = unpack(row["payload"])
    return Query(**row)


def _completion_row(completion: Completion) -> Row:
    return {
        "query_id": completion.query_id,
        "origin": _origin_row(completion.origin),
        "slot": completion.slot,
        "worker": completion.worker,
        "type": completion.type,
        "setting": completion.setting,
        "size": completion.size,
        "queued_s": completion.queued_s,
        "run_s": completion.run_s,
        "outcome": completion.outcome,
    }


def _completion(row: Row) -> Completion:
    row["origin"] = Origin(**row["origin"])
    return Completion(**row)


def _notice_row(notice: Notice) -> Row:
    return {
        "partition": notice.partition,
        "upto": notice.upto,
        "queries": [
            {
                "query_id": noticed.query_id,
                "offset": noticed.offset,
                "created_s": noticed.created_s,
                "deadline_s": noticed.deadline_s,
                "refused": noticed.refused,
                "reason_code": noticed.reason_code,
            }
            for noticed in notice.queries
        ],
    }


def _notice(row: Row) -> Notice:
    for noticed in row["queries"]:
        noticed["reason_code"] = REASON_CODES[noticed["reason_code"]]
    row["queries"] = tuple([Noticed(**noticed) for noticed in row["queries"]])
    return Notice(**row)


def _answer_row(answer: Answer) -> Row:
    return {
        "id": answer.id,
        "origin": _origin_row(answer.origin),
        "outcome": answer.outcome,
        "reason": answer.reason,
        "task": answer.task,
        "late": answer.late,
        "incomplete": answer.incomplete,
        "result": pack(answer.result),
        "created_s": answer.created_s,
        "deadline_s": answer.deadline_s,
        "answered_s": answer.answered_s,
        "epoch": answer.epoch,
        "expected_accuracy": _optional(answer.expected_accuracy),
        "paths": [[_hop_row(hop) for hop in path] for path in answer.paths],
        "ends": [_end_row(end) for end in answer.ends],
        "reason_code": answer.reason_code,
    }


def _answer(row: Row) -> Answer:
    row["origin"] = Origin(**row["origin"])
    row["result"] = unpack(row["result"])
    row["paths"] = tuple([tuple([Hop(**hop) for hop in path]) for path in row["paths"]])
    row["ends"] = tuple([_end(end) for end in row["ends"]])
    row["reason_code"] = REASON_CODES[row["reason_code"]]
    return Answer(**row)


def _dead_letter_row(letter: DeadLetter) -> Row:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "reason": letter.reason,
        "value": letter.value,
        # Kafka has headers without a value; the client says None there whatever its types say.
        "headers": [{"name": name, "value": value or b""} for name, value in letter.headers],
        "node": letter.node,
        "at_s": letter.at_s,
    }


def _dead_letter(row: Row) -> DeadLetter:
    row["headers"] = tuple([(header["name"], header["value"]) for header in row["headers"]])
    return DeadLetter(**row)


def _report_row(report: Report) -> Row:
    return {
        "node": report.node,
        "role": report.role,
        "pipeline": report.pipeline,
        "epoch": report.epoch,
        "incarnation": report.incarnation,
        "sent_s": report.sent_s,
        "state": report.state,
        "device": report.device,
        "task": report.task,
        "variant": report.variant,
        "slots": [
            {"task": state.task, "slot": state.slot, "done": state.done, "queued": state.queued}
            for state in report.slots
        ],
        "counts": report.counts,
        "error": report.error,
    }


def _report(row: Row) -> Report:
    row["state"] = _NODE_STATES.get(row["state"], NodeState.OTHER)
    row["slots"] = tuple([SlotState(**state) for state in row["slots"]])
    return Report(**row)


def _settings_row(settings: Settings) -> Row:
    return {
        "policy": settings.policy,
        "slo_s": settings.slo_s,
        "demand_qps": _optional(settings.demand_qps),
        "drained": settings.drained,
        "paused": settings.paused,
        "filed_policy": settings.filed_policy,
        "filed_slo_s": settings.filed_slo_s,
    }


def _lease_row(lease: Lease) -> Row:
    return {
        "worker": lease.worker,
        "task": lease.task,
        "variant": lease.variant,
        "batch": lease.batch,
        "slots": lease.slots,
        "open_slot": lease.open_slot,
        "type": lease.type,
    }


def _route_row(route: Route) -> Row:
    return {
        "task": route.task,
        "slot": route.slot,
        "share": route.share,
        "source": route.source,
        "spare_qps": route.spare_qps,
        "latency_s": route.latency_s,
    }


def _factor_row(factor: Factor) -> Row:
    return {
        "variant": factor.variant,
        "child": factor.child,
        "mean": factor.mean,
        "items": factor.items,
    }


def _plan_row(plan: Plan) -> Row:
    return {
        "pipeline": plan.pipeline,
        "epoch": plan.epoch,
        "issued_s": plan.issued_s,
        "reason": plan.reason,
        "settings": _settings_row(plan.settings),
        "leases": [_lease_row(lease) for lease in plan.leases],
        "routes": [_route_row(route) for route in plan.routes],
        "demand_qps": plan.demand_qps,
        "capacity_qps": _optional(plan.capacity_qps),
        "expected_accuracy": _optional(plan.expected_accuracy),
        "feasible": plan.feasible,
        "binding": plan.binding,
        "mode": plan.mode,
        "factors": [_factor_row(factor) for factor in plan.factors],
        "causes": plan.causes,
    }


def _plan(row: Row) -> Plan:
    settings = row["settings"]
    settings["drained"] = tuple(settings["drained"])
    row["settings"] = Settings(**settings)
    row["leases"] = tuple([_lease(lease) for lease in row["leases"]])
    row["routes"] = tuple([Route(**route) for route in row["routes"]])
    row["factors"] = tuple([Factor(**factor) for factor in row["factors"]])
    row["causes"] = tuple([_PLAN_CAUSES[cause] for cause in row["causes"]])
    return Plan(**row)


def _lease(row: Row) -> Lease:
    row["slots"] = tuple(row["slots"])
    return Lease(**row)


def _selection_row(selection: Selection) -> Row:
    return {
        "pipeline": selection.pipeline,
        "task": selection.task,
        "policy": selection.policy,
        "issued_s": selection.issued_s,
        "slo_s": selection.slo_s,
        "workers": selection.workers,
        "variants": selection.variants,
        "levels_s": selection.levels_s,
        "tables": [_selection_table_row(table) for table in selection.tables],
        "complete": selection.complete,
        "reason": selection.reason,
    }


def _selection_table_row(table: SelectionTable) -> Row:
    return {
        "qps": table.qps,
        "rows": table.rows,
        "expected_accuracy": table.expected_accuracy,
        "expected_violation": table.expected_violation,
        "run": table.run,
    }


def _selection(row: Row) -> Selection:
    row["variants"] = tuple(row["variants"])
    row["levels_s"] = tuple(row["levels_s"])
    row["tables"] = tuple([_selection_table(table) for table in row["tables"]])
    return Selection(**row)


def _selection_table(row: Row) -> SelectionTable:
    row["rows"] = tuple([tuple(each) for each in row["rows"]])
    return SelectionTable(**row)


def _command_row(command: Command) -> Row:
    return {
        "id": command.id,
        "pipeline": command.pipeline,
        "action": command.action,
        "arguments": command.arguments,
        "issued_s": command.issued_s,
    }


def _command_result_row(result: CommandResult) -> Row:
    return {
        "id": result.id,
        "pipeline": result.pipeline,
        "action": result.action,
        "ok": result.ok,
        "message": result.message,
        "epoch": result.epoch,
        "finished_s": result.finished_s,
    }


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
    Command: _command_row,
    CommandResult: _command_result_row,
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
    "Command": lambda row: Command(**row),
    "CommandResult": lambda row: CommandResult(**row),
}
