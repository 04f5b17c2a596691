"""W3C trace context: the header ``traceparent`` that a caller sends. Pure.

Source: https://www.w3.org/TR/trace-context/.
"""

import hashlib
import re
from dataclasses import dataclass

from schemas.records import Origin

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a query belongs to: ids in hexadecimal.

    ``parent`` is the caller's span, "" where no caller began the trace; ``sampled``: the caller
    keeps the trace.
    """

    trace: str
    parent: str = ""
    sampled: bool = False


def context_in(header: bytes) -> TraceContext | None:
    """Return the context in the value of ``traceparent``; None for an invalid value."""
    found = _FORM.fullmatch(header.decode(errors="replace").strip())
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceContext(found[1], found[2], sampled=bool(int(found[3], 16) & 1))


def own_context(pipeline: str, origin: Origin) -> TraceContext:
    """Return the context of a query whose caller sent none: the same one at every export."""
    name = f"{pipeline}/{origin.partition}/{origin.offset}".encode()
    return TraceContext(hashlib.sha256(name).hexdigest()[:32])


def span_id(trace: str, name: str) -> str:
    """Return the id of a span of a trace: a hash, so that repeated exports agree on it."""
    return hashlib.sha256(f"{trace}/{name}".encode()).hexdigest()[:16]
