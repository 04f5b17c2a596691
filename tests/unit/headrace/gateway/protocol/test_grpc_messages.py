"""Inference requests and responses over gRPC, built from the message table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.protocol.descriptors import METHODS, SERVICE, message_classes, pool
from headrace.gateway.protocol.grpc_messages import parsed, rendered
from headrace.gateway.protocol.requests import InferResponse
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import DATATYPES, binary, bytes_tensor, number_tensor

POOL = pool()
M = message_classes(POOL)
Input = M.ModelInferRequest.InferInputTensor


def request(*inputs: Any, **more: Any) -> Any:
    sent = M.ModelInferRequest(model_name="m", inputs=inputs, **more)
    return M.ModelInferRequest.FromString(sent.SerializeToString())


def test_the_service_has_its_methods() -> None:
    assert [m.name for m in POOL.FindServiceByName(SERVICE).methods] == list(METHODS)


def test_typed_contents_and_parameters() -> None:
    numbers = M.InferTensorContents(int_contents=[1, -2])
    texts = M.InferTensorContents(bytes_contents=[b"a"])
    found = parsed(
        request(
            Input(name="n", datatype="INT16", shape=[2], contents=numbers),
            Input(name="w", datatype="BYTES", shape=[1], contents=texts),
            id="q",
            parameters={"timeout": M.InferParameter(int64_param=5)},
            outputs=[M.ModelInferRequest.InferRequestedOutputTensor(name="o")],
        )
    )
    assert [binary(each) for each in found.inputs] == [b"\1\0\xfe\xff", b"\1\0\0\0a"]
    assert (found.id, found.parameters, found.outputs) == ("q", {"timeout": 5}, ("o",))


def test_raw_contents() -> None:
    found = parsed(
        request(Input(name="n", datatype="FP16", shape=[1]), raw_input_contents=[b"\0\x3c"])
    )
    assert found.inputs[0].array.tolist() == [1.0]


@pytest.mark.parametrize(
    ("given_input", "raw", "told"),
    [
        (Input(name="n", datatype="FP16", shape=[1]), [], "send it raw"),
        (Input(name="n", datatype="INT8", shape=[1]), [b"1", b"2"], "2 raw_input_contents"),
        (Input(name="n", datatype="INT8", shape=[1]), [], "has 0 elements, but 1"),
        (Input(name="n", datatype="INT8", shape=[1],
         contents=M.InferTensorContents(int_contents=[200])), [], "beyond the range"),
        (Input(name="n", datatype="INT8", shape=[1],
         contents=M.InferTensorContents(fp32_contents=[1.0])), [], "fill int_contents only"),
    ],
)  # fmt: skip
def test_mismatch_is_reported_with_a_reason(given_input: Any, raw: list[bytes], told: str) -> None:
    with pytest.raises(Unserved) as raised:
        parsed(request(given_input, raw_input_contents=raw))
    assert told in str(raised.value)
    assert raised.value.status.ending is Ending.BAD_REQUEST


def refused(call: Callable[[], object]) -> Ending | None:
    """Return how a call reports the end of the request; None if it returns."""
    try:
        call()
    except Unserved as error:
        return error.status.ending
    return None


@given(
    st.sampled_from(DATATYPES) | st.text(max_size=4),
    st.lists(st.integers(-2, 4), max_size=3),
    st.lists(st.binary(max_size=12), max_size=2),
    st.lists(st.integers(-300, 300), max_size=4),
)
def test_no_message_raises_anything_but_a_bad_request(
    datatype: str, shape: list[int], raw: list[bytes], numbers: list[int]
) -> None:
    contents = M.InferTensorContents(int_contents=numbers)
    one = Input(name="n", datatype=datatype, shape=shape, contents=contents)
    assert refused(lambda: parsed(request(one, raw_input_contents=raw))) in (
        None,
        Ending.BAD_REQUEST,
    )


def test_a_response_is_raw() -> None:
    outputs = (
        number_tensor("n", "FP32", np.array([1.0], np.float32)),
        bytes_tensor("w", [b"a"], [1]),
    )
    made = rendered(
        InferResponse(model="m", id="q", outputs=outputs, parameters={"headrace-late": True}), M
    )
    assert [(o.name, o.datatype, list(o.shape)) for o in made.outputs] == [
        ("n", "FP32", [1]), ("w", "BYTES", [1]),
    ]  # fmt: skip
    assert list(made.raw_output_contents) == [binary(each) for each in outputs]
    assert made.parameters["headrace-late"].bool_param
