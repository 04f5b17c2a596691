"""A model behind the Open Inference Protocol v2 as an operator: Triton, MLServer, KServe.

It uses gRPC, which transmits deadlines and cancellations: a server knows a request's deadline from
the start, and learns when it has passed.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from headrace.gateway.protocol.statuses import Unserved
from headrace.gateway.protocol.tensors import (
    BYTES,
    DTYPES,
    Tensor,
    binary,
    bytes_tensor,
    check_shape,
    from_binary,
    number_tensor,
)
from headrace.model_servers.server_requests import (
    LOOK_AGAIN_S,
    READY_WITHIN_S,
    ServerFault,
    bearer,
    function,
    server_message,
    unchanged,
)
from operators.models.libraries import library
from operators.models.model_errors import BadOperator
from operators.timed_batch import OutOfTime, seconds_left
from schemas.records import Value

# The operator does not retry: retries would load a busy server even more. A channel reconnects to
# an unreachable server within a second, not in two minutes.
OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


@dataclass(frozen=True, slots=True)
class _InputMetadata:
    name: str
    datatype: str


@dataclass(frozen=True, slots=True)
class _Asked:
    call: Any  # gRPC's, in flight
    left_s: float


class OpenInference:
    """The model ``model`` of the server at ``server``, "host:port" of its gRPC.

    A value is the model's only input, or a mapping of its inputs by name; the output is the model's
    only output, or a mapping of its ``outputs`` (empty: all). ``batch_axis``: the model has a
    leading batch axis, of which every request takes 1. ``before`` and ``after`` are
    "module:function": from a value to the input or inputs, and from the output or outputs to the
    item's output. ``timeout_s`` bounds a request whose item has no deadline, or a later one.
    ``authority`` is a file in PEM: TLS; ``token`` names an environment variable with a bearer
    token. Loading waits ``ready_within_s`` for the server and its model.
    """

    libraries = ("grpc",)

    def __init__(
        self,
        server: str,
        model: str,
        version: str = "",
        outputs: Sequence[str] = (),
        batch_axis: bool = False,
        before: str = "",
        after: str = "",
        timeout_s: float = 30.0,
        authority: str = "",
        token: str = "",
        ready_within_s: float = READY_WITHIN_S,
    ) -> None:
        self._server, self._model, self._version = server, model, version
        self._outputs, self._batch_axis = tuple(outputs), batch_axis
        self._before, self._after = function(before, unchanged), function(after, unchanged)
        self._timeout_s, self._authority = timeout_s, authority
        self._ready_within_s = ready_within_s
        self._metadata = (("authorization", bearer(token)),) if token else ()
        self._messages = message_classes(pool())

    def load(self, device: str) -> None:
        """Connect, and read the model's inputs; ``device`` is ignored: the server has its own.

        Raise ``BadOperator`` if the server is unreachable or has no such model.
        """
        grpc = library("grpc")
        if self._authority:
            trusted = grpc.ssl_channel_credentials(Path(self._authority).read_bytes())
            channel = grpc.secure_channel(self._server, trusted, OPTIONS)
        else:
            channel = grpc.insecure_channel(self._server, OPTIONS)
        self._codes, self._failed = grpc.StatusCode, grpc.RpcError
        self._infer = self._call(channel, "ModelInfer")
        found = self._described(self._call(channel, "ModelMetadata"))
        self._inputs = tuple(_InputMetadata(each.name, each.datatype) for each in found.inputs)

    def _described(self, ask: Any) -> Any:
        """Return the model's metadata; a starting server does not know its models at first."""
        request = self._messages.ModelMetadataRequest(name=self._model, version=self._version)
        until = time.monotonic() + self._ready_within_s
        while True:
            left_s = max(0.1, until - time.monotonic())
            try:
                return ask(request, timeout=left_s, metadata=self._metadata, wait_for_ready=True)
            except self._failed as error:
                passing = error.code() in (self._codes.NOT_FOUND, self._codes.UNAVAILABLE)
                if not passing or time.monotonic() + LOOK_AGAIN_S > until:
                    raise BadOperator(
                        f"the server at {self._server} does not tell of model {self._model!r} "
                        f"within {self._ready_within_s:g} s: {_told(error)}; start the server, or "
                        "correct the address and the name"
                    ) from error
            time.sleep(LOOK_AGAIN_S)

    def _call(self, channel: Any, method: str) -> Any:
        return channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=getattr(self._messages, f"{method}Request").SerializeToString,
            response_deserializer=getattr(self._messages, f"{method}Response").FromString,
        )

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return an output, or an error, for each value; all requests run at once."""
        now = time.monotonic()
        until = [now + left_s for left_s in seconds_left(batch, math.inf)]
        begun = [self._begun(value, until_s) for value, until_s in zip(batch, until, strict=True)]
        return [self._ended(each) if isinstance(each, _Asked) else each for each in begun]

    # ------------------------------------------------------------------ a request

    def _begun(self, value: Value, until_s: float) -> _Asked | Exception:
        """Return the call of a request in flight, or the error that prevented it. The ``before`` of
        this item and those ahead of it take of the time until ``until_s``."""
        try:
            prepared = self._before(value) if time.monotonic() < until_s else None
        except Exception as error:  # noqa: BLE001 - a user's function; it fails this item only
            return error
        left_s = min(self._timeout_s, until_s - time.monotonic())
        if left_s <= 0:
            return OutOfTime(f"{self._where} was not asked: the deadline has passed")
        try:
            request = self._request(self._tensors(prepared), left_s)
        except Exception as error:  # noqa: BLE001 - whatever a value raises as it is made a tensor
            return ValueError(f"{self._where} cannot be asked: {error}")
        call = self._infer.future(request, timeout=left_s, metadata=self._metadata)
        return _Asked(call, left_s)

    def _ended(self, asked: _Asked) -> Any:
        try:
            response = asked.call.result()
        except self._failed as error:
            if error.code() is self._codes.DEADLINE_EXCEEDED:
                return OutOfTime(f"{self._where} had no answer within {asked.left_s * 1e3:.0f} ms")
            return ServerFault(f"{self._where} answered {_told(error)}")
        try:
            output = self._output(response)
        except (Unserved, ValueError) as error:
            return ServerFault(f"{self._where} answered what is no inference: {error}")
        try:
            return self._after(output)
        except Exception as error:  # noqa: BLE001 - a user's function; it fails this item only
            return error

    @property
    def _where(self) -> str:
        return f"model {self._model} of the server at {self._server}"

    def _request(self, tensors: Sequence[Tensor], left_s: float) -> Any:
        m = self._messages
        return m.ModelInferRequest(
            model_name=self._model,
            model_version=self._version,
            parameters={"timeout": m.InferParameter(int64_param=math.ceil(left_s * 1e6))},
            inputs=[
                m.ModelInferRequest.InferInputTensor(
                    name=each.name, datatype=each.datatype, shape=each.shape
                )
                for each in tensors
            ],
            outputs=[
                m.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in self._outputs
            ],
            raw_input_contents=[binary(each) for each in tensors],
        )

    def _tensors(self, value: Any) -> list[Tensor]:
        names = [each.name for each in self._inputs]
        if not names:
            raise ValueError("the model takes no inputs")
        values = value if isinstance(value, Mapping) else {names[0]: value}
        if set(values) != set(names):
            raise ValueError(
                f"the value has the inputs {', '.join(map(str, values))}; the model takes "
                f"{', '.join(names)}"
            )
        return [_tensor(each, values[each.name], self._batch_axis) for each in self._inputs]

    def _output(self, response: Any) -> Any:
        raw = response.raw_output_contents
        if raw and len(raw) != len(response.outputs):
            raise ValueError(f"{len(response.outputs)} outputs, but the contents of {len(raw)}")
        found = {
            each.name: self._value(each, raw[at] if raw else None)
            for at, each in enumerate(response.outputs)
        }
        absent = [name for name in self._outputs if name not in found]
        if absent or not found:
            raise ValueError(f"no output {absent[0] if absent else 'at all'}")
        return next(iter(found.values())) if len(found) == 1 else found

    def _value(self, output: Any, raw: bytes | None) -> Any:
        """Return an output tensor as an array, or for BYTES its elements, of one element alone."""
        shape = list(output.shape)
        if raw is None:
            array = _typed(output, shape)
        else:
            array = from_binary(output.name, output.datatype, shape, raw).array
        if self._batch_axis:
            if not shape or shape[0] != 1:
                raise ValueError(f"output {output.name} has shape {shape}; 1 row was asked for")
            array = array[0]
        if output.datatype != BYTES:
            return array
        elements = list(array.reshape(-1))
        return elements[0] if len(elements) == 1 else elements


def _tensor(wanted: _InputMetadata, value: Any, batch_axis: bool) -> Tensor:
    if wanted.datatype == BYTES:
        listed = value if isinstance(value, list) else [value]
        coded = [_coded(wanted.name, each) for each in listed]
        return bytes_tensor(wanted.name, coded, [1, len(coded)] if batch_axis else [len(coded)])
    if wanted.datatype not in DTYPES:
        raise ValueError(f"the model's input {wanted.name} is {wanted.datatype}, not supported")
    array = _cast(wanted, np.asarray(value))
    return number_tensor(wanted.name, wanted.datatype, array[np.newaxis] if batch_axis else array)


def _coded(name: str, element: Any) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    raise TypeError(
        f"the input {name} is BYTES, but the value holds {type(element).__name__}; make it text "
        "or bytes"
    )


def _cast(wanted: _InputMetadata, array: np.ndarray) -> np.ndarray:
    """Return the array in the input's datatype; raise ``ValueError`` if that changes a number."""
    with np.errstate(over="ignore"):
        cast = array.astype(DTYPES[wanted.datatype], casting="same_kind")
    fits = np.isfinite(cast) == np.isfinite(array) if cast.dtype.kind == "f" else cast == array
    if not fits.all():
        raise ValueError(
            f"the input {wanted.name} holds a number beyond the range of {wanted.datatype}"
        )
    return cast


def _typed(output: Any, shape: Sequence[int]) -> np.ndarray:
    """Return the array in the typed contents of an output, which MLServer sends."""
    check_shape(output.name, output.datatype, shape)
    filled = [held for _, held in output.contents.ListFields()]
    if len(filled) > 1:
        raise ValueError(f"output {output.name} has contents of {len(filled)} types")
    elements = list(filled[0]) if filled else []
    if output.datatype == BYTES:
        return bytes_tensor(output.name, elements, shape).array
    try:
        return np.array(elements, dtype=DTYPES[output.datatype]).reshape(shape)
    except OverflowError as error:
        raise ValueError(f"output {output.name}: {error}") from None


def _told(error: Any) -> str:
    return f"{error.code().name}: {server_message(error.details() or '')}"
