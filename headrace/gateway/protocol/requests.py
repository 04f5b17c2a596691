"""Inference requests and responses of the Open Inference Protocol over HTTP. Pure.

A body is JSON; with the header ``Inference-Header-Content-Length`` the JSON has that many bytes and
the binary tensors follow it. With the value 0 the whole body is the only input, one element.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import (
    Tensor,
    bad,
    binary,
    bytes_tensor,
    from_binary,
    from_json,
    json_data,
)
from schemas.codec.raw import unfit_name

HEADER_LENGTH = "Inference-Header-Content-Length"
SIZE = "binary_data_size"
SHARED_MEMORY = "shared_memory_region"


class InferRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An inference request of either protocol.

    ``outputs`` are the names of the outputs that are wanted (empty: all), ``binary`` those wanted
    in binary form; ``binary_default`` is the form of the others.
    """

    inputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Mapping[str, Any] = {}
    outputs: tuple[str, ...] = ()
    binary: frozenset[str] = frozenset()
    binary_default: bool = False


class InferResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An inference response of either protocol."""

    model: str
    id: str
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any] = {}


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Body(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_Output] = []


_decoder = msgspec.json.Decoder(_Body)
_encoder = msgspec.json.Encoder()


def parsed(body: bytes, header_length: str | None) -> InferRequest:
    """Return the request in a body; ``header_length`` is the value of ``HEADER_LENGTH``, if any.

    Raises ``Unserved`` for every body that is no request.
    """
    length = len(body) if header_length is None else _length(header_length, len(body))
    if length == 0 and header_length is not None:
        return InferRequest(inputs=(bytes_tensor("", [body], [1]),))
    read = _decoded(body[:length])
    raw = _Rest(memoryview(body)[length:])
    inputs = tuple(_tensor(each, raw) for each in read.inputs)
    raw.check_empty()
    return InferRequest(
        inputs=inputs,
        id=checked_id(read.id),
        parameters=read.parameters,
        outputs=tuple(each.name for each in read.outputs),
        binary=frozenset(o.name for o in read.outputs if o.parameters.get("binary_data") is True),
        binary_default=read.parameters.get("binary_data_output") is True and not read.outputs,
    )


def checked_id(name: str) -> str:
    """Return a request's id; raise ``Unserved`` for one that no query can have."""
    wrong = unfit_name("the id", name)
    if wrong:
        raise Unserved(Ending.BAD_REQUEST, wrong)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Unserved(Ending.BAD_REQUEST, "the id holds half a surrogate pair") from None
    return name


def _length(header: str, most: int) -> int:
    if header.isascii() and header.isdigit() and len(header) < 12 and int(header) <= most:
        return int(header)
    raise Unserved(
        Ending.BAD_REQUEST,
        f"header {HEADER_LENGTH} is {header[:40]!r}; it must be the number of bytes of JSON at the "
        f"beginning of the body, which has {most}",
    )


def _decoded(text: bytes) -> _Body:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unserved(
            Ending.BAD_REQUEST,
            f"the body is no inference request: {error or 'nested too deep'}; send "
            '{"inputs": [{"name": ..., "datatype": ..., "shape": [...], "data": [...]}]}',
        ) from None


class _Rest:
    """The binary part of a body, taken from its beginning."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw

    def take(self, name: str, size: Any) -> memoryview:
        """Return the next ``size`` bytes."""
        if type(size) is not int or not 0 <= size <= len(self._raw):
            raise bad(
                name,
                f"has {SIZE} {str(size)[:40]}, but {len(self._raw)} bytes are left in the body",
            )
        taken, self._raw = self._raw[:size], self._raw[size:]
        return taken

    def check_empty(self) -> None:
        """Raise ``Unserved`` for bytes that belong to no tensor."""
        if len(self._raw):
            raise Unserved(
                Ending.BAD_REQUEST,
                f"{len(self._raw)} bytes at the end of the body belong to no tensor; name their "
                f"number as the input's parameter {SIZE}",
            )


def _tensor(each: _Input, raw: _Rest) -> Tensor:
    if SHARED_MEMORY in each.parameters:
        raise bad(each.name, "is in shared memory, which a gateway cannot reach; send its data")
    if SIZE in each.parameters:
        if each.data is not msgspec.UNSET:
            raise bad(each.name, f"has both data and {SIZE}; send one")
        part = raw.take(each.name, each.parameters[SIZE])
        return from_binary(each.name, each.datatype, each.shape, part)
    if each.data is msgspec.UNSET:
        raise bad(each.name, f"has neither data nor {SIZE}; send one")
    return from_json(each.name, each.datatype, each.shape, each.data)


def rendered(response: InferResponse, request: InferRequest) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON if binary tensors follow it.

    Raises ``Unserved`` for a tensor that JSON cannot express.
    """
    rows, parts = [], []
    for tensor in response.outputs:
        row: dict[str, Any] = {
            "name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape),
        }  # fmt: skip
        if request.binary_default or tensor.name in request.binary:
            parts.append(binary(tensor))
            row["parameters"] = {SIZE: len(parts[-1])}
        else:
            row["data"] = json_data(tensor)
        rows.append(row)
    body = _encoder.encode(
        {
            "model_name": response.model, "model_version": "1", "id": response.id,
            **({"parameters": dict(response.parameters)} if response.parameters else {}),
            "outputs": rows,
        }
    )  # fmt: skip
    return (b"".join((body, *parts)), len(body)) if parts else (body, None)
