"""Tensors of the Open Inference Protocol: round trips, and refusal of everything else."""

import json
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import (
    BYTES,
    DATATYPES,
    DTYPES,
    Tensor,
    binary,
    bytes_tensor,
    from_binary,
    from_json,
    json_data,
    number_tensor,
)
from headrace.model_registry.signature import Datatype

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)


def ended(call: Callable[[], Tensor]) -> Tensor | Literal[Ending.BAD_REQUEST]:
    """Return the tensor of a call, or that it refuses a bad request."""
    try:
        return call()
    except Unserved as error:
        if error.status.ending is Ending.BAD_REQUEST:
            return Ending.BAD_REQUEST
        raise


@st.composite
def numeric(draw: st.DrawFn, *, finite: bool = False) -> Tensor:
    datatype = draw(st.sampled_from(sorted(DTYPES)))
    elements = None
    if finite and datatype.startswith("FP"):
        width = int(datatype.removeprefix("FP"))
        elements = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return number_tensor(
        "x", datatype, draw(hnp.arrays(DTYPES[datatype], shapes, elements=elements))
    )


@st.composite
def texts(draw: st.DrawFn, elements: st.SearchStrategy[bytes]) -> Tensor:
    shape = draw(shapes)
    count = int(np.prod(shape))
    return bytes_tensor("x", draw(st.lists(elements, min_size=count, max_size=count)), shape)


def same(one: Tensor, other: Tensor) -> bool:
    equal_nan = one.array.dtype.kind == "f"
    return (one.name, one.datatype, one.shape) == (other.name, other.datatype, other.shape) and (
        np.array_equal(one.array, other.array, equal_nan=equal_nan)
    )


def test_the_pipeline_file_knows_the_datatypes_of_the_gateway() -> None:
    assert get_args(Datatype) == DATATYPES


@given(numeric() | texts(st.binary(max_size=9)))
def test_binary_form_keeps_every_element(tensor: Tensor) -> None:
    assert same(from_binary("x", tensor.datatype, tensor.shape, binary(tensor)), tensor)


@given(numeric(finite=True) | texts(st.text(max_size=9).map(lambda text: text.encode())))
def test_json_keeps_every_element(tensor: Tensor) -> None:
    data = json.loads(json.dumps(json_data(tensor)))
    assert same(from_json("x", tensor.datatype, tensor.shape, data), tensor)


@given(numeric(finite=True))
def test_nested_data_are_the_flat_ones(tensor: Tensor) -> None:
    assert same(from_json("x", tensor.datatype, tensor.shape, tensor.array.tolist()), tensor)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(DATATYPES) | st.text(max_size=8),
    st.lists(st.integers(-2, 6) | st.just(1 << 62), max_size=5),
    anything,
)
def test_no_json_raises_anything_but_a_bad_request(
    datatype: str, shape: list[int], data: Any
) -> None:
    found = ended(lambda: from_json("x", datatype, shape, data))
    assert found is Ending.BAD_REQUEST or list(found.shape) == shape


@given(st.sampled_from(DATATYPES), st.lists(st.integers(0, 4), max_size=4), st.binary(max_size=64))
def test_no_bytes_raise_anything_but_a_bad_request(
    datatype: str, shape: list[int], raw: bytes
) -> None:
    found = ended(lambda: from_binary("x", datatype, shape, raw))
    assert found is Ending.BAD_REQUEST or binary(found) == raw


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        ("FP99", [1], [1], "known are BOOL"),
        ("INT8", [1], [300], "beyond the range of INT8"),
        ("UINT8", [1], [-1], "beyond the range of UINT8"),
        ("FP16", [1], [1e6], "beyond the range of FP16"),
        ("INT32", [1], [True], "but data holds bool"),
        ("INT32", [1], [1.5], "but data holds float"),
        ("INT32", [3], [1, 2], "has 2 elements in data, but its shape [3] has 3"),
        ("INT32", [-1], [1], "0 or more"),
        ("INT32", [1, 2], [[[1, 2]]], "nested otherwise"),
        ("INT32", [2, 3], [[1, 2], [3, 4], [5, 6]], "nested otherwise"),
        ("INT32", [2, 2], [[1], [2, 3, 4]], "nested otherwise"),
        ("INT32", [1, 2, 2], [[1, 2, 3, 4]], "nested otherwise"),
        ("INT32", [1 << 50], [1], "too large"),
        ("BYTES", [1], [1], "must be strings"),
        ("BYTES", [1], ["\ud800"], "surrogate"),
        ("INT32", [1], 5, "write a list"),
    ],
)
def test_a_tensor_that_does_not_fit_is_reported_with_a_reason(
    datatype: str, shape: list[int], data: Any, told: str
) -> None:
    with pytest.raises(Unserved) as raised:
        from_json("x", datatype, shape, data)
    assert told in str(raised.value)
    assert raised.value.status.ending is Ending.BAD_REQUEST


@pytest.mark.parametrize(
    ("datatype", "shape", "raw", "told"),
    [
        ("FP32", [2], b"1234", "has 4 bytes, but shape [2] of FP32 has 8"),
        ("BOOL", [1], b"\x02", "other than 0 and 1"),
        ("BYTES", [1], b"\x05\0\0\0ab", "does not have 1 elements"),
        ("BYTES", [1], b"\x01\0", "ends within the length"),
        ("BYTES", [2], b"\x01\0\0\0a", "has 1 elements, but 2"),
        ("BYTES", [1], b"\x01\0\0\0a\x01\0\0\0b", "does not have 1 elements"),
    ],
)
def test_bytes_that_do_not_fit_are_reported_with_a_reason(
    datatype: str, shape: list[int], raw: bytes, told: str
) -> None:
    with pytest.raises(Unserved, match="x") as raised:
        from_binary("x", datatype, shape, raw)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "tensor",
    [
        number_tensor("y", "FP32", np.array([np.nan], np.float32)),
        bytes_tensor("y", [b"\xff"], [1]),
    ],
)
def test_values_without_a_json_form_are_refused_and_not_changed(tensor: Tensor) -> None:
    with pytest.raises(Unserved, match="binary_data") as raised:
        json_data(tensor)
    assert raised.value.status.ending is Ending.FAILED
    assert tensor.datatype in (BYTES, "FP32")
