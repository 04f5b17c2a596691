"""Records as JSON for people, and commands as people type them.

Keys are the record's field names. Bytes are base64, an array is ``{"dtype": ..., "shape": [...],
"data": [...]}`` with its elements in row-major order.
"""

import binascii
import difflib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from schemas.codec.older_releases import FILL
from schemas.codec.raw import MAX_ID_LENGTH, query_from_raw
from schemas.codec.rows import REASON_CODES, TO_ROW, path_tree
from schemas.codec.schema_store import MARK
from schemas.codec.single_object import CodecError, decode
from schemas.codec.values import pack
from schemas.enumerations import ReasonCode
from schemas.records import Answer, Command, End, Hop, Origin, Record, Value

__all__ = [
    "answer_from_json", "answer_to_json", "command_from_json", "decode_any", "json_value",
    "origin_of_answer", "query_from_raw", "to_json", "value_to_json",
]  # fmt: skip

# --- records ------------------------------------------------------------------------------------


def to_json(record: Record) -> str:
    """Return a record as one line of JSON.

    Raises CodecError for values outside the Avro contract, for NaN and for infinities.
    """
    to_row = TO_ROW.get(type(record))
    if to_row is None:
        raise CodecError(f"{type(record).__name__} records never leave the process")
    to_row(record)  # checks values
    return _text(record)


def answer_to_json(answer: Answer) -> bytes:
    """Return an answer for consumers that read JSON; raise CodecError as ``to_json`` does."""
    if answer.result is None and not (answer.paths or answer.ends or answer.tree):
        return _bare(answer).encode()
    pack(answer.result)  # checks the value
    return _text(answer).encode()


def answer_from_json(value: bytes) -> Answer:
    """Return the answer that ``answer_to_json`` of this or any earlier release wrote.

    Its result stays in JSON's types. Raises CodecError for bytes that are no answer.
    """
    try:
        row = json.loads(value)
        for coded in (row, *row["ends"]):
            coded.setdefault("reason_code", ReasonCode.NONE)
        FILL["Answer"](row)
        tree = row.pop("tree", None)
        row["origin"] = Origin(**row["origin"])
        row["paths"] = tuple(tuple(Hop(**hop) for hop in path) for path in row["paths"])
        row["ends"] = tuple(End(**_coded(end)) for end in row["ends"])
        return Answer(**_coded(row), tree=None if tree is None else path_tree(tree))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CodecError(f"the record is no answer in JSON: {error}") from error


def _coded(row: dict[str, Any]) -> dict[str, Any]:
    row["reason_code"] = REASON_CODES.get(row["reason_code"], ReasonCode.OTHER)
    return row


def origin_of_answer(value: bytes) -> list[tuple[int, int]]:
    """Return the partition and offset of a JSON answer's query; empty for other JSON."""
    try:
        origin = json.loads(value)["origin"]
        return [(int(origin["partition"]), int(origin["offset"]))]
    except (LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return []


def value_to_json(value: Value) -> str:
    """Return a value as one line of JSON; raise CodecError if it has none."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        raise CodecError("the value holds NaN or an infinity, which JSON cannot say") from None


def json_value(value: Value) -> Any:
    """Return a value as it reads back from its JSON form; raise CodecError if it has none."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return json.loads(value_to_json(value))


def _text(record: Record) -> str:
    try:
        return _ENCODER.encode(record)
    except ValueError:
        raise CodecError(
            f"the {type(record).__name__} record holds NaN or an infinity, which JSON cannot say; "
            "choose Avro for the topic or correct the operator"
        ) from None


def _bare(answer: Answer) -> str:
    """Return the text of an answer without result and paths, in a third of the time of ``_text``:
    under overload most answers are refusals."""
    times_s = (answer.created_s, answer.deadline_s, answer.answered_s)
    if answer.expected_accuracy is not None or not all(map(math.isfinite, times_s)):
        return _text(answer)
    origin, (created_s, deadline_s, answered_s) = answer.origin, map(float.__repr__, times_s)
    return (
        f'{{"id":{_quoted(answer.id)},"origin":{{"partition":{origin.partition},"offset":'
        f'{origin.offset}}},"outcome":{_quoted(answer.outcome)},"reason":{_quoted(answer.reason)},'
        f'"task":{_quoted(answer.task)},"late":{_BOOL[answer.late]},"incomplete":'
        f'{_BOOL[answer.incomplete]},"result":null,"created_s":{created_s},"deadline_s":'
        f'{deadline_s},"answered_s":{answered_s},"epoch":{answer.epoch},"expected_accuracy":null,'
        f'"paths":[],"ends":[],"reason_code":{_quoted(answer.reason_code)},"slo_class":'
        f'{_quoted(answer.slo_class)},"session":{_quoted(answer.session)}}}'
    )


def _spelled(value: Any) -> Any:
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": value.shape,
            "data": value.reshape(-1).tolist(),
        }
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise CodecError(f"a value of type {type(value).__name__} has no JSON form")


def _fields(record: Struct) -> dict[str, Any]:
    fields = asdict(record)
    if isinstance(record, Answer) and record.tree is None:
        del fields["tree"]  # a reader of release 6 refuses keys that it does not know
    return fields


_BOOL = {False: "false", True: "true"}
_quoted = json.encoder.encode_basestring_ascii  # with the quotes
_ENCODER = json.JSONEncoder(default=_spelled, allow_nan=False, separators=(",", ":"))

# --- commands -----------------------------------------------------------------------------------

_COMMAND_KEYS = Command.__struct_fields__


def decode_any(data: bytes) -> Command:
    """Return a command from Avro or JSON, by its first bytes; raise CodecError."""
    if data[:2] != MARK:
        return command_from_json(data)
    record = decode(data)
    if isinstance(record, Command):
        return record
    raise CodecError(f"a record of type {type(record).__name__} came where Command was wanted")


def command_from_json(data: bytes) -> Command:
    """Return a command as a person types it: ``{"id": ..., "action": ..., "arguments": {...}}``.

    Numbers and booleans among the arguments become strings; ``pipeline`` may be left out. Raises
    CodecError, which names the key and its valid values.
    """
    typed = _object(data)
    for key in typed:
        if key not in _COMMAND_KEYS:
            raise CodecError(f"a command has the unknown key {key!r}; {_nearest(key)}")
    return Command(
        id=_required(typed, "id"),
        pipeline=_string(typed, "pipeline"),
        action=_required(typed, "action"),
        arguments=_arguments(typed.get("arguments", {})),
        issued_s=_seconds(typed.get("issued_s", 0.0)),
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        typed = json.loads(data.decode(), object_pairs_hook=_unique)
    except CodecError:
        raise
    except RecursionError:
        raise CodecError("a command is nested too deep to be one") from None
    except ValueError as problem:
        raise CodecError(f"a command is neither Avro nor JSON: {problem}") from problem
    if isinstance(typed, dict):
        return typed
    raise CodecError(
        'a command must be a JSON object such as {"id": "1", "action": "replan"}, '
        f"not a {type(typed).__name__}"
    )


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise CodecError(f"a command has the key {twice!r} twice; keep one")
    return found


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, _COMMAND_KEYS, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_COMMAND_KEYS)}"


def _required(typed: dict[str, Any], key: str) -> str:
    if key not in typed:
        raise CodecError(f'a command has no {key!r}; wanted is "{key}": "..."')
    found = _string(typed, key)
    if found and len(found) <= MAX_ID_LENGTH:
        return found
    raise CodecError(f"a command's {key!r} has {len(found)} characters; 1 to {MAX_ID_LENGTH} fit")


def _string(typed: dict[str, Any], key: str) -> str:
    found = typed.get(key, "")
    if not isinstance(found, str):
        raise CodecError(f"a command's {key!r} is {_shown(found)}; it must be a string")
    return _encodable(found, key)


def _arguments(typed: Any) -> dict[str, str]:
    if not isinstance(typed, dict):
        raise CodecError(f"a command's 'arguments' are {_shown(typed)}; they must be an object")
    return {_encodable(name, name): _argument(name, value) for name, value in typed.items()}


def _argument(name: str, value: Any) -> str:
    if isinstance(value, str):
        return _encodable(value, name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise CodecError(
        f"a command's argument {name!r} is {_shown(value)}; it must be a string, number or boolean"
    )


def _seconds(typed: Any) -> float:
    if isinstance(typed, int | float) and not isinstance(typed, bool):
        try:
            seconds = float(typed)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds):
            return seconds
    raise CodecError(
        f"a command's 'issued_s' is {_shown(typed)}; it must be in seconds since the epoch"
    )


def _encodable(text: str, key: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CodecError(f"a command's {key!r} holds half a surrogate pair") from None
    return text


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."
