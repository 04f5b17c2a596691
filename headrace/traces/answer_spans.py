"""Spans of a query: the query itself, each hop with its wait and its batch. Pure.

The forms are those of OTLP in JSON, with the names of OpenTelemetry's messaging conventions where
there are any.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.traces.query_trace import TraceContext, span_id
from operators.outcomes import outcome_of
from schemas.records import ANSWERED, Answer, Hop

INTERNAL, CONSUMER = 1, 5
UNSET, ERROR = 0, 2
Attribute = str | int | float | bool


def spans_of(answer: Answer, context: TraceContext, pipeline: str) -> list[dict[str, Any]]:
    """Return the spans of an answer, the query's first. A hop that branches share is one span."""
    origin = answer.origin
    root = span_id(context.trace, f"{pipeline}/{origin.partition}/{origin.offset}")
    hops = dict.fromkeys(hop for path in answer.paths for hop in path)
    return [
        _query(answer, context, root, pipeline),
        *(span for hop in hops for span in _hop(hop, context.trace, root)),
    ]


def _query(answer: Answer, context: TraceContext, root: str, pipeline: str) -> dict[str, Any]:
    outcome = outcome_of(answer)
    said: dict[str, Attribute] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.template": f"{pipeline}.queries",
        "messaging.destination.partition.id": str(answer.origin.partition),
        "messaging.kafka.offset": answer.origin.offset,
        "messaging.message.id": answer.id,
        "headrace.outcome": outcome,
        "headrace.plan": answer.epoch,
        "headrace.slack_ms": round((answer.deadline_s - answer.answered_s) * 1e3, 3),
    }
    if outcome != ANSWERED:
        said["error.type"] = str(answer.reason_code) if answer.reason else outcome
    code, text = (UNSET, "") if outcome == ANSWERED else (ERROR, answer.reason or outcome)
    made = _span(
        context.trace, root, context.parent, f"{pipeline} process",
        (answer.created_s, answer.answered_s), said,
    )  # fmt: skip
    return {**made, "kind": CONSUMER, "status": {"code": code, "message": text}}


def _hop(hop: Hop, trace: str, root: str) -> Iterator[dict[str, Any]]:
    name = f"{hop.key}@{hop.worker}:{hop.received_s!r}:{hop.started_s!r}"
    whole = span_id(root, name)
    said: dict[str, Attribute] = {
        "headrace.task": hop.task, "headrace.variant": hop.variant, "headrace.worker": hop.worker,
    }  # fmt: skip
    batch: dict[str, Attribute] = {
        "messaging.batch.message_count": hop.batch,
        # Alike for all queries of the batch.
        "headrace.batch.id": span_id(hop.worker, repr(hop.started_s)),
    }
    if hop.released:
        batch["headrace.batch.released"] = hop.released
    queued, ran = (hop.received_s, hop.started_s), (hop.started_s, hop.finished_s)
    yield _span(trace, whole, root, hop.key, (hop.received_s, hop.finished_s), said)
    yield _span(trace, span_id(root, f"{name}/queue"), whole, "queue", queued, {})
    yield _span(trace, span_id(root, f"{name}/batch"), whole, "batch", ran, batch)


def _span(
    trace: str, own: str, parent: str, name: str, times_s: tuple[float, float],
    said: Mapping[str, Attribute],
) -> dict[str, Any]:  # fmt: skip
    start_s, end_s = times_s
    return {
        "traceId": trace, "spanId": own, **({"parentSpanId": parent} if parent else {}),
        "name": name, "kind": INTERNAL,
        "startTimeUnixNano": _nanoseconds(start_s),
        "endTimeUnixNano": _nanoseconds(max(start_s, end_s)),
        "attributes": attributes(said),
    }  # fmt: skip


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1e6) * 1000)  # a float of the epoch has microseconds


def attributes(said: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    """Return attributes as OTLP has them."""
    return [{"key": key, "value": _value(value)} for key, value in said.items()]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value}
