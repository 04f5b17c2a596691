"""Fast encoders for Work, Answer and Notice, in a third of the time of rows through fastavro.

Every query needs several of these. A property test checks that the bytes equal fastavro's
(tests/unit/schemas/codec/test_single_object.py); fastavro encodes all other records, and decodes
all of them.
"""

import operator
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from schemas.codec.values import CodecError, pack
from schemas.enumerations import ReasonCode
from schemas.records import (
    Answer,
    End,
    Hop,
    Item,
    Notice,
    Noticed,
    PathTree,
    SessionPlan,
    SessionStage,
    Trace,
    TreeBranches,
    TreeHop,
    Value,
    Work,
)

Parts = list[bytes | memoryview]
R = TypeVar("R")

_doubles_1 = struct.Struct("<d").pack
_doubles_2 = struct.Struct("<2d").pack
_doubles_3 = struct.Struct("<3d").pack
_END_OF_BLOCKS = b"\0"
_FALSE, _TRUE = b"\0", b"\1"
_NULL, _SECOND = b"\0", b"\2"  # branches of a union with null
_BYTES = b"\n"  # the branch of bytes in the union of values, 5


def _long(number: int) -> bytes:
    """Return the zigzag encoding, seven bits a byte, the lowest first."""
    number = operator.index(number)
    if not -(1 << 63) <= number < 1 << 63:
        raise CodecError(f"{number} does not fit the 64 bits of a field")
    left = (number << 1) ^ (number >> 63)
    spelled = bytearray()
    while left > 0x7F:
        spelled.append(left & 0x7F | 0x80)
        left >>= 7
    spelled.append(left)
    return bytes(spelled)


# Most numbers recur: lengths, epochs, credits. By type, as a float that equals one is refused.
avro_long = lru_cache(4096, typed=True)(_long)


def avro_text(text: str) -> bytes:
    """Return a string in Avro's binary encoding."""
    spelled = text.encode()
    return avro_long(len(spelled)) + spelled


_CODES = {code: _long(index) for index, code in enumerate(ReasonCode)}  # in the schema's order
# Of tasks, variants, workers, classes, outcomes: a pipeline has a few dozen.
_name = lru_cache(4096)(avro_text)


def _add_array(items: Sequence[R], spelled: Callable[[R], bytes], parts: Parts) -> None:
    if items:
        parts.append(avro_long(len(items)))
        parts.extend([spelled(item) for item in items])
    parts.append(_END_OF_BLOCKS)


def _longs(numbers: Sequence[int]) -> bytes:
    if not numbers:
        return _END_OF_BLOCKS
    return b"".join((avro_long(len(numbers)), *map(avro_long, numbers), _END_OF_BLOCKS))


def _hop(hop: Hop) -> bytes:
    return b"".join(
        (
            _name(hop.task),
            _name(hop.variant),
            _name(hop.worker),
            avro_long(hop.epoch),
            _doubles_3(hop.received_s, hop.started_s, hop.finished_s),
            avro_long(hop.batch),
            _name(hop.released),
            _name(hop.rerouted),
        )
    )


@lru_cache(256)  # most items end in one of a few ways
def _end(end: End) -> bytes:
    return (
        avro_text(end.outcome)
        + avro_text(end.task)
        + avro_text(end.reason)
        + _CODES[end.reason_code]
    )


def _add_item(item: Item, parts: Parts) -> None:
    parts += _longs(item.branch), avro_long(item.credit)
    _add_value(item.value, parts)
    _add_array(item.path, _hop, parts)
    parts.append(_NULL if item.end is None else _SECOND + _end(item.end))


def _stage(stage: SessionStage) -> bytes:
    return b"".join(
        (
            avro_text(stage.task),
            avro_text(stage.setting),
            avro_text(stage.tier),
            avro_text(stage.device),
            avro_long(stage.slot),
            avro_long(stage.quarters),
        )
    )


def _add_session_plan(plan: SessionPlan, parts: Parts) -> None:
    parts += _SECOND, avro_text(plan.session), avro_long(plan.number), _doubles_1(plan.slo_s)
    _add_array(plan.stages, _stage, parts)
    parts.append(_TRUE if plan.admits else _FALSE)


def work_parts(work: Work, parts: Parts) -> None:
    """Append a Work in Avro's binary encoding to ``parts``."""
    parts += (
        avro_text(work.query_id),
        avro_long(work.origin.partition),
        _long(work.origin.offset),
        _name(work.task),
        _doubles_2(work.created_s, work.deadline_s),
        avro_long(work.epoch),
        avro_long(work.attempt),
    )
    if work.items:
        parts.append(avro_long(len(work.items)))
        for item in work.items:
            _add_item(item, parts)
    parts += _END_OF_BLOCKS, avro_long(work.follow), avro_long(work.size), _name(work.slo_class)
    if work.session is None:
        parts.append(_NULL)
    else:
        _add_session_plan(work.session, parts)
    parts.append(_name(work.variant))
    parts.append(_trace(work.trace))


def _trace(trace: Trace | None) -> bytes:
    if trace is None:
        return _NULL
    return _SECOND + avro_text(trace.traceparent) + avro_text(trace.tracestate)


def notice_parts(notice: Notice, parts: Parts) -> None:
    """Append a Notice in Avro's binary encoding to ``parts``."""
    parts.extend([avro_long(notice.partition), avro_long(notice.upto)])
    _add_array(notice.queries, _noticed, parts)


def _noticed(query: Noticed) -> bytes:
    return b"".join(
        (
            avro_text(query.query_id),
            avro_long(query.offset),
            _doubles_2(query.created_s, query.deadline_s),
            avro_text(query.refused),
            _CODES[query.reason_code],
            avro_text(query.slo_class),
            avro_text(query.session),
            _trace(query.trace),
        )
    )


def answer_parts(answer: Answer, parts: Parts) -> None:
    """Append an Answer in Avro's binary encoding to ``parts``."""
    accuracy = answer.expected_accuracy
    parts += (
        avro_text(answer.id),
        avro_long(answer.origin.partition),
        _long(answer.origin.offset),
        _name(answer.outcome),
        avro_text(answer.reason),
        _name(answer.task),
        _TRUE if answer.late else _FALSE,
        _TRUE if answer.incomplete else _FALSE,
    )
    _add_value(answer.result, parts)
    parts += (
        _doubles_3(answer.created_s, answer.deadline_s, answer.answered_s),
        avro_long(answer.epoch),
        _NULL if accuracy is None else _SECOND + _doubles_1(accuracy),
    )
    if answer.paths:
        parts.append(avro_long(len(answer.paths)))
        for path in answer.paths:
            _add_array(path, _hop, parts)
    parts.append(_END_OF_BLOCKS)
    _add_array(answer.ends, _end, parts)
    parts.append(_CODES[answer.reason_code])
    _add_tree(answer.tree, parts)
    parts += _name(answer.slo_class), _name(answer.session)


def _add_tree(tree: PathTree | None, parts: Parts) -> None:
    if tree is None:
        parts.append(_NULL)
        return
    parts.append(_SECOND)
    _add_array(tree.hops, _tree_hop, parts)
    _add_array(tree.ends, _end, parts)
    _add_array(tree.branches, _tree_branches, parts)


def _tree_hop(each: TreeHop) -> bytes:
    return avro_long(each.before) + _hop(each.hop)


def _tree_branches(run: TreeBranches) -> bytes:
    return avro_long(run.hop) + avro_long(run.end) + avro_long(run.count)


# --- values, by union branch (``values.pack``) ----------------------------------------------------


def _add_value(value: Value, parts: Parts) -> None:
    if type(value) is bytes:  # most payloads
        parts += _BYTES, avro_long(len(value)), value
    else:
        _add_branch(pack(value), parts)


def _add_branch(branch: tuple[str, Any], parts: Parts) -> None:
    name, content = branch
    index, add = _BRANCHES[name]
    parts.append(index)
    add(content, parts)


def _add_bytes(content: bytes, parts: Parts) -> None:
    parts += avro_long(len(content)), content


def _add_tensor(row: dict[str, Any], parts: Parts) -> None:
    parts += _name(row["dtype"]), _longs(row["shape"])
    _add_bytes(row["data"], parts)


def _add_list(row: dict[str, Any], parts: Parts) -> None:
    items = row["items"]
    if items:
        parts.append(avro_long(len(items)))
        for item in items:
            _add_branch(item, parts)
    parts.append(_END_OF_BLOCKS)


def _add_map(row: dict[str, Any], parts: Parts) -> None:
    entries = row["entries"]
    if entries:
        parts.append(avro_long(len(entries)))
        for key, item in entries.items():
            parts.append(avro_text(key))
            _add_branch(item, parts)
    parts.append(_END_OF_BLOCKS)


# In the order of the union; Element's is the same, without the last two.
_BRANCHES: dict[str, tuple[bytes, Callable[[Any, Parts], None]]] = {
    "null": (avro_long(0), lambda content, parts: None),
    "boolean": (avro_long(1), lambda content, parts: parts.append(_TRUE if content else _FALSE)),
    "long": (avro_long(2), lambda content, parts: parts.append(_long(content))),
    "double": (avro_long(3), lambda content, parts: parts.append(_doubles_1(content))),
    "string": (avro_long(4), lambda content, parts: parts.append(avro_text(content))),
    "bytes": (_BYTES, _add_bytes),
    "headrace.Tensor": (avro_long(6), _add_tensor),
    "headrace.Json": (avro_long(7), lambda row, parts: parts.append(avro_text(row["text"]))),
    "headrace.List": (avro_long(8), _add_list),
    "headrace.Map": (avro_long(9), _add_map),
}

HOT: dict[type, Callable[[Any, Parts], None]] = {
    Work: work_parts, Answer: answer_parts, Notice: notice_parts,
}  # fmt: skip
