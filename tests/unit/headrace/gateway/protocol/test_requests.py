"""Bodies of inference requests and responses over HTTP."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.protocol.requests import InferRequest, InferResponse, parsed, rendered
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import binary, bytes_tensor, number_tensor

NUMBERS = number_tensor("n", "FP32", np.array([[1.5, -2.0]], np.float32))
WORDS = bytes_tensor("w", [b"a", b"\xff\0"], [2])


def body_of(row: dict[str, Any], *parts: bytes) -> tuple[bytes, str]:
    text = json.dumps(row).encode()
    return b"".join((text, *parts)), str(len(text))


def test_json_and_binary_tensors_in_one_body() -> None:
    raw = binary(WORDS)
    body, length = body_of(
        {
            "id": "q", "parameters": {"timeout": 5},
            "inputs": [
                {"name": "n", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2]},
                {"name": "w", "datatype": "BYTES", "shape": [2],
                 "parameters": {"binary_data_size": len(raw)}},
            ],
            "outputs": [{"name": "o", "parameters": {"binary_data": True}}, {"name": "p"}],
        },
        raw,
    )  # fmt: skip
    request = parsed(body, length)
    assert [binary(tensor) for tensor in request.inputs] == [binary(NUMBERS), raw]
    assert (request.id, request.parameters, request.outputs) == ("q", {"timeout": 5}, ("o", "p"))
    assert (request.binary, request.binary_default) == (frozenset("o"), False)


@pytest.mark.parametrize(
    ("asked", "outputs", "binary_default"),
    [(True, [], True), (True, [{"name": "o"}], False), (False, [], False), (1, [], False)],
)
def test_outputs_are_binary_by_default_if_none_is_named(
    asked: object, outputs: list[Any], binary_default: bool
) -> None:
    row = {"inputs": [], "outputs": outputs, "parameters": {"binary_data_output": asked}}
    assert parsed(*body_of(row)).binary_default is binary_default


def test_a_header_of_no_bytes_makes_the_body_the_input() -> None:
    (only,) = parsed(b"\x89PNG", "0").inputs
    assert binary(only) == b"\x04\0\0\0\x89PNG"


def test_binary_output_by_default_and_by_name() -> None:
    response = InferResponse(model="m", id="q", outputs=(NUMBERS, WORDS), parameters={"late": True})
    body, length = rendered(response, InferRequest(inputs=(), binary=frozenset("w")))
    assert length is not None
    assert json.loads(body[:length]) == {
        "model_name": "m", "model_version": "1", "id": "q", "parameters": {"late": True},
        "outputs": [
            {"name": "n", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2.0]},
            {"name": "w", "datatype": "BYTES", "shape": [2],
             "parameters": {"binary_data_size": len(binary(WORDS))}},
        ],
    }  # fmt: skip
    assert body[length:] == binary(WORDS)
    every, length = rendered(response, InferRequest(inputs=(), binary_default=True))
    assert every[length:] == binary(NUMBERS) + binary(WORDS)


@pytest.mark.parametrize(
    ("row", "parts", "told"),
    [
        ({}, (), "missing required field `inputs`"),
        ({"inputs": [{"name": "n", "datatype": "FP32", "shape": ["1"]}]}, (), "shape[0]"),
        ({"inputs": [{"name": "n", "datatype": "FP32", "shape": [1]}]}, (), "neither data nor"),
        ({"inputs": []}, (b"xyz",), "3 bytes at the end"),
        ({"inputs": [], "id": "x" * 257}, (), "at most 256"),
        ({"inputs": [{"name": "n", "datatype": "FP32", "shape": [1],
         "parameters": {"binary_data_size": 9}}]}, (b"xyz",), "3 bytes are left"),
        *(
            ({"inputs": [{"name": "n", "datatype": "INT8", "shape": [1],
                          "parameters": {"binary_data_size": size}}]},
             (b"x",), "1 bytes are left")
            for size in (True, 1.0, "1", None, -1)
        ),
        ({"inputs": [{"name": "n", "datatype": "FP32", "shape": [1], "data": [1],
         "parameters": {"binary_data_size": 0}}]}, (), "has both"),
        ({"inputs": [{"name": "n", "datatype": "FP32", "shape": [1],
         "parameters": {"shared_memory_region": "r"}}]}, (), "shared memory"),
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_reported_with_a_reason(
    row: dict[str, Any], parts: tuple[bytes, ...], told: str
) -> None:
    with pytest.raises(Unserved) as raised:
        parsed(*body_of(row, *parts))
    assert told in str(raised.value)
    assert raised.value.status.ending is Ending.BAD_REQUEST


GOOD, LENGTH = body_of(
    {
        "inputs": [
            {"name": "w", "datatype": "BYTES", "shape": [1], "data": ["text"]},
            {"name": "n", "datatype": "INT16", "shape": [2],
             "parameters": {"binary_data_size": 4}},
        ]
    },
    b"\1\0\2\0",
)  # fmt: skip


def refused(call: Callable[[], object]) -> Ending | None:
    """Return how a call reports the end of the request; None if it returns."""
    try:
        call()
    except Unserved as error:
        return error.status.ending
    return None


@given(
    at=st.integers(0, len(GOOD)),
    cut=st.integers(0, 8),
    put=st.binary(max_size=8),
    length=st.sampled_from([LENGTH, None, "1", "-1", "x", "99999999", "²"]),
)
def test_no_damaged_body_raises_anything_but_a_bad_request(
    at: int, cut: int, put: bytes, length: str | None
) -> None:
    assert refused(lambda: parsed(GOOD[:at] + put + GOOD[at + cut :], length)) in (
        None,
        Ending.BAD_REQUEST,
    )


def test_a_body_that_is_nested_too_deep_is_reported() -> None:
    with pytest.raises(Unserved, match="no inference request"):
        parsed(b'{"inputs":' + b"[" * 100_000, None)
