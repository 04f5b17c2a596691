"""Damaged calls over gRPC: bytes that are no message, tensors that do not fit, unknown models and
methods, messages that are too large, odd metadata, deadlines of nothing, and clients that leave."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from benchmarks.gateway_fuzz.damage import Outcome, Target, cut_and_put, one_of, outcomes
from headrace.gateway.protocol.callers import TIMEOUT, TIMEOUTS
from headrace.gateway.protocol.descriptors import METHODS, SERVICE, message_classes, pool

ALLOWED = frozenset((
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED",
))  # fmt: skip
METADATA_BYTES = 8192  # gRPC refuses more by default
M = message_classes(pool())
OTHER_METHODS = (
    *(f"/{SERVICE}/{name}" for name in METHODS), f"/{SERVICE}/Nothing", "/nothing/Nothing",
    "/grpc.health.v1.Health/Check", "/", f"/{SERVICE}/{'x' * 2000}",
)  # fmt: skip
DATATYPES = (
    "", "BYTES", "BOOL", "FP16", "FP32", "FP64", "BF16", "INT8", "INT64", "UINT8", "UINT64", "int8",
)  # fmt: skip
SHAPES = ([], [1], [0], [-1], [2], [1, 1], [2**62, 4], [1] * 40, [2**63 - 1], [0, 2**40])
TEXTS = ("", "1", "input", "output", "timeout", "x" * 300, "\0", "é\U0001f600", "BYTES", "-1")
WHOLE_NUMBERS = (0, 1, -1, 2, 127, -128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
NUMBERS = (0.0, -0.0, 1.5, -1.0, float("inf"), float("nan"), 1e300)
METADATA = (
    *((name, said) for name in TIMEOUTS for said in ("x", "-1", "nan", "1e999", "0", "10000")),
    ("traceparent", "no trace"), ("x-request-id", "x" * 300), ("x-request-id", "the same"),
    ("headrace-size", "-1"), ("headrace-slo-class", "none"), ("authorization", "Bearer "),
    ("x-bin", b"\xff\0"), ("x-much", "x" * 100_000), ("content-encoding", "gzip"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """``timeout_s``: gRPC's deadline. ``leaves_s``: after this time the client cancels the call."""

    method: str
    message: bytes
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    timeout_s: float | None = None
    leaves_s: float | None = None

    def expects(self, code: str, most_bytes: int) -> bool:
        """Return whether the call may end with this status, where a message may have
        ``most_bytes``."""
        if code == "CANCELLED":
            return self.leaves_s is not None
        if code == "UNAVAILABLE":  # refused by size and cut off with its connection, at its age
            heads = sum(len(name) + len(said) for name, said in self.metadata)
            return len(self.message) > most_bytes or heads > METADATA_BYTES
        named = any(name in TIMEOUTS for name, _ in self.metadata)
        timed = self.timeout_s is not None or named or TIMEOUT.encode() in self.message
        return code in ALLOWED or (code == "DEADLINE_EXCEEDED" and timed)


def damaged(rng: np.random.Generator, target: Target) -> Call:
    """Return a call; most ask for an inference."""
    message, method = one_of(rng, MESSAGES)(rng, target), f"/{SERVICE}/ModelInfer"
    if rng.random() < 0.2:
        method = one_of(rng, OTHER_METHODS)
    metadata = [one_of(rng, METADATA) for _ in range(rng.integers(1, 4))]
    timeout_s = one_of(rng, (0.0, -1.0, 1e-3, 0.05, 1e9)) if rng.random() < 0.2 else None
    leaves_s = float(rng.random()) * 0.02 if rng.random() < 0.1 else None
    return Call(method, message, tuple(metadata) * (rng.random() < 0.2), timeout_s, leaves_s)


def _whole(target: Target, size: int = 11) -> Any:
    tensor = M.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])
    raw = size.to_bytes(4, "little") + b"x" * size
    return M.ModelInferRequest(
        model_name=target.model, inputs=[tensor], raw_input_contents=[raw]
    )  # fmt: skip


def _noise(rng: np.random.Generator, _: Target) -> bytes:
    return rng.bytes(int(rng.integers(0, 200)))


def _changed(rng: np.random.Generator, target: Target) -> bytes:
    return cut_and_put(rng, _whole(target).SerializeToString())


def _misfit(rng: np.random.Generator, target: Target) -> bytes:
    """Return a request whose tensor does not fit its datatype, shape or contents."""
    message = _whole(target)
    (tensor,) = message.inputs
    if rng.random() < 0.5:
        tensor.datatype = one_of(rng, DATATYPES)
    if rng.random() < 0.5:
        tensor.shape[:] = one_of(rng, SHAPES)
    if rng.random() < 0.5:
        fill(rng, tensor.contents)
    if rng.random() < 0.5:
        del message.raw_input_contents[:]
    return bytes(message.SerializeToString())


def _odd(rng: np.random.Generator, target: Target) -> bytes:
    message = M.ModelInferRequest()
    fill(rng, message)
    if rng.random() < 0.8:
        message.model_name = target.model
        message.model_version = ""
    return bytes(message.SerializeToString())


def _large(rng: np.random.Generator, target: Target) -> bytes:
    size = int(target.most_bytes * rng.uniform(0.9, 1.5))
    return bytes(_whole(target, size).SerializeToString())


MESSAGES: tuple[Callable[[np.random.Generator, Target], bytes], ...] = (
    _noise, _changed, _misfit, _misfit, _odd, _odd, _large,
)  # fmt: skip


# ---------------------------------------------------------------------- any message


def fill(rng: np.random.Generator, message: Any) -> None:
    """Give some fields of a message values at the edges of their types."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.5:
            _set(rng, message, field)


def _set(rng: np.random.Generator, message: Any, field: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        fill(rng, held[one_of(rng, TEXTS)])
    elif field.message_type is not None:
        for _ in range(rng.integers(0, 3) if field.is_repeated else 1):
            fill(rng, held.add() if field.is_repeated else held)
    elif field.is_repeated:
        held.extend(_value(rng, field) for _ in range(rng.integers(0, 4)))
    else:
        setattr(message, field.name, _value(rng, field))


def _value(rng: np.random.Generator, field: Any) -> Any:
    if field.cpp_type in _WHOLE:
        least, most = _WHOLE[field.cpp_type]
        return one_of(rng, [number for number in WHOLE_NUMBERS if least <= number <= most])
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return one_of(rng, NUMBERS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.bytes(int(rng.integers(0, 20)))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool(rng.integers(2))
    return one_of(rng, TEXTS)


_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


# ---------------------------------------------------------------------- sent


async def send_calls(
    target: Target, seed: int, numbers: Iterator[int], at_once: int
) -> tuple[Counter[str], int]:
    """Make the calls; return their number by status code, and the number of wrong endings."""
    async with grpc.aio.insecure_channel(target.grpc) as channel:

        async def send(number: int) -> Outcome:
            call = damaged(np.random.default_rng([seed, number, 2]), target)
            code = await _code(channel, call)
            return Outcome(code, call.expects(code, target.most_bytes))

        return await outcomes("call", numbers, at_once, send)


async def _code(channel: grpc.aio.Channel, call: Call) -> str:
    made = channel.unary_unary(call.method)(
        call.message, metadata=call.metadata, timeout=call.timeout_s
    )
    if call.leaves_s is not None:
        asyncio.get_running_loop().call_later(call.leaves_s, made.cancel)
    code: str = (await made.code()).name
    return code
