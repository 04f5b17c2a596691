"""Values that operators exchange, as branches of the ``value`` union of the wire contract.

=================  ==========================================================================
Python             Avro branch
=================  ==========================================================================
None, bool, float  null, boolean, double
int                long; beyond 64 bits refused
str, bytes         string, bytes
numpy array        Tensor: dtype by name, shape, little-endian elements in row-major order
list, dict         Json, its text; List or Map where one of its values is bytes, an array or NaN
numpy scalar       as the Python number
=================  ==========================================================================
"""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from schemas.records import Value
from schemas.user_errors import HeadraceError

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
# Deep enough for any document of Headrace, shallow enough for every JSON parser.
MAX_DEPTH = 64
MOST_DIMENSIONS = 64  # of an array of NumPy
_NULL = ("null", None)
_PLAIN = frozenset((type(None), bool, int, float, str))


class CodecError(HeadraceError, ValueError):
    """A record that cannot be encoded, or bytes that cannot be decoded; gives the reason."""


# --- to Avro ------------------------------------------------------------------------------------


def pack(value: Value) -> tuple[str, Any]:
    """Return the union branch of a value: its name and the content for Avro, arrays without a copy.

    Raises CodecError, naming the type, for a value without a branch.
    """
    packer = _PACKERS.get(type(value))
    return packer(value) if packer else _pack_scalar(value)


def _pack_int(value: int) -> tuple[str, int]:
    if -(1 << 63) <= value < 1 << 63:
        return ("long", value)
    raise CodecError(
        "an int below -2**63 or above 2**63 - 1 does not fit the 64 bits of a record; "
        "return it as a str or a float"
    )


def _pack_text(value: str) -> tuple[str, str]:
    _check_text(value)
    return ("string", value)


def _check_text(text: str) -> None:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise CodecError(
            "a str holds half a surrogate pair, which UTF-8 cannot say; decode the text it came "
            "from as UTF-8"
        ) from None


def _pack_scalar(value: Any) -> tuple[str, Any]:
    plain = _plain(value)
    packer = _PACKERS.get(type(plain))
    if packer is None:
        raise CodecError(
            f"a value of type {_type_name(value)} cannot travel between tasks; return None, a "
            "bool, int, float, str, bytes, numpy array, or a list or dict of these"
        )
    return packer(plain)


def _pack_tensor(array: np.ndarray) -> tuple[str, dict[str, Any]]:
    dtype = array.dtype
    if dtype.name not in DTYPES:
        raise CodecError(
            f"an array of {dtype} cannot travel between tasks; convert it to one of "
            f"{', '.join(DTYPES)}"
        )
    if dtype.str[0] == ">":
        array = array.astype(dtype.newbyteorder("<"))
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (
        "headrace.Tensor",
        {"dtype": dtype.name, "shape": list(array.shape), "data": flat.data},
    )


def _pack_list(value: list[Any]) -> tuple[str, dict[str, Any]]:
    return _as_json(value, value) or (
        "headrace.List",
        {"items": [_pack_element(item) for item in value]},
    )


def _pack_dict(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    _check_keys(value)
    packed = _as_json(value, value.values())
    if packed is not None:
        return packed
    for key in value:
        _check_text(key)
    return "headrace.Map", {"entries": {key: _pack_element(item) for key, item in value.items()}}


def _as_json(value: Any, children: Iterable[Any]) -> tuple[str, dict[str, Any]] | None:
    kinds = set(map(type, children))
    if bytes in kinds or np.ndarray in kinds:
        return None
    try:
        return ("headrace.Json", {"text": json_text(value)})
    except CodecError:
        return None  # NaN on the first level is packed without JSON; other causes raise again there


def _pack_element(value: Any) -> tuple[str, Any]:
    if type(value) in (list, dict):
        return ("headrace.Json", {"text": json_text(value, MAX_DEPTH - 1)})
    return pack(value)


_PACKERS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    type(None): lambda value: _NULL,
    bool: lambda value: ("boolean", value),
    int: _pack_int,
    float: lambda value: ("double", value),
    str: _pack_text,
    bytes: lambda value: ("bytes", value),
    np.ndarray: _pack_tensor,
    list: _pack_list,
    dict: _pack_dict,
}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# --- JSON text ----------------------------------------------------------------------------------

_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False, separators=(",", ":"))


def json_text(value: list[Any] | dict[str, Any], depth: int = MAX_DEPTH) -> str:
    """Return a list or dict of JSON values as text that decodes to an equal value.

    Raises CodecError for values that JSON would change or cannot hold: tuples, keys that are no
    strings, NaN and infinities, other types, more than ``depth`` levels.
    """
    _check_json(value, depth)
    try:
        return _ENCODER.encode(value)
    except ValueError:
        raise CodecError(
            f"a {_type_name(value)} holds NaN, an infinity or an endless int, which JSON cannot "
            "say; send an array instead or leave it out"
        ) from None


def _check_json(value: list[Any] | dict[str, Any], depth: int) -> None:
    if depth == 0:
        raise CodecError(f"a value is nested more than {MAX_DEPTH} levels deep; flatten it")
    if isinstance(value, dict):
        _check_keys(value)
        children: Iterable[Any] = value.values()
    else:
        children = value
    if set(map(type, children)) <= _PLAIN:
        return
    for child in children:
        if type(child) in (list, dict):
            _check_json(child, depth - 1)
        elif type(_plain(child)) not in _PLAIN:
            raise CodecError(
                f"a nested {_type_name(value)} holds a value of type {_type_name(child)}; inside a "
                "list or dict only JSON values travel, bytes and arrays on its first level alone"
            )


def _check_keys(value: dict[str, Any]) -> None:
    odd = next((key for key in value if type(key) is not str), None)
    if odd is not None or None in value:
        raise CodecError(f"a dict has a key of type {_type_name(odd)}; keys must be of type str")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond the range of a double")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def from_json_text(text: str, depth: int) -> list[Any] | dict[str, Any]:
    """Return the list or dict of a JSON text.

    Raises ValueError (CodecError is one) for a text that ``json_text`` could not have written.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise CodecError(f"a value is nested more than {depth} levels deep") from None
    if not isinstance(value, list | dict):
        raise CodecError("a Json value is neither a list nor an object")
    # Counting brackets is quick; only a text that may be too deep is walked.
    if text.count("[") + text.count("{") > depth:
        _check_json(value, depth)
    return value


# --- from Avro ----------------------------------------------------------------------------------


def unpack(branch: Any, depth: int = MAX_DEPTH) -> Value:
    """Return the value of a union branch that Avro has decoded.

    Arrays share the memory of the decoded bytes and are read-only. Raises CodecError for an
    inconsistent tensor or text.
    """
    kind = type(branch)
    if kind in _PLAIN or kind is bytes:
        plain: Value = branch
        return plain
    if kind is not dict:  # reached only with a foreign schema
        raise CodecError(f"a value came as {_type_name(branch)}; send one of the types of a Value")
    if "data" in branch:
        return _unpack_tensor(branch)
    if "text" in branch:
        return from_json_text(branch["text"], depth)
    if "items" in branch:
        return [unpack(item, depth - 1) for item in branch["items"]]
    if "entries" in branch:
        return {key: unpack(item, depth - 1) for key, item in branch["entries"].items()}
    raise CodecError(
        f"a value is a record of {', '.join(branch)[:80] or 'nothing'}; known are Tensor, Json, "
        "List and Map"
    )


def _unpack_tensor(row: dict[str, Any]) -> np.ndarray:
    dtype, shape, data = DTYPES.get(row["dtype"]), row["shape"], row["data"]
    if dtype is None:
        raise CodecError(f"a tensor has dtype {row['dtype'][:40]!r}; known are {', '.join(DTYPES)}")
    if len(shape) > MOST_DIMENSIONS:  # their product would take minutes
        raise CodecError(
            f"a tensor has {len(shape)} dimensions; at most {MOST_DIMENSIONS} are possible"
        )
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise CodecError(
            f"a tensor of shape {shape[:8]} and dtype {row['dtype']} came with {len(data)} bytes"
        )
    return np.frombuffer(data, dtype).reshape(shape)
