"""Inference by a gRPC server in this process that behaves as its test says.

It shares the gateway's table of messages; ``make interop`` shows the operator before Triton itself,
and ``tests/integration/test_model_servers.py`` before a gateway.
"""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from headrace.model_servers import open_inference
from headrace.model_servers.open_inference import OpenInference
from headrace.model_servers.server_requests import ServerFault
from operators.models.model_errors import BadOperator
from operators.timed_batch import OutOfTime, TimedBatch

M = message_classes(pool())
TWO = [("numbers", "FP32", [-1]), ("text", "BYTES", [-1])]
ONE = [("numbers", "FP32", [-1])]
Infer = Callable[[Any, Any], Any]


class Server(grpc.GenericRpcHandler):
    """A server of one model whose inference is ``infer``; ``requests`` records its requests."""

    def __init__(self) -> None:
        self.inputs = ONE
        self.infer: Infer = doubled
        self.requests: list[Any] = []
        self.unknown = 0  # number of times that it does not know its model yet
        self._server = grpc.server(ThreadPoolExecutor(8), (self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details: Any) -> Any:
        method = details.method.removeprefix(f"/{SERVICE}/")
        reply = {"ModelMetadata": self._metadata, "ModelInfer": self._infer}[method]
        return grpc.unary_unary_rpc_method_handler(
            reply,
            request_deserializer=getattr(M, f"{method}Request").FromString,
            response_serializer=getattr(M, f"{method}Response").SerializeToString,
        )

    def _metadata(self, request: Any, context: Any) -> Any:
        self.unknown -= 1
        if request.name != "doubling" or self.unknown >= 0:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        tensor = M.ModelMetadataResponse.TensorMetadata
        inputs = [tensor(name=n, datatype=d, shape=s) for n, d, s in self.inputs]
        return M.ModelMetadataResponse(name="doubling", inputs=inputs)

    def _infer(self, request: Any, context: Any) -> Any:
        self.requests.append((request, context.time_remaining()))
        return self.infer(request, context)

    def close(self) -> None:
        """End the server and its hanging calls."""
        self._server.stop(0).wait()


def response(name: str, datatype: str, shape: list[int], raw: bytes) -> Any:
    output = M.ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=shape)
    return M.ModelInferResponse(outputs=[output], raw_output_contents=[raw])


def doubled(request: Any, _: Any) -> Any:
    """Return twice the numbers, raw."""
    numbers = np.frombuffer(request.raw_input_contents[0], "<f4")
    shape = list(request.inputs[0].shape)
    return response("doubled", "FP32", shape, (2 * numbers).astype("<f4").tobytes())


def typed(request: Any, _: Any) -> Any:
    """Return twice the numbers in typed contents, as MLServer answers."""
    numbers = 2 * np.frombuffer(request.raw_input_contents[0], "<f4")
    output = M.ModelInferResponse.InferOutputTensor(
        name="doubled", datatype="FP32", shape=[len(numbers)],
        contents=M.InferTensorContents(fp32_contents=numbers.tolist()),
    )  # fmt: skip
    return M.ModelInferResponse(outputs=[output])


def shouted(request: Any, _: Any) -> Any:
    """Return two outputs of the text input: upper case and its length."""
    at = [each.name for each in request.inputs].index("text")
    text = request.raw_input_contents[at][4:]
    made = M.ModelInferResponse.InferOutputTensor
    return M.ModelInferResponse(
        outputs=[
            made(name="loud", datatype="BYTES", shape=[1]),
            made(name="length", datatype="INT64", shape=[1]),
        ],
        raw_output_contents=[
            len(text).to_bytes(4, "little") + text.upper(),
            len(text).to_bytes(8, "little"),
        ],
    )


def hanging(_: Any, context: Any) -> Any:
    """Do not answer until the client disconnects."""
    left = threading.Event()
    context.add_callback(left.set)
    left.wait(20)
    return M.ModelInferResponse()


def aborted(code: grpc.StatusCode, text: str) -> Infer:
    return lambda _, context: context.abort(code, text)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Server) -> Server:
    running.inputs, running.infer = ONE, doubled
    running.requests.clear()
    running.unknown = 0
    return running


def loaded(server: Server, model: str = "doubling", **more: Any) -> OpenInference:
    operator = OpenInference(server.address, model, **more)
    operator.load("cpu")
    return operator


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


@pytest.mark.parametrize("infer", [doubled, typed])
def test_a_value_is_the_models_only_input_and_its_output_the_only_one(
    server: Server, infer: Infer
) -> None:
    server.infer = infer
    first, second = loaded(server).predict([floats(1, 2), floats(3)])
    assert (first.tolist(), second.tolist()) == ([2, 4], [6])


def test_a_mapping_names_inputs_and_outputs(server: Server) -> None:
    server.inputs, server.infer = TWO, shouted
    (output,) = loaded(server).predict([{"numbers": floats(1), "text": "quiet"}])
    assert (output["loud"], output["length"].tolist()) == (b"QUIET", [5])


def test_a_batch_axis_is_added_and_taken_away(server: Server) -> None:
    (output,) = loaded(server, batch_axis=True).predict([floats(1, 2)])
    assert list(server.requests[0][0].inputs[0].shape) == [1, 2]
    assert output.tolist() == [2, 4]


def test_the_requests_of_a_batch_are_under_way_at_once(server: Server) -> None:
    together = threading.Barrier(3, timeout=20)

    def infer(request: Any, context: Any) -> Any:
        together.wait()
        return doubled(request, context)

    server.infer = infer
    outputs = loaded(server).predict([floats(n) for n in range(3)])
    assert [each.tolist() for each in outputs] == [[0], [2], [4]]


def test_the_servers_deadline_is_the_items(server: Server) -> None:
    loaded(server).predict(TimedBatch([floats(1), floats(2)], [5.0, 90.0]))
    told = sorted(
        (left_s, request.parameters["timeout"].int64_param) for request, left_s in server.requests
    )
    assert [-(-timeout_us // 1_000_000) for _, timeout_us in told] == [5, 30]
    assert told[0][0] < 6.0
    assert told[1][0] < 31.0


class Clock:
    """Monotonic seconds, which ``slowly`` advances."""

    now = 0.0


def slowly(value: Any) -> Any:
    Clock.now += 0.5
    return value


def test_the_preparation_of_a_batch_takes_of_its_items_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = loaded(server, before=f"{__name__}:slowly")
    monkeypatch.setattr(open_inference, "time", SimpleNamespace(monotonic=lambda: Clock.now))
    late, *good = operator.predict(TimedBatch([floats(n) for n in range(3)], [0.25, 60.0, 60.0]))
    other, later = operator.predict(TimedBatch([floats(n) for n in range(2)], [3.0, 3.0]))
    assert (type(late), [each.tolist() for each in (*good, other, later)]) == (
        OutOfTime, [[2], [4], [0], [2]],
    )  # fmt: skip
    timeouts = [request.parameters["timeout"].int64_param for request, _ in server.requests]
    assert sorted(timeouts) == [2_000_000, 2_500_000, 30_000_000, 30_000_000]


def test_a_server_that_never_answers_costs_the_item_its_time_and_no_other_item(
    server: Server,
) -> None:
    operator = loaded(server)
    server.infer = lambda request, context: (
        hanging if request.inputs[0].shape[0] == 1 else doubled
    )(request, context)
    late, gone, good = operator.predict(
        TimedBatch([floats(1), floats(1), floats(1, 2)], [0.05, -1.0, 20.0])
    )
    assert (type(late), type(gone), good.tolist()) == (OutOfTime, OutOfTime, [2, 4])
    assert re.search(r"had no answer within \d+ ms", str(late))
    assert len(server.requests) == 2  # no request is sent for an item past its deadline


@pytest.mark.parametrize(
    ("infer", "told"),
    [
        (aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy"), "RESOURCE_EXHAUSTED: busy"),
        (aborted(grpc.StatusCode.UNAVAILABLE, "going down"), "UNAVAILABLE: going down"),
        (aborted(grpc.StatusCode.INTERNAL, "it\nraised"), "INTERNAL: it raised"),
        (lambda *_: M.ModelInferResponse(), "no output at all"),
        (lambda *_: response("o", "FP32", [3], b"1234"), "has 4 bytes, but shape"),
        (lambda *_: response("o", "FP32", [-1], b""), "dimensions of 0 or more"),
        (lambda *_: response("o", "COLOUR", [1], b"1"), "has datatype 'COLOUR'"),
        (lambda *_: response("o", "BYTES", [1], b"\xff\xff\xff\xff"), "does not have 1 elements"),
        (
            lambda *_: M.ModelInferResponse(raw_output_contents=[b"1"]),
            "0 outputs, but the contents of 1",
        ),
    ],
)
def test_failed_inference_fails_the_item_without_a_retry(
    server: Server, infer: Infer, told: str
) -> None:
    operator = loaded(server)
    server.infer = infer
    (output,) = operator.predict([floats(1)])
    with pytest.raises(ServerFault, match=told):
        raise output
    assert len(server.requests) == 1
    server.infer = doubled
    assert operator.predict([floats(2)])[0].tolist() == [4]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("words", "Cannot cast scalar"),
        ({"other": floats(1)}, "has the inputs other; the model takes numbers"),
        (np.array([1j]), "Cannot cast"),
        ([1e300], "the input numbers holds a number beyond the range of FP32"),
        ({"numbers": floats(1), 3: floats(1)}, "has the inputs numbers, 3; the model takes"),
    ],
)
def test_mismatched_value_fails_alone_without_a_request(
    server: Server, value: Any, told: str
) -> None:
    wrong, right = loaded(server).predict([value, floats(1)])
    assert told in str(wrong)
    assert (right.tolist(), len(server.requests)) == ([2], 1)


def raising(value: Any) -> Any:
    """A user's ``before`` and ``after`` that fails for one item in two."""
    if len(value) == 1:
        raise {1: KeyError, 2: AttributeError, 6: IndexError}[int(value[0])]("odd")
    return value


@pytest.mark.parametrize(
    ("functions", "number", "told", "asked"),
    [
        ({"before": f"{__name__}:raising"}, 1, KeyError, 1),
        ({"before": f"{__name__}:raising"}, 2, AttributeError, 1),
        ({"after": f"{__name__}:raising"}, 1, AttributeError, 2),
        ({"after": f"{__name__}:raising"}, 3, IndexError, 2),
    ],
)
def test_an_error_of_a_users_function_is_the_output_of_its_item_alone(
    server: Server, functions: dict[str, str], number: int, told: type, asked: int
) -> None:
    wrong, right = loaded(server, **functions).predict([floats(number), floats(1, 2)])
    assert (type(wrong), right.tolist(), len(server.requests)) == (told, [2, 4], asked)
    assert wrong.__traceback__ is not None  # of which the reason shows the user's frames


@pytest.mark.parametrize(
    ("datatype", "elements", "told"),
    [
        ("BF16", {"fp32_contents": [1.0]}, "has datatype 'BF16'"),
        ("INT8", {"int_contents": [300]}, "300 out of bounds for int8"),
        ("INT8", {"int_contents": [1, 2]}, "cannot reshape"),
        ("FP32", {"bytes_contents": [b"one"]}, "could not convert"),
    ],
)
def test_typed_contents_that_are_no_tensor_fail_their_item_alone(
    server: Server, datatype: str, elements: dict[str, Any], told: str
) -> None:
    odd = M.ModelInferResponse.InferOutputTensor(
        name="o", datatype=datatype, shape=[1], contents=M.InferTensorContents(**elements)
    )
    server.infer = lambda request, context: (
        M.ModelInferResponse(outputs=[odd])
        if request.inputs[0].shape[0] == 1
        else doubled(request, context)
    )
    wrong, right = loaded(server).predict([floats(1), floats(1, 2)])
    assert (type(wrong), right.tolist()) == (ServerFault, [2, 4])
    assert told in str(wrong)


@pytest.mark.parametrize(
    ("datatype", "value", "told"),
    [
        ("INT8", 300, "the input numbers holds a number beyond the range of INT8"),
        ("BYTES", 3, "the input numbers is BYTES, but the value holds int"),
    ],
)
def test_a_number_that_an_input_cannot_hold_is_not_sent_as_another(
    server: Server, datatype: str, value: Any, told: str
) -> None:
    server.inputs = [("numbers", datatype, [1])]
    (wrong,) = loaded(server).predict([value])
    assert told in str(wrong)
    assert server.requests == []


def test_a_model_without_inputs_fails_its_items_with_a_sentence(server: Server) -> None:
    server.inputs = []
    (wrong,) = loaded(server).predict([floats(1)])
    assert "the model takes no inputs" in str(wrong)


def test_an_output_that_is_not_there_is_named(server: Server) -> None:
    (output,) = loaded(server, outputs=["halved"]).predict([floats(1)])
    assert "no output halved" in str(output)


def test_a_model_that_the_server_does_not_have_is_an_error_of_loading(server: Server) -> None:
    with pytest.raises(BadOperator, match=r"model 'other' within 0 s: NOT_FOUND: no model other"):
        loaded(server, model="other", ready_within_s=0.0)


def test_a_server_that_starts_and_does_not_know_its_model_yet_is_waited_for(
    server: Server,
) -> None:
    server.unknown = 2
    assert loaded(server).predict([floats(1)])[0].tolist() == [2]
