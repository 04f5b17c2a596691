"""The trace that a query's spans belong to. Pure."""

import hashlib
from dataclasses import dataclass

from schemas.records import Origin, Trace


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a query belongs to: ids in hexadecimal.

    ``parent`` is the caller's span, "" if no caller began the trace; ``sampled``: the caller keeps
    the trace.
    """

    trace: str
    parent: str = ""
    sampled: bool = False


def context_of(caller: Trace | None, pipeline: str, origin: Origin) -> TraceContext:
    """Return the context of a query: that of its caller, without one the same at every export."""
    if caller is not None:
        return TraceContext(caller.id, caller.parent, caller.sampled)
    name = f"{pipeline}/{origin.partition}/{origin.offset}".encode()
    return TraceContext(hashlib.sha256(name).hexdigest()[:32])


def span_id(within: str, name: str) -> str:
    """Return the id of a span within a trace, or a span of it: a hash, so that repeated exports
    agree on it."""
    return hashlib.sha256(f"{within}/{name}".encode()).hexdigest()[:16]
