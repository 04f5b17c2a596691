"""Random records of a hostile producer that may break a reader of bytes.

Kinds, in equal shares: random bytes; damaged, truncated and foreign Avro; schema ids that a
registry has and lacks; containers whose counts promise more than the record holds; deep nesting;
compressed bombs; headers that are many, long, no text, escape sequences, or numbers without sense;
records without a value.
"""

import gzip
import json
import struct
from collections.abc import Callable, Mapping

import numpy as np

from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER, SLO_CLASS_HEADER
from schemas.codec.schema_store import CURRENT, MARK
from schemas.codec.single_object import encode
from schemas.records import Query

Headers = list[tuple[str, bytes | None]]
HostileRecord = tuple[bytes | None, Headers]
BOMB = gzip.compress(bytes(10_000_000))
DEEP = 10_000
NUMBERS = (b"nan", b"inf", b"-1", b"1e308", b"0", b"9" * 400, b"\xff", b"1764000000", b"")
QUERY = encode(Query(payload={"a": ["b", 1.5]}, id="h", deadline_s=4e9, slo_class="gold"))


def _noise(rng: np.random.Generator) -> HostileRecord:
    return rng.bytes(int(rng.integers(0, 2000))), []


def _damaged(rng: np.random.Generator) -> HostileRecord:
    data = bytearray(QUERY)
    for at in rng.integers(0, len(data), int(rng.integers(1, 6))):
        data[int(at)] = int(rng.integers(256))
    return bytes(data), []


def _truncated(rng: np.random.Generator) -> HostileRecord:
    return QUERY[: int(rng.integers(len(QUERY)))], []


def _foreign(rng: np.random.Generator) -> HostileRecord:
    prefix = CURRENT[str(rng.choice(sorted(CURRENT)))].prefix
    return prefix + rng.bytes(int(rng.integers(200))), []


def unknown_schema(rng: np.random.Generator) -> HostileRecord:
    """Return a record of Confluent's framing whose schema id no registry has."""
    return b"\0" + struct.pack(">I", int(rng.integers(2**31, 2**32))) + rng.bytes(60), []


def _framed(rng: np.random.Generator) -> HostileRecord:
    """Return a damaged record under one of the first ids of a registry."""
    data = _damaged(rng)[0] or b""
    return b"\0" + struct.pack(">I", int(rng.integers(1, 3))) + data[len(MARK) + 8 :], []


def _promising(rng: np.random.Generator) -> HostileRecord:
    """Return a length or a count of up to 2**63 before nothing."""
    count = bytes([0xFF] * int(rng.integers(1, 10))) + b"\x01"
    return CURRENT["Query"].prefix + count * int(rng.integers(1, 5)), []


def _deep(rng: np.random.Generator) -> HostileRecord:
    opened, closed = (b"[", b"]") if rng.random() < 0.5 else (b'{"a":', b"}")
    return opened * DEEP + b"1" + closed * DEEP, []


def _bomb(rng: np.random.Generator) -> HostileRecord:
    return BOMB, [("content-encoding", b"gzip")]


def _numbers(rng: np.random.Generator) -> HostileRecord:
    number = NUMBERS[int(rng.integers(len(NUMBERS)))]
    return json.dumps({"n": "9" * 50}).encode(), [(DEADLINE_HEADER, number)]


def _names(rng: np.random.Generator) -> HostileRecord:
    names = (b"\x1b[2J\x1b]0;h\x07", b"\r\nHTTP/1.1 200", b"../../etc", b"\xff\xfe", b"x" * 300_000)
    return b"7", [(ID_HEADER, names[int(rng.integers(len(names)))])]


def _headers(rng: np.random.Generator) -> HostileRecord:
    many: Headers = [(f"h{i}", None if i % 3 else rng.bytes(20)) for i in range(1000)]
    return b"7", [*many, (SLO_CLASS_HEADER, b"platinum"), (ID_HEADER, b"a"), (ID_HEADER, b"b")]


def _nothing(rng: np.random.Generator) -> HostileRecord:
    return (None if rng.random() < 0.5 else b""), []


KINDS: Mapping[str, Callable[[np.random.Generator], HostileRecord]] = {
    "noise": _noise,
    "damaged": _damaged,
    "truncated": _truncated,
    "foreign": _foreign,
    "unknown schema": unknown_schema,
    "framed": _framed,
    "promising": _promising,
    "deep": _deep,
    "bomb": _bomb,
    "numbers": _numbers,
    "names": _names,
    "headers": _headers,
    "nothing": _nothing,
}


def hostile_record(rng: np.random.Generator) -> HostileRecord:
    """Return a record's value and headers."""
    names = sorted(KINDS)
    return KINDS[names[int(rng.integers(len(names)))]](rng)
