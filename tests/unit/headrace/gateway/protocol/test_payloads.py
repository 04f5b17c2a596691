"""Payloads from tensors and tensors from results, by the pipeline's signature."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.protocol.payloads import configuration, model_metadata, outputs_of, payload_of
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import (
    DTYPES,
    Tensor,
    bytes_tensor,
    json_data,
    number_tensor,
)
from headrace.model_registry.signature import Signature, TensorSpec

SIGNATURE = Signature(
    (
        TensorSpec("image", "UINT8", (-1, 2)),
        TensorSpec("text", "BYTES", (1,)),
        TensorSpec("tags", "BYTES", (-1,)),
    ),
    (TensorSpec("label", "INT64", (1,)), TensorSpec("words", "BYTES", (-1,))),
)
IMAGE = number_tensor("image", "UINT8", np.array([[1, 2], [3, 4]], np.uint8))
TEXT = bytes_tensor("text", [b"\xff"], [1])
TAGS = bytes_tensor("tags", [b"a", b"b"], [2])
ONE = Signature((TensorSpec("x", "BYTES", (1,)),), (TensorSpec("y", "FP32", (-1, 2)),))


def test_without_a_signature_a_query_is_one_element() -> None:
    assert payload_of([TEXT], None, "raw") == b"\xff"
    assert payload_of([bytes_tensor("any", [b'{"a": 1}'], [1, 1])], None, "avro") == {"a": 1}


def test_with_a_signature_a_payload_has_the_inputs_by_name() -> None:
    payload = payload_of([TAGS, IMAGE, TEXT], SIGNATURE, "avro")
    assert isinstance(payload, dict)
    assert list(payload) == ["image", "text", "tags"]
    assert np.array_equal(payload["image"], IMAGE.array)
    assert (payload["text"], payload["tags"]) == (b"\xff", ["a", "b"])
    assert payload_of([bytes_tensor("", [b"raw"], [1])], ONE, "raw") == b"raw"


@pytest.mark.parametrize(
    ("inputs", "signature", "form", "told"),
    [
        ([], None, "raw", "one BYTES tensor"),
        ([IMAGE], None, "raw", "one BYTES tensor"),
        ([bytes_tensor("x", [b""], [1])], None, "raw", "tensor 'x' is empty"),
        ([bytes_tensor("", [b""], [1])], None, "raw", "the body is empty"),
        ([TEXT], None, "avro", "is JSON, but this is none"),
        ([IMAGE, TEXT], SIGNATURE, "avro", "takes image, text, tags"),
        ([IMAGE, IMAGE, TEXT], SIGNATURE, "avro", "takes image, text, tags"),
        ([number_tensor("image", "UINT8", np.zeros((2, 3), np.uint8)), TEXT, TAGS], SIGNATURE,
         "avro", "takes UINT8 of [-1, 2]"),
        ([number_tensor("image", "INT8", np.zeros((2, 2), np.int8)), TEXT, TAGS], SIGNATURE, "avro",
         "is INT8"),
        (
            [IMAGE, TEXT, bytes_tensor("tags", [b"\xff"], [1])], SIGNATURE, "avro", "UTF-8",
        ),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_reported_with_a_reason(
    inputs: list[Tensor], signature: Signature | None, form: str, told: str
) -> None:
    with pytest.raises(Unserved) as raised:
        payload_of(inputs, signature, form)
    assert told in str(raised.value)
    assert raised.value.status.ending is Ending.BAD_REQUEST


def test_a_result_without_a_signature_is_json() -> None:
    (output,) = outputs_of({"a": [1, 2.5]}, None, [])
    assert (output.name, output.datatype, output.shape) == ("output", "BYTES", (1,))
    assert json_data(output) == ['{"a":[1,2.5]}']


def test_results_become_the_outputs_that_are_wanted() -> None:
    result = {"label": 3, "words": ["a", "b"], "other": None}
    outputs = outputs_of(result, SIGNATURE, [])
    assert [(o.name, o.datatype, o.shape, json_data(o)) for o in outputs] == [
        ("label", "INT64", (1,), [3]), ("words", "BYTES", (2,), ["a", "b"]),
    ]  # fmt: skip
    assert [o.name for o in outputs_of(result, SIGNATURE, ["words"])] == ["words"]


@pytest.mark.parametrize(
    "result",
    [
        np.array([[1, 2]], np.float32),
        [[1.0, 2.0]],
        {"y": np.array([[1.0, 2.0]])},
        {"dtype": "float32", "shape": [1, 2], "data": [1.0, 2.0]},  # from a results topic in JSON
    ],
)
def test_the_value_of_the_only_output_needs_no_name(result: Any) -> None:
    (output,) = outputs_of(result, ONE, [])
    assert (output.datatype, output.shape, json_data(output)) == ("FP32", (1, 2), [1.0, 2.0])


def _only(datatype: str) -> Signature:
    return Signature(ONE.inputs, (TensorSpec("y", datatype, (-1,)),))


@pytest.mark.parametrize("datatype", [name for name, kind in DTYPES.items() if kind.kind in "iu"])
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300), max_size=3))
def test_whole_numbers_in_an_output_keep_their_values_or_are_the_pipelines_fault(
    datatype: str, numbers: list[int]
) -> None:
    held = np.iinfo(DTYPES[datatype])
    if all(held.min <= number <= held.max for number in numbers):
        (output,) = outputs_of(numbers, _only(datatype), [])
        assert (output.datatype, json_data(output)) == (datatype, numbers)
    else:
        with pytest.raises(Unserved, match=f"no {datatype} tensor: it holds"):
            outputs_of(numbers, _only(datatype), [])


@pytest.mark.parametrize(
    "result", [[1e39], np.array([1e39]), {"dtype": "float64", "shape": [1], "data": [-1e39]}]
)
def test_a_number_that_is_an_infinity_in_the_outputs_type_is_the_pipelines_fault(
    result: Any,
) -> None:
    with pytest.raises(Unserved, match="no FP32 tensor: it holds a number beyond its range"):
        outputs_of(result, _only("FP32"), [])


def test_an_infinity_of_the_result_itself_stays_one() -> None:
    (output,) = outputs_of(np.array([np.inf, np.nan]), _only("FP32"), [])
    assert np.array_equal(output.array, np.array([np.inf, np.nan], np.float32), equal_nan=True)


@pytest.mark.parametrize("datatype", DTYPES)
def test_a_list_without_elements_is_an_output_of_any_type(datatype: str) -> None:
    (output,) = outputs_of([], _only(datatype), [])
    assert (output.datatype, output.shape, json_data(output)) == (datatype, (0,), [])


@pytest.mark.parametrize(
    ("result", "signature", "told"),
    [
        ({"label": 1}, SIGNATURE, "the signature has the outputs"),
        (None, SIGNATURE, "NoneType"),
        ({"label": 1, "words": [5]}, SIGNATURE, "other values than text"),
        ({"label": 1.5, "words": []}, SIGNATURE, "no INT64 tensor"),
        ([[1.0, 2.0, 3.0]], ONE, "has shape [1, 3]"),
        ("text", ONE, "no FP32 tensor"),
        ([[1.0], [2.0, 3.0]], ONE, "no FP32 tensor"),
    ],
)
def test_a_result_that_does_not_fit_is_the_pipelines_fault(
    result: Any, signature: Signature, told: str
) -> None:
    with pytest.raises(Unserved) as raised:
        outputs_of(result, signature, [])
    assert told in str(raised.value)
    assert raised.value.status.ending is Ending.FAILED


def test_an_unknown_output_is_the_callers_fault() -> None:
    with pytest.raises(Unserved, match="known are output") as raised:
        outputs_of("x", None, ["logits"])
    assert raised.value.status.ending is Ending.BAD_REQUEST


def test_metadata_and_configuration_show_the_signature() -> None:
    assert model_metadata("m", ONE) == {
        "name": "m", "versions": ["1"], "platform": "headrace",
        "inputs": [{"name": "x", "datatype": "BYTES", "shape": [1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }  # fmt: skip
    assert configuration("m", None)["max_batch_size"] == 0
    assert configuration("m", ONE)["input"] == [
        {"name": "x", "data_type": "TYPE_STRING", "dims": [1]}
    ]
