"""Recognise reports without news, without decoding them.

A worker in a steady state repeats its report every 200 ms: only the time, the counts and the
offsets of its slots differ. As counts only grow, it suffices to read them now and then. Every
report of a hundred workers is read; of a thousand, which report 5,000 times a second, one in five.
"""

import struct
from typing import NamedTuple

from schemas.codec.hot import avro_long, avro_text
from schemas.codec.schema_store import CURRENT
from schemas.effects import Heartbeat
from schemas.enumerations import NodeState
from schemas.records import Report

READ_PER_S = 1000.0  # reports, of all workers
SOONER_S = 0.1  # half a report's interval
SILENT_S = 0.5  # the first report after such a pause is read: the worker may have counted as lost
FORGET_S = 60.0  # a worker without a report for this long is gone
FEW = 200  # workers; gone ones are searched for at this number, then at doublings

_STEADY = (NodeState.READY, NodeState.IDLE)  # in other states, the progress on slots is news
_PREFIX = CURRENT[Report.__name__].prefix
_NODE_AT = len(_PREFIX)
_NOTHING = b"\0"  # a map without entries: a worker measures no accuracy
_LONG = 0x80  # the length of a longer name takes a second byte
_double = struct.Struct("<d")


class _Known(NamedTuple):
    """A worker's last report that was read, as bytes: up to its time, after it, and the end."""

    report: Report
    head: bytes
    middle: bytes
    tail: bytes


class RepeatedReports:
    """The last reports of workers. All times are their senders'."""

    __slots__ = ("_known", "_most", "_sent_s")

    def __init__(self) -> None:
        self._most = FEW
        self._known: dict[bytes, _Known] = {}
        self._sent_s: dict[bytes, float] = {}

    def beat(self, data: bytes) -> Heartbeat | None:
        """Return a report as a heartbeat if it repeats its worker's last one; None: decode it."""
        names = _names(data)
        known = self._known.get(names)
        return None if known is None else self._repeated(names, known, data)

    def remember(self, data: bytes, report: Report) -> None:
        """Compare later reports of a worker with this one, decoded from ``data``."""
        names = _names(data)
        if not names or report.role != "worker":
            return
        if report.state not in _STEADY or report.measured:
            self._known.pop(names, None)
            self._sent_s.pop(names, None)
            return
        if len(self._known) >= self._most:
            self._forget(report.sent_s)
        self._sent_s[names] = report.sent_s
        self._known[names] = _Known(
            report,
            b"".join((_PREFIX, names, avro_long(report.epoch), _double.pack(report.incarnation))),
            b"".join(map(avro_text, (report.state, report.device, report.task, report.variant))),
            b"".join(
                (avro_text(report.error), avro_text(report.file), _held(report.held), _NOTHING)
            ),
        )

    def _forget(self, now: float) -> None:
        """Forget workers that are gone: for them, others' reports would be read less often."""
        for names, sent_s in list(self._sent_s.items()):
            if now - sent_s > FORGET_S:
                self._sent_s.pop(names)
                self._known.pop(names, None)
        self._most = max(FEW, 2 * len(self._known))

    def _repeated(self, names: bytes, known: _Known, data: bytes) -> Heartbeat | None:
        report, head, middle, tail = known
        time_at = len(head)
        if not (
            data.startswith(head)
            and data.startswith(middle, time_at + _double.size)
            and data.endswith(tail)
        ):
            return None
        sent_s = _double.unpack_from(data, time_at)[0]
        if not 0 <= sent_s - self._sent_s[names] < SILENT_S:
            return None
        if sent_s - report.sent_s > len(self._known) / READ_PER_S - SOONER_S:
            return None
        self._sent_s[names] = sent_s
        return Heartbeat(report.pipeline, report.node, report.incarnation, sent_s)


def _names(data: bytes) -> bytes:
    """Return the bytes of a report's node, role and pipeline; b"" for all other records."""
    try:
        role_at = _NODE_AT + 1 + (data[_NODE_AT] >> 1)
        pipeline_at = role_at + 1 + (data[role_at] >> 1)
        end = pipeline_at + 1 + (data[pipeline_at] >> 1)
        long = (data[_NODE_AT] | data[role_at] | data[pipeline_at]) & _LONG
    except IndexError:
        return b""
    return b"" if long else data[_NODE_AT:end]


def _held(settings: tuple[str, ...]) -> bytes:
    blocks = (avro_long(len(settings)), *map(avro_text, settings)) if settings else ()
    return b"".join((*blocks, b"\0"))
