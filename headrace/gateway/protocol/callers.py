"""The caller's part of a query besides the tensors: deadline, id, class, size. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.gateway.protocol.requests import InferRequest, checked_id
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import binary
from schemas.codec.raw import MAX_ID_LENGTH
from schemas.pipeline import Pipeline

REQUEST_ID = "x-request-id"
SLO_CLASS = "headrace-slo-class"
SIZE = "headrace-size"
TRACE = ("traceparent", "tracestate")
ECHOED = (REQUEST_ID, *TRACE, "baggage")  # from a request to its response
_SURROGATE = re.compile("[\ud800-\udfff]")

# Header, by its name in lower case: the seconds of its unit.
TIMEOUTS = {
    "headrace-timeout-ms": 1e-3,
    "x-request-timeout-seconds": 1.0,  # Ray Serve
    "x-envoy-expected-rq-timeout-ms": 1e-3,  # Envoy and Istio, so that upstreams may end early
}
TIMEOUT = "timeout"  # of an inference request, as tritonclient sends it
TIMEOUT_UNIT_S = 1e-6


class Caller(Struct, frozen=True, kw_only=True):
    """``timeout_s``: how long the caller waits (None: unknown); ``id`` "": none.

    ``shared_id``: different requests may have the same ``id``, as a mesh passes one
    ``x-request-id`` on to all requests that follow from a request.
    """

    timeout_s: float | None = None
    id: str = ""
    shared_id: bool = False
    slo_class: str = ""
    size: int = 1
    trace: tuple[tuple[str, bytes], ...] = ()  # the context, as headers of Kafka's

    def after(self, seconds: float) -> "Caller":
        """Return the caller once it has sent its body, which took ``seconds`` of its time."""
        if self.timeout_s is None:
            return self
        return replace(self, timeout_s=self.timeout_s - seconds)


def caller_of(
    headers: Mapping[str, str],
    request: InferRequest,
    pipeline: Pipeline,
    grpc_remaining_s: float | None = None,
) -> Caller:
    """Return the caller by the headers (names in lower case) and parameters of a request.

    Raises ``Unserved`` for values that the pipeline does not know.
    """
    parameters = request.parameters
    shared = headers.get(REQUEST_ID) if not request.id else None
    slo_class = headers.get(SLO_CLASS) or parameters.get("slo_class", "")
    size = headers.get(SIZE, parameters.get("size", "1"))
    traced = TRACE[0] in headers or TRACE[1] in headers
    return Caller(
        timeout_s=caller_timeout_s(headers, parameters, grpc_remaining_s),
        id=checked_id(shared) if shared else request.id,
        shared_id=bool(shared),
        slo_class=_slo_class(slo_class, pipeline) if slo_class != "" else "",
        size=_size(size, pipeline) if size != "1" else 1,
        trace=_trace(headers) if traced else (),
    )


def _trace(headers: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, said.encode()) for name, said in _readable(headers, TRACE).items())


def digest(request: InferRequest, caller: Caller) -> bytes:
    """Return 16 bytes that distinguish requests for different queries."""
    found = blake2b(repr((caller.slo_class, caller.size)).encode(), digest_size=16)
    for tensor in request.inputs:
        elements = binary(tensor)
        found.update(repr((tensor.name, tensor.datatype, tensor.shape, len(elements))).encode())
        found.update(elements)
    return found.digest()


def named_query(caller: Caller, content: bytes) -> str:
    """Return the query's id from the caller's, or "" without one; ``content`` is its ``digest``.

    A shared id is extended by the content: at any gateway a retry has the same query's id, and
    another request has another.
    """
    if not caller.shared_id:
        return caller.id
    whole = blake2b(caller.id.encode() + content, digest_size=16).hexdigest()
    return f"{caller.id[: MAX_ID_LENGTH - len(whole) - 1]}-{whole}"


def _slo_class(said: Any, pipeline: Pipeline) -> str:
    if said in tuple(pipeline.slo_classes):
        return str(said)
    known = ", ".join(pipeline.slo_classes) or "none"
    raise Unserved(
        Ending.BAD_REQUEST, f"SLO class {str(said)[:40]!r} is unknown; this pipeline has {known}"
    )


def _size(said: Any, pipeline: Pipeline) -> int:
    text = str(said)
    if text.isascii() and text.isdigit() and len(text) < 12 and int(text) >= 1:
        most = pipeline.size.largest if pipeline.size else 1
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
    return _readable(headers, ECHOED)


def _readable(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the headers of these names that are UTF-8; bytes that are not are surrogates here."""
    return {
        name: said
        for name in names
        if (said := headers.get(name)) is not None and not _SURROGATE.search(said)
    }


def caller_timeout_s(
    headers: Mapping[str, str],
    parameters: Mapping[str, Any],
    grpc_remaining_s: float | None = None,
) -> float | None:
    """Return the longest wait of the caller, in seconds: the smallest value given, None without.

    A header or parameter of 0 sets no limit, as in Triton and Envoy; a call with no time left has
    0.0.

    ``headers`` are looked up by names in lower case. Raises ``Unserved`` for a value that is no
    number of 0 or more.
    """
    least_s = grpc_remaining_s
    for name, unit_s in TIMEOUTS.items():
        if name in headers:
            least_s = _lesser(least_s, _seconds(f"header {name}", headers[name], unit_s))
    if TIMEOUT in parameters:
        said = _seconds("parameter timeout", parameters[TIMEOUT], TIMEOUT_UNIT_S)
        least_s = _lesser(least_s, said)
    return least_s


def _lesser(least_s: float | None, said_s: float) -> float | None:
    """Return the smaller limit; ``said_s`` 0 is none."""
    if said_s == 0.0:
        return least_s
    return said_s if least_s is None else min(least_s, said_s)


def _seconds(what: str, said: Any, unit_s: float) -> float:
    try:
        seconds = math.nan if isinstance(said, bool) else float(said) * unit_s
    except (OverflowError, TypeError, ValueError):
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        unit = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}[unit_s]
        raise Unserved(
            Ending.BAD_REQUEST, f"{what} is {str(said)[:40]!r}; it must be a number of {unit}"
        )
    return seconds


def query_deadline_s(now: float, timeout_s: float | None, slo_s: float) -> float | None:
    """Return the deadline of the query, epoch seconds; None: that of its SLO.

    A caller may shorten the SLO, never extend it: gRPC clients and meshes send deadlines of minutes
    by default.
    """
    return now + timeout_s if timeout_s is not None and timeout_s < slo_s else None
