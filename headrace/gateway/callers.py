"""What a caller says about its query besides the tensors: deadline, id, class, size. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.gateway.deadlines import caller_timeout_s
from headrace.gateway.requests import InferRequest, checked_id
from headrace.gateway.statuses import Ending, Unserved
from schemas.pipeline import Pipeline

REQUEST_ID = "x-request-id"
SLO_CLASS = "headrace-slo-class"
SIZE = "headrace-size"
TRACE = ("traceparent", "tracestate")
ECHOED = (REQUEST_ID, *TRACE, "baggage")  # from a request to its response


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """``timeout_s``: how long the caller waits (None: it does not say); ``id`` "": none."""

    timeout_s: float | None = None
    id: str = ""
    slo_class: str = ""
    size: int = 1
    trace: tuple[tuple[str, bytes], ...] = ()  # the context, as headers of Kafka's


def caller_of(
    headers: Mapping[str, str],
    request: InferRequest,
    pipeline: Pipeline,
    grpc_remaining_s: float | None = None,
) -> Caller:
    """Return what the headers (names in lower case) and parameters of a request say.

    Raises ``Unserved`` for what the pipeline does not know.
    """
    parameters = request.parameters
    return Caller(
        timeout_s=caller_timeout_s(headers, parameters, grpc_remaining_s),
        id=checked_id(request.id or headers.get(REQUEST_ID, "")),
        slo_class=_slo_class(headers.get(SLO_CLASS) or parameters.get("slo_class", ""), pipeline),
        size=_size(headers.get(SIZE, parameters.get("size", 1)), pipeline),
        trace=tuple((name, headers[name].encode()) for name in TRACE if name in headers),
    )


def _slo_class(said: Any, pipeline: Pipeline) -> str:
    if said in ("", *pipeline.slo_classes):
        return str(said)
    known = ", ".join(pipeline.slo_classes) or "none"
    raise Unserved(
        Ending.BAD_REQUEST, f"SLO class {str(said)[:40]!r} is unknown; this pipeline has {known}"
    )


def _size(said: Any, pipeline: Pipeline) -> int:
    text = str(said)
    if text.isascii() and text.isdigit() and len(text) < 12 and int(text) >= 1:
        most = pipeline.size.most if pipeline.size else 1
        if int(text) <= most:
            return int(text)
        raise Unserved(
            Ending.BAD_REQUEST, f"the size is {text}; this pipeline takes {most} at most"
        )
    raise Unserved(
        Ending.BAD_REQUEST, f"the size is {text[:40]!r}; it must be a whole number from 1"
    )


def echoed(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that its response repeats."""
    return {name: headers[name] for name in ECHOED if name in headers}
