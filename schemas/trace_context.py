"""W3C trace context in the headers of Kafka records: ``traceparent`` and ``tracestate``. Pure.

A malformed header counts as absent, as the recommendation says:
https://www.w3.org/TR/trace-context/.
"""

import re
from collections.abc import Sequence

from schemas.records import Trace

Headers = Sequence[tuple[str, bytes]]

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
MOST_STATE = 512  # characters of ``tracestate``, the least that must be passed on
MOST_MEMBER = 128  # longer members are removed first if the whole is too long
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_PRINTABLE = re.compile(rb"[\t -~]+")


def trace_of(headers: Headers) -> Trace | None:
    """Return the trace context in a record's headers; None without a valid ``traceparent``."""
    parents = [value for name, value in headers if name == TRACEPARENT]
    parent = _parent(parents[0] or b"") if len(parents) == 1 else ""
    if not parent:
        return None
    return Trace(parent, _state([value or b"" for name, value in headers if name == TRACESTATE]))


def headers_of(trace: Trace | None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that pass a trace context on; empty without one."""
    if trace is None:
        return ()
    parent = (TRACEPARENT, trace.traceparent.encode())
    return (parent, (TRACESTATE, trace.tracestate.encode())) if trace.tracestate else (parent,)


def _parent(header: bytes) -> str:
    """Return a valid ``traceparent`` in the form of version 00, else ""."""
    found = _PARENT.fullmatch(header)
    if found is None:
        return ""
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or not int(trace, 16) or not int(span, 16) or (version == b"00" and more):
        return ""
    if version != b"00":
        flags = b"%02x" % (int(flags, 16) & 1)  # of later versions only the flag "sampled" is known
    return b"-".join((b"00", trace, span, flags)).decode()


def _state(headers: Sequence[bytes]) -> str:
    """Return ``tracestate`` from its headers, cut to ``MOST_STATE``; "" if it is not printable.

    Long members are removed first, then the last ones.
    """
    whole = b",".join(headers)
    if not _PRINTABLE.fullmatch(whole):
        return ""
    if len(whole) <= MOST_STATE:
        return whole.decode()
    kept, room = [], MOST_STATE + 1
    for member in whole.split(b","):
        if len(member) > MOST_MEMBER:
            continue
        room -= len(member) + 1
        if room < 0:
            break
        kept.append(member)
    return b",".join(kept).decode()
