"""Tensors of the Open Inference Protocol v2: JSON, the binary extension, gRPC's contents. Pure.

Elements are in row-major order, binary ones little-endian. BYTES has arbitrary bytes as elements:
strings in JSON, with a length of four bytes before each in binary form. Invalid data of a client
raises ``Unserved``.
"""

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from headrace.gateway.protocol.statuses import Ending, Unserved

BYTES = "BYTES"
DTYPES = {
    "BOOL": np.dtype("?"),
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
DATATYPES = (*DTYPES, BYTES)
MOST_DIMENSIONS = 32
MOST_ELEMENTS = 1 << 40
_LENGTH = struct.Struct("<I")
# The types of JSON elements by the kind of NumPy's type.
_ELEMENTS: dict[str, frozenset[type]] = {
    "b": frozenset((bool,)),
    "u": frozenset((int,)),
    "i": frozenset((int,)),
    "f": frozenset((int, float)),
}


class Tensor(Struct, frozen=True):
    """A named tensor. BYTES elements are a list in row-major order, not an array: for a request of
    one element, an array of objects takes longer than the rest of its tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # the number of elements by dimension
    elements: np.ndarray | list[bytes]

    @property
    def array(self) -> np.ndarray:
        """The elements as an array; those of BYTES are objects."""
        if isinstance(self.elements, np.ndarray):
            return self.elements
        array = np.empty(len(self.elements), dtype=object)
        array[:] = self.elements
        return array.reshape(self.shape)


def number_tensor(name: str, datatype: str, array: np.ndarray) -> Tensor:
    """Return a tensor of any datatype but BYTES."""
    return Tensor(name, datatype, array.shape, array)


def bytes_tensor(name: str, elements: list[bytes], shape: Sequence[int]) -> Tensor:
    """Return a BYTES tensor, whose shape has as many elements."""
    return Tensor(name, BYTES, tuple(shape), elements)


def bad(name: str, what: str) -> Unserved:
    """Return the error for a tensor that does not fit."""
    return Unserved(Ending.BAD_REQUEST, f"tensor {name[:80]!r} {what}")


def check_shape(name: str, datatype: str, shape: Sequence[int]) -> int:
    """Return the number of elements of a shape; raise ``Unserved`` for an unknown datatype too."""
    if datatype not in DATATYPES:
        raise bad(name, f"has datatype {datatype[:40]!r}; known are {', '.join(DATATYPES)}")
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise bad(
            name,
            f"has shape {list(shape[:8])}; write at most {MOST_DIMENSIONS} dimensions of 0 or more",
        )
    count = math.prod(shape)
    if (count or math.prod(max(size, 1) for size in shape)) > MOST_ELEMENTS:
        raise bad(name, f"has shape {list(shape[:8])}, which is too large for a request")
    return count


# ---------------------------------------------------------------------- JSON


def from_json(name: str, datatype: str, shape: Sequence[int], data: Any) -> Tensor:
    """Return the tensor with these elements, flat or nested by dimension."""
    count = check_shape(name, datatype, shape)
    flat = _flat(name, data, shape)
    if len(flat) != count:
        raise bad(
            name, f"has {len(flat)} elements in data, but its shape {list(shape)} has {count}"
        )
    if datatype == BYTES:
        if any(type(element) is not str for element in flat):
            raise bad(name, "is BYTES, so that data must be strings; send others in binary form")
        return bytes_tensor(name, [_utf8(name, element) for element in flat], shape)
    return number_tensor(name, datatype, _numbers(name, datatype, flat).reshape(tuple(shape)))


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad(name, "holds half a surrogate pair") from None


def _flat(name: str, data: Any, shape: Sequence[int]) -> list[Any]:
    if type(data) is not list:
        raise bad(name, f"has data of type {type(data).__name__}; write a list of its elements")
    depth = 0
    while data and type(data[0]) is list:
        depth += 1
        size = shape[depth] if depth < len(shape) else -1
        if any(type(part) is not list or len(part) != size for part in data):
            raise bad(name, "has data that is nested otherwise than its shape")
        data = list(itertools.chain.from_iterable(data))
    return list(data)


def _numbers(name: str, datatype: str, flat: list[Any]) -> np.ndarray:
    dtype = DTYPES[datatype]
    odd = set(map(type, flat)) - _ELEMENTS[dtype.kind]
    if odd:
        kinds = ", ".join(sorted(kind.__name__ for kind in odd))
        raise bad(name, f"is {datatype}, but data holds {kinds}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype=dtype)
    except OverflowError:
        raise bad(name, f"holds a number beyond the range of {datatype}") from None
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise bad(name, f"holds a number beyond the range of {datatype}")
    return array


def json_data(tensor: Tensor) -> list[Any]:
    """Return the elements for JSON, flat; raise ``Unserved`` for values that JSON cannot
    express."""
    elements = tensor.elements
    if isinstance(elements, list):
        return [_text(tensor.name, element) for element in elements]
    if elements.dtype.kind == "f" and not np.isfinite(elements).all():
        raise _unsayable(tensor.name, "NaN or an infinity")
    return elements.reshape(-1).tolist()


def _text(name: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise _unsayable(name, "bytes that are no UTF-8") from None


def _unsayable(name: str, what: str) -> Unserved:
    return Unserved(
        Ending.FAILED,
        f"output {name!r} holds {what}, which JSON cannot say; ask for it with binary_data: true, "
        "and by a query's id with Accept: application/octet-stream",
    )


# ---------------------------------------------------------------------- binary


def from_binary(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Tensor:
    """Return the tensor whose binary form is ``raw``."""
    if datatype == BYTES and len(shape) == 1 == shape[0] and _is_one(raw):  # most requests
        return Tensor(name, BYTES, (1,), [bytes(raw[_LENGTH.size :])])
    count = check_shape(name, datatype, shape)
    if datatype == BYTES:
        return Tensor(name, BYTES, tuple(shape), _elements(name, count, memoryview(raw)))
    dtype = DTYPES[datatype]
    if len(raw) != count * dtype.itemsize:
        raise bad(
            name,
            f"has {len(raw)} bytes, but shape {list(shape)} of {datatype} has "
            f"{count * dtype.itemsize}",
        )
    if dtype.kind == "b" and max(bytes(raw), default=0) > 1:
        raise bad(name, "is BOOL, but has bytes other than 0 and 1")
    return number_tensor(name, datatype, np.frombuffer(raw, dtype).reshape(tuple(shape)))


def _is_one(raw: bytes | memoryview) -> bool:
    size = len(raw) - _LENGTH.size
    return size >= 0 and bool(_LENGTH.unpack_from(raw)[0] == size)


def _elements(name: str, count: int, raw: memoryview) -> list[bytes]:
    elements: list[bytes] = []
    at = 0
    while at < len(raw):
        if at + _LENGTH.size > len(raw):
            raise bad(name, f"ends within the length of element {len(elements)}")
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(raw, at)[0]
        if at > len(raw) or len(elements) >= count:
            raise bad(name, f"does not have {count} elements in its {len(raw)} bytes")
        elements.append(bytes(raw[start:at]))
    if len(elements) != count:
        raise bad(name, f"has {len(elements)} elements, but {count} by its shape")
    return elements


def binary(tensor: Tensor) -> bytes:
    """Return the binary form."""
    elements = tensor.elements
    if isinstance(elements, np.ndarray):
        return elements.astype(DTYPES[tensor.datatype], copy=False).tobytes()
    if len(elements) == 1:
        return _LENGTH.pack(len(elements[0])) + elements[0]
    parts = [(_LENGTH.pack(len(each)), each) for each in elements]
    return b"".join(itertools.chain.from_iterable(parts))
